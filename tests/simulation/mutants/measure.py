"""Measures after how many seeds the simulation detects each mutant.

python -m tests.simulation.mutants.measure [TIMES] [NAME ...]
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from statistics import median
from typing import Final

from tests.simulation.engine.simulation import SimulationResult
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.mutants import MUTANTS

#: Each measurement begins this many seeds after the one before, more than any mutant needs.
_APART: Final = 10_000


def _catches(mutant: Mutant, times: int) -> Iterator[tuple[int, SimulationResult]]:
    """How many seeds each measurement took, and what was noticed; one in which nothing was noticed is left out."""
    for first in range(0, times * _APART, _APART):
        result = mutant.detected(first, mutant.within)
        if result is not None:
            yield result.seed - first + 1, result


def measured(mutant: Mutant, times: int = 5) -> tuple[str, bool]:
    """A line about one mistake, and whether it was noticed each time."""
    detected = list(_catches(mutant, times))
    needed = [seeds for seeds, _ in detected]
    violation = detected[0][1].violations[0][:90] if detected else "NOT NOTICED"
    figures = f"{median(needed):>6.0f} ({min(needed)}-{max(needed)})" if detected else "     -"
    line = f"{mutant.name:<46}{figures:<20} {len(detected)} of {times} times within {mutant.within}: {violation}"
    return line, len(detected) == times


def _measured(place_and_times: tuple[int, int]) -> tuple[str, bool]:
    place, times = place_and_times
    return measured(MUTANTS[place], times)


def main(times: int, *names: str) -> int:
    """Print for each mistake the median, least and greatest number of seeds until it was noticed.

    Returns how many mistakes were missed at least once.
    """
    chosen = [place for place, mutant in enumerate(MUTANTS) if not names or mutant.name in names]
    missed = 0
    with multiprocessing.get_context("spawn").Pool() as pool:
        for line, noticed in pool.imap_unordered(_measured, [(place, times) for place in chosen]):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            missed += not noticed
    return missed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, *sys.argv[2:]))
