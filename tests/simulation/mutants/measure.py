"""How many seeds it takes until the simulation notices each planted mistake.

python -m tests.simulation.mutants.measure [TIMES] [NAME ...]
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from statistics import median
from typing import Final

from tests.simulation.engine.simulation import Judged
from tests.simulation.mutants.mutant import Planted
from tests.simulation.mutants.mutants import PLANTED

#: Each measurement begins so many seeds after the one before, further than any mistake goes unnoticed.
_APART: Final = 10_000


def _catches(planted: Planted, times: int) -> Iterator[tuple[int, Judged]]:
    """How many seeds each measurement took, and what was noticed; one in which nothing was noticed is left out."""
    for first in range(0, times * _APART, _APART):
        judged = planted.caught(first, planted.within)
        if judged is not None:
            yield judged.seed - first + 1, judged


def measured(planted: Planted, times: int = 5) -> tuple[str, bool]:
    """A line about one mistake, and whether it was noticed each time."""
    caught = list(_catches(planted, times))
    needed = [seeds for seeds, _ in caught]
    told = caught[0][1].violations[0][:90] if caught else "NOT NOTICED"
    figures = f"{median(needed):>6.0f} ({min(needed)}-{max(needed)})" if caught else "     -"
    line = f"{planted.name:<46}{figures:<20} {len(caught)} of {times} times within {planted.within}: {told}"
    return line, len(caught) == times


def _measured(place_and_times: tuple[int, int]) -> tuple[str, bool]:
    place, times = place_and_times
    return measured(PLANTED[place], times)


def main(times: int, *names: str) -> int:
    """Print for each mistake the median, least and greatest number of seeds until it was noticed.

    Returns how many mistakes were missed at least once.
    """
    chosen = [place for place, planted in enumerate(PLANTED) if not names or planted.name in names]
    missed = 0
    with multiprocessing.get_context("spawn").Pool() as pool:
        for line, noticed in pool.imap_unordered(_measured, [(place, times) for place in chosen]):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            missed += not noticed
    return missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, *sys.argv[2:]))
