"""`python -m tests.simulation`: play many seeds, one again, or the smallest world of one that fails."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from tests.simulation.engine.runner import Brief, Summary, play
from tests.simulation.engine.simulation import simulate

#: After so many seeds it is told how far it came.
_TELLS: Final = 1_000


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many.")
@click.option("--first", default=0, show_default=True, help="The first of them, to go on where another run ended.")
@click.option("--seed", type=int, help="Play this one only, and tell what is wrong with it.")
@click.option(
    "--shrink", "shrunk", type=int, help="Look for the smallest part of this one that still fails, and print it."
)
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="Side by side.")
def main(*, seeds: int, first: int, seed: int | None, shrunk: int | None, processes: int) -> None:
    """Simulate worlds full of faults, and judge what came of them.

    The exit code is 1 if a promise was broken.
    """
    if shrunk is not None:
        _shrink(shrunk)
    elif seed is not None:
        judged = simulate(seed)
        click.echo(str(judged))
        sys.exit(bool(judged.violations))
    else:
        summary = play(range(first, first + seeds), processes, _tell)
        click.echo(str(summary))
        sys.exit(bool(summary.failed))


def _shrink(seed: int) -> None:
    try:
        shrinking = importlib.import_module("tests.simulation.engine.shrinking")
    except ModuleNotFoundError as error:
        message = f"{error}: shrinking is done by hypothesis, so have it with 'pip install hypothesis'"
        raise click.ClickException(message) from error
    click.echo(str(shrinking.shrink(seed)))


def _tell(summary: Summary, brief: Brief) -> None:
    if brief.violations:
        click.echo(f"{brief.told}\n  again: python -m tests.simulation --seed {brief.seed}")
    if summary.seeds % _TELLS == 0:
        click.echo(f"up to seed {brief.seed}: {summary.figures}")


if __name__ == "__main__":
    main()
