"""`python -m tests.simulation`: play many seeds, repeat one, or shrink one that fails."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from tests.simulation.engine.runner import SeedSummary, Summary, play
from tests.simulation.engine.simulation import simulate

#: Progress is printed after each this many seeds.
_REPORTS_EVERY: Final = 1_000


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="Number of seeds.")
@click.option("--first", default=0, show_default=True, help="First seed, to continue where another run ended.")
@click.option("--seed", type=int, help="Play this seed only, and print its violations.")
@click.option(
    "--shrink", "shrunk", type=int, help="Find the smallest part of this seed that still fails, and print it."
)
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="Processes in parallel.")
def main(*, seeds: int, first: int, seed: int | None, shrunk: int | None, processes: int) -> None:
    """Play simulations full of faults, and check every promise.

    The exit code is 1 if a promise was broken.
    """
    if shrunk is not None:
        _shrink(shrunk)
    elif seed is not None:
        result = simulate(seed)
        click.echo(str(result))
        sys.exit(bool(result.violations))
    else:
        summary = play(range(first, first + seeds), processes, _report_progress)
        click.echo(str(summary))
        sys.exit(bool(summary.failed))


def _shrink(seed: int) -> None:
    try:
        shrinking = importlib.import_module("tests.simulation.engine.shrinking")
    except ModuleNotFoundError as error:
        message = f"{error}: shrinking is done by hypothesis, so have it with 'pip install hypothesis'"
        raise click.ClickException(message) from error
    click.echo(str(shrinking.shrink(seed)))


def _report_progress(summary: Summary, seed_summary: SeedSummary) -> None:
    if seed_summary.violations:
        click.echo(f"{seed_summary.text}\n  again: python -m tests.simulation --seed {seed_summary.seed}")
    if summary.seeds % _REPORTS_EVERY == 0:
        click.echo(f"up to seed {seed_summary.seed}: {summary.figures}")


if __name__ == "__main__":
    main()
