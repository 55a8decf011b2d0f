"""The smallest simulation that still fails: a seed's simulation without every part that does not matter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import hypothesis
from hypothesis import strategies

from tests.simulation.engine.simulation import SimulationResult, simulate

#: Plays a seed with some of its parts; shrinking goes on while the result has violations.
Playing = Callable[[int, frozenset[str] | None], SimulationResult]
#: Without the phase that explains failures, which would trace every line of every simulation.
_PHASES: Final = (hypothesis.Phase.generate, hypothesis.Phase.shrink)
#: Simulations tried for each size that a smaller simulation may have.
_TRIES: Final = 40


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest failing simulation found, with the parts that are left of `of`."""

    result: SimulationResult
    of: int

    def __str__(self) -> str:
        """The parts that are left, and what is wrong."""
        parts = "\n".join(f"  {part}" for part in self.result.parts)
        size = f"{len(self.result.parts)} of {self.of} parts and {self.result.operations} operations"
        return f"{self.result}\nwith {size}:\n{parts}"


def _play(seed: int, only: frozenset[str] | None) -> SimulationResult:
    return simulate(seed, only=only)


def shrink(seed: int, playing: Playing = _play) -> Smallest:
    """Search, with hypothesis, for the smallest part of a seed's simulation that still fails.

    A part is a kind of fault, what a process does in a burst of work, or a fault that happens in it. The simulation of
    a seed that does not fail is returned whole.
    """
    playing = functools.cache(playing)
    result = playing(seed, None)
    of = len(result.parts)
    while result.violations and (smaller := _smaller(seed, result, playing)):
        result = smaller
    return Smallest(result, of)


def _smaller(seed: int, result: SimulationResult, playing: Playing) -> SimulationResult | None:
    """A simulation with fewer of these parts that fails too; None if none is found."""
    parts = list(result.parts)
    for least in sorted({0, len(parts) // 2, len(parts) * 3 // 4, len(parts) - 2, len(parts) - 1}):
        if 0 <= least < len(parts) and (found := _found(seed, parts, least, playing=playing)):
            return found
    return None


def _found(seed: int, parts: list[str], least: int, *, playing: Playing) -> SimulationResult | None:
    """The smallest failing simulation that hypothesis finds with at least `least` of these parts."""
    chosen = strategies.sets(strategies.sampled_from(parts), min_size=least, max_size=len(parts) - 1).map(frozenset)
    quietly = hypothesis.settings(
        max_examples=_TRIES,
        phases=_PHASES,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    try:
        smallest = hypothesis.find(chosen, lambda only: bool(playing(seed, only).violations), settings=quietly)
    except hypothesis.errors.NoSuchExample:
        return None
    return playing(seed, smallest)
