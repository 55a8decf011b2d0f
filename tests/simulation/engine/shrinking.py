"""The smallest world that still fails: what is left of a seed's world when every part that does not matter is taken away."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import hypothesis
from hypothesis import strategies

from tests.simulation.engine.simulation import Judged, simulate

#: Plays a seed with some of its parts; what is shrunk is what this finds wrong.
Playing = Callable[[int, frozenset[str] | None], Judged]
#: Nothing is explained, for that would trace every line of every world.
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
        return f"{self.judged}\nwith {len(self.judged.parts)} of {self.of} parts and {self.judged.operations} operations:\n{parts}"


def _play(seed: int, only: frozenset[str] | None) -> Judged:
    return simulate(seed, only=only)


def shrink(seed: int, playing: Playing = _play) -> Smallest:
    """Look for the smallest part of a seed's world that still fails, by hypothesis; a seed that does not fail comes back whole.

    A part is a kind of fault, what somebody does in a burst of work, or a fault that happens in it.
    """
    playing = functools.cache(playing)
    judged = playing(seed, None)
    of = len(judged.parts)
    while judged.violations and (smaller := _smaller(seed, judged, playing)):
        judged = smaller
    return Smallest(judged, of)


def _smaller(seed: int, judged: Judged, playing: Playing) -> Judged | None:
    """A world of some of these parts that fails too, first of few, then of more of them; None if there seems to be none."""
    parts = list(judged.parts)
    for least in sorted({0, len(parts) // 2, len(parts) * 3 // 4, len(parts) - 2, len(parts) - 1}):
        if 0 <= least < len(parts) and (found := _found(seed, parts, least, playing=playing)):
            return found
    return None


def _found(seed: int, parts: list[str], least: int, *, playing: Playing) -> Judged | None:
    """The smallest failing world that hypothesis finds among those with at least so many of these parts, but not all."""
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
