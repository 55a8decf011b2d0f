"""`python -m tests.consumer_schedules`: play many schedules, and print those in which a promise did not hold."""

from __future__ import annotations

import multiprocessing
import sys

import click

from tests.consumer_schedules.world import play_part

#: One process plays this many schedules in a row.
_TOGETHER = 1_000


@click.command()
@click.option("--schedules", default=20_000, show_default=True, help="Number of schedules.")
@click.option("--first", default=0, show_default=True, help="First schedule, to continue where another run ended.")
@click.option("--processes", default=1, show_default=True, help="Processes in parallel.")
def main(*, schedules: int, first: int, processes: int) -> None:
    """Play schedules of consumers.

    Progress is printed after each thousand. The exit code is 1 if a promise was broken.
    """
    broken = 0
    used = 0.0
    starts = range(first, first + schedules, _TOGETHER)
    parts = [range(start, min(start + _TOGETHER, first + schedules)) for start in starts]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part, (found, seconds) in zip(parts, pool.imap(play_part, parts), strict=True):
            broken += len(found)
            used += seconds
            for text in found:
                click.echo(text)
            click.echo(f"up to schedule {part.stop - 1}: {broken} broken, {used:.0f} s of processor time")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
