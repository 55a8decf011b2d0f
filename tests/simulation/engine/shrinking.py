"""The smallest world that still fails: a seed's world without every part that does not matter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import hypothesis
from hypothesis import strategies

from tests.simulation.engine.simulation import Judged, simulate

#: Plays a seed with some of its parts, and judges it; a world is shrunk as long as this finds anything wrong.
Playing = Callable[[int, frozenset[str] | None], Judged]
#: Without the phase that explains failures, which would trace every line of every world.
_PHASES: Final = (hypothesis.Phase.generate, hypothesis.Phase.shrink)
#: Worlds tried for each size that a smaller world may have.
_TRIES: Final = 40


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest world found: which parts of so many are left, and what is wrong with it."""

    judged: Judged
    of: int

    def __str__(self) -> str:
        """The parts that are left, and what is wrong."""
        parts = "\n".join(f"  {part}" for part in self.judged.parts)
        size = f"{len(self.judged.parts)} of {self.of} parts and {self.judged.operations} operations"
        return f"{self.judged}\nwith {size}:\n{parts}"


def _play(seed: int, only: frozenset[str] | None) -> Judged:
    return simulate(seed, only=only)


def shrink(seed: int, playing: Playing = _play) -> Smallest:
    """Search, with hypothesis, for the smallest part of a seed's world that still fails.

    A part is a kind of fault, what a process does in a burst of work, or a fault that happens in it. The world of a
    seed that does not fail is returned whole.
    """
    playing = functools.cache(playing)
    judged = playing(seed, None)
    of = len(judged.parts)
    while judged.violations and (smaller := _smaller(seed, judged, playing)):
        judged = smaller
    return Smallest(judged, of)


def _smaller(seed: int, judged: Judged, playing: Playing) -> Judged | None:
    """A world of some of these parts that fails too, tried with few, then with more of them; None if none is found."""
    parts = list(judged.parts)
    for least in sorted({0, len(parts) // 2, len(parts) * 3 // 4, len(parts) - 2, len(parts) - 1}):
        if 0 <= least < len(parts) and (found := _found(seed, parts, least, playing=playing)):
            return found
    return None


def _found(seed: int, parts: list[str], least: int, *, playing: Playing) -> Judged | None:
    """The smallest failing world that hypothesis finds with at least `least` of these parts, but not all of them."""
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
