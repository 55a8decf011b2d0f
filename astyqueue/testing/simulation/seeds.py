"""Many seeds, on as many processes as asked for, and what they covered."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from astyqueue.clock import SECOND, SystemClock
from astyqueue.testing.simulation.weather import Fault
from astyqueue.testing.simulation.world import Judged, simulate

_TOGETHER: Final = 25
_MINUTE: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Brief:
    """What is kept of one seed."""

    seed: int
    operations: int
    faults: frozenset[Fault]
    steps: Counter[str]
    violations: tuple[str, ...]
    told: str

    @classmethod
    def of(cls, judged: Judged) -> Brief:
        """Without the history."""
        return cls(judged.seed, judged.operations, judged.weather.faults, judged.steps, judged.violations, str(judged))


@dataclass(slots=True)
class Summary:
    """What many seeds came to: how many, how fast, and which step was done under which fault how often."""

    seeds: int = 0
    operations: int = 0
    fewest_faults: int = len(Fault)
    coverage: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    failed: list[Brief] = field(default_factory=list)
    took: int = 0

    def add(self, brief: Brief) -> None:
        """One more."""
        self.seeds += 1
        self.operations += brief.operations
        self.fewest_faults = min(self.fewest_faults, len(brief.faults))
        for fault in brief.faults:
            for step, times in brief.steps.items():
                self.coverage[step, fault] += times
        if brief.violations:
            self.failed.append(brief)

    @property
    def pace(self) -> float:
        """Seeds per minute."""
        return self.seeds / max(self.took, 1) * _MINUTE

    def __str__(self) -> str:
        """A line of figures and the table step x fault."""
        figures = (
            f"{self.seeds} seeds, {self.pace:.0f} a minute; {self.operations / max(self.seeds, 1):.0f} operations and "
            f"{self.fewest_faults} or more kinds of fault a seed; {len(self.failed)} seeds with violations"
        )
        return f"{figures}\n\n{self._table()}"

    def _table(self) -> str:
        steps = sorted({step for step, _ in self.coverage})
        width = max(map(len, Fault))
        head = " " * width + "".join(f"{step[:11]:>12}" for step in steps)
        return "\n".join([head, *(f"{fault:<{width}}" + "".join(f"{self.coverage[step, fault]:>12}" for step in steps) for fault in Fault)])


def play(seeds: Iterable[int], processes: int) -> Summary:
    """Simulate these seeds side by side."""
    clock, summary = SystemClock(), Summary()
    began = clock.monotonic()
    for brief in _briefs(seeds, processes):
        summary.add(brief)
    summary.took = clock.monotonic() - began
    return summary


def _briefs(seeds: Iterable[int], processes: int) -> Iterator[Brief]:
    if processes == 1:
        yield from map(brief_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(brief_of, seeds, chunksize=_TOGETHER)


def brief_of(seed: int) -> Brief:
    """What came of one seed."""
    return Brief.of(simulate(seed))
