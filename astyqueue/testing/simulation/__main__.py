"""`python -m astyqueue.testing.simulation`: play many seeds, or one again."""

from __future__ import annotations

import os
import sys

import click

from astyqueue.testing.simulation.seeds import play
from astyqueue.testing.simulation.world import simulate


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Play this one only, and tell what is wrong with it.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="Side by side.")
def main(*, seeds: int, first: int, seed: int | None, processes: int) -> None:
    """Simulate worlds full of faults, and judge what came of them."""
    if seed is not None:
        judged = simulate(seed)
        click.echo(str(judged))
        sys.exit(bool(judged.violations))
    summary = play(range(first, first + seeds), processes)
    click.echo(str(summary))
    for brief in summary.failed[:20]:
        click.echo(f"\n{brief.told}\n  again: python -m astyqueue.testing.simulation --seed {brief.seed}")
    sys.exit(bool(summary.failed))


if __name__ == "__main__":
    main()
