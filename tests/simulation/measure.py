"""How many seeds it takes until each planted mistake is noticed: `python -m tests.simulation.measure [TIMES]`."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from statistics import median

from astyqueue.testing.simulation import Judged
from tests.simulation.planted import PLANTED, Planted


def _catches(planted: Planted, times: int) -> Iterator[tuple[int, Judged]]:
    """How many seeds it took, each time, and what was noticed."""
    first = 0
    for _ in range(times):
        judged = planted.caught(first, planted.within)
        if judged is None:
            return
        yield judged.seed - first + 1, judged
        first = judged.seed + 1


def measured(planted: Planted, times: int = 5) -> tuple[str, bool]:
    """A line about one mistake, and whether it was noticed each time."""
    caught = list(_catches(planted, times))
    needed = f"{median(seeds for seeds, _ in caught):.0f}" if caught else "-"
    told = caught[0][1].violations[0][:90] if caught else "NOT NOTICED"
    return f"{planted.name:<46}{needed:>6} of {planted.within} ({len(caught)} of {times} times)  {told}", len(caught) == times


def _measured(place_and_times: tuple[int, int]) -> tuple[str, bool]:
    place, times = place_and_times
    return measured(PLANTED[place], times)


def main(times: int = 5) -> int:
    """Print for each mistake the median number of seeds to notice it; how many were missed."""
    missed = 0
    with multiprocessing.get_context("spawn").Pool() as pool:
        for line, noticed in pool.imap_unordered(_measured, [(place, times) for place in range(len(PLANTED))]):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            missed += not noticed
    return missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
