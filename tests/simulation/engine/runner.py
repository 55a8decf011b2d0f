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
from tests.simulation.engine.simulation import SimulationResult, simulate

_TOGETHER: Final = 25
_MINUTE: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class SeedSummary:
    """What is kept of one seed."""

    seed: int
    operations: int
    requests: int
    idle_polls: int
    faults: frozenset[Fault]
    lock: str
    steps: Counter[str]
    violations: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, result: SimulationResult) -> SeedSummary:
        """The summary of this result: all of it but the history."""
        return cls(
            result.seed,
            result.operations,
            result.requests,
            result.idle_polls,
            result.profile.faults,
            result.lock,
            result.steps,
            result.violations,
            text=str(result),
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
    failed: list[SeedSummary] = field(default_factory=list)
    took: int = 0

    def add(self, seed_summary: SeedSummary) -> None:
        """Add one more seed."""
        self.seeds += 1
        self.operations += seed_summary.operations
        self.requests += seed_summary.requests
        self.idle_polls += seed_summary.idle_polls
        self.fewest_operations = min(self.fewest_operations, seed_summary.operations)
        self.fewest_faults = min(self.fewest_faults, len(seed_summary.faults))
        self.locks[seed_summary.lock] += 1
        for fault in seed_summary.faults:
            for step, times in seed_summary.steps.items():
                self.coverage[step, fault] += times
        if seed_summary.violations:
            self.failed.append(seed_summary)

    @property
    def seeds_per_minute(self) -> float:
        """Seeds per minute."""
        return self.seeds / max(self.took, 1) * _MINUTE

    @property
    def figures(self) -> str:
        """The sums in one line."""
        seeds = max(self.seeds, 1)
        return (
            f"{self.seeds} seeds, {self.seeds_per_minute:.0f} a minute; "
            f"{self.fewest_operations} or more operations a seed before the faults end, "
            f"{self.operations / seeds:.0f} on average, and {self.requests / seeds:.0f} requests in all; "
            f"{self.fewest_faults} or more kinds of fault; "
            f"row locks: {', '.join(f'{lock} {simulations}' for lock, simulations in sorted(self.locks.items()))}; "
            f"{self.idle_polls} polls with nothing to do checked; "
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


def play(
    seeds: Iterable[int], processes: int, on_result: Callable[[Summary, SeedSummary], None] | None = None
) -> Summary:
    """Simulate these seeds in this number of processes; `on_result` is called after each, in their order."""
    clock, summary = SystemClock(), Summary()
    began = clock.monotonic()
    for seed_summary in _seed_summaries(seeds, processes):
        summary.add(seed_summary)
        summary.took = clock.monotonic() - began
        if on_result:
            on_result(summary, seed_summary)
    return summary


def _seed_summaries(seeds: Iterable[int], processes: int) -> Iterator[SeedSummary]:
    if processes == 1:
        yield from map(seed_summary, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _hush) as pool:
        yield from pool.imap(seed_summary, seeds, chunksize=_TOGETHER)


def _hush() -> None:
    """Print no warnings: the faults of a simulated simulation are deliberate."""
    logging.getLogger("astyqueue").setLevel(logging.CRITICAL)


def seed_summary(seed: int) -> SeedSummary:
    """Simulate one seed, and return what is kept of it."""
    return SeedSummary.of(simulate(seed))
