"""Simulates many seeds, in several processes if wanted, and sums up what they covered."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.units import SECOND
from tests.simulation.engine.fault_profile import Fault
from tests.simulation.engine.simulation import Judged, simulate

_TOGETHER: Final = 25
_MINUTE: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Brief:
    """What is kept of one seed."""

    seed: int
    operations: int
    requests: int
    idle_polls: int
    faults: frozenset[Fault]
    lock: str
    steps: Counter[str]
    violations: tuple[str, ...]
    told: str

    @classmethod
    def of(cls, judged: Judged) -> Brief:
        """What is kept of this judgement: all but the history."""
        return cls(
            judged.seed,
            judged.operations,
            judged.requests,
            judged.idle_polls,
            judged.weather.faults,
            judged.lock,
            judged.steps,
            judged.violations,
            told=str(judged),
        )


@dataclass(slots=True)
class Summary:
    """The sums over many seeds, their pace, and how often each row lock, and each step under each fault, occurred."""

    seeds: int = 0
    operations: int = 0
    requests: int = 0
    idle_polls: int = 0
    fewest_operations: int = 1 << 30
    fewest_faults: int = len(Fault)
    locks: Counter[str] = field(default_factory=Counter)
    coverage: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    failed: list[Brief] = field(default_factory=list)
    took: int = 0

    def add(self, brief: Brief) -> None:
        """Add one more seed."""
        self.seeds += 1
        self.operations += brief.operations
        self.requests += brief.requests
        self.idle_polls += brief.idle_polls
        self.fewest_operations = min(self.fewest_operations, brief.operations)
        self.fewest_faults = min(self.fewest_faults, len(brief.faults))
        self.locks[brief.lock] += 1
        for fault in brief.faults:
            for step, times in brief.steps.items():
                self.coverage[step, fault] += times
        if brief.violations:
            self.failed.append(brief)

    @property
    def pace(self) -> float:
        """Seeds per minute."""
        return self.seeds / max(self.took, 1) * _MINUTE

    @property
    def figures(self) -> str:
        """The sums in one line."""
        seeds = max(self.seeds, 1)
        return (
            f"{self.seeds} seeds, {self.pace:.0f} a minute; "
            f"{self.fewest_operations} or more operations a seed before the faults end, "
            f"{self.operations / seeds:.0f} on average, and {self.requests / seeds:.0f} requests in all; "
            f"{self.fewest_faults} or more kinds of fault; "
            f"row locks: {', '.join(f'{lock} {worlds}' for lock, worlds in sorted(self.locks.items()))}; "
            f"{self.idle_polls} polls with nothing to do judged; "
            f"{len(self.failed)} seeds with violations"
        )

    def __str__(self) -> str:
        """The figures, and how often each step was done under each fault."""
        return f"{self.figures}\n\n{self._table()}"

    def _table(self) -> str:
        """A table with a row for each step and a column for each fault, under its number in the list above it."""
        steps = sorted({step for step, _ in self.coverage})
        width = max(map(len, steps), default=0)
        legend = [f"{number:>4}  {fault}" for number, fault in enumerate(Fault, 1)]
        head = " " * width + "".join(f"{number:>10}" for number, _ in enumerate(Fault, 1))
        return "\n".join(
            [
                *legend,
                "",
                head,
                *(
                    f"{step:<{width}}" + "".join(f"{self.coverage[step, fault]:>10}" for fault in Fault)
                    for step in steps
                ),
            ]
        )


def play(seeds: Iterable[int], processes: int, heard: Callable[[Summary, Brief], None] | None = None) -> Summary:
    """Simulate these seeds in so many processes; `heard` is called after each, in their order."""
    clock, summary = SystemClock(), Summary()
    began = clock.monotonic()
    for brief in _briefs(seeds, processes):
        summary.add(brief)
        summary.took = clock.monotonic() - began
        if heard:
            heard(summary, brief)
    return summary


def _briefs(seeds: Iterable[int], processes: int) -> Iterator[Brief]:
    if processes == 1:
        yield from map(brief_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _hush) as pool:
        yield from pool.imap(brief_of, seeds, chunksize=_TOGETHER)


def _hush() -> None:
    """Print no warnings: the faults of a simulated world are deliberate."""
    logging.getLogger("astyqueue").setLevel(logging.CRITICAL)


def brief_of(seed: int) -> Brief:
    """Simulate one seed, and return what is kept of it."""
    return Brief.of(simulate(seed))
