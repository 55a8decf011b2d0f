"""`python -m tests.consumer_schedules`: play many schedules, and print those in which a promise did not hold.

With `--shares` it prints what equal consumers cost and get instead.
"""

from __future__ import annotations

import multiprocessing
import sys

import click

from tests.consumer_schedules.shares import LOADS, measured
from tests.consumer_schedules.world import play_part

#: One process plays this many schedules in a row.
_TOGETHER = 1_000


@click.command()
@click.option("--schedules", default=20_000, show_default=True, help="Number of schedules.")
@click.option("--first", default=0, show_default=True, help="First schedule, to continue where another run ended.")
@click.option("--processes", default=1, show_default=True, help="Processes in parallel.")
@click.option("--shares", is_flag=True, help="Print wake-ups and shares of equal consumers over 100 000 messages.")
def main(*, schedules: int, first: int, processes: int, shares: bool) -> None:
    """Play schedules of consumers.

    Progress is printed after each thousand. The exit code is 1 if a promise was broken.
    """
    if shares:
        print_shares()
        return
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


def print_shares() -> None:
    """Print a line for each load."""
    for load in LOADS:
        got = measured(load)
        click.echo(
            f"{load.name}: {got.delivered} messages, {got.wakeups_per_message:.3f} wake-ups for each, "
            f"the largest share is {got.max_to_min:.3f} of the smallest"
        )


if __name__ == "__main__":
    main()
