"""Virtual time: what happens when. Nothing waits, the next moment simply comes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from astyqueue.clock import CorrectedClock

#: 2026-01-01T00:00Z, where every simulation begins.
START: Final = 1_767_225_600_000_000
_FIRST_MONOTONIC: Final = 1_000_000_000


class Timeline:
    """All events to come, in microseconds of true time; those of one moment in the order in which they were planned."""

    def __init__(self) -> None:
        """Nothing is planned."""
        self.now = START
        self._planned = 0
        self._stirred = False
        self._events: list[tuple[int, int, Callable[..., object], tuple[object, ...]]] = []

    def at(self, moment: int, event: Callable[..., object], *values: object) -> None:
        """Have this called at a moment, or now if that has passed."""
        self._planned += 1
        heapq.heappush(self._events, (max(moment, self.now), self._planned, event, values))

    def after(self, delay: int, event: Callable[..., object], *values: object) -> None:
        """Have this called so many microseconds from now, zero or more."""
        self._planned += 1
        heapq.heappush(self._events, (self.now + delay, self._planned, event, values))

    def run(self, until: Callable[[], bool], latest: int) -> None:
        """Let time pass up to the moment `latest`, or until this holds, or until nothing is planned any more.

        It is asked whether it holds at the beginning, and whenever somebody stirred: not after each of so many events.
        """
        events, pop = self._events, heapq.heappop
        self._stirred = True
        while events and events[0][0] <= latest and not (self._stirred and self._holds(until)):
            self.now, _, event, values = pop(events)
            event(*values)

    def _holds(self, until: Callable[[], bool]) -> bool:
        self._stirred = False
        return until()

    def stir(self) -> None:
        """Have whoever lets time pass look whether that is enough: something is done."""
        self._stirred = True

    def pass_over(self, moment: int) -> None:
        """Go on to this moment; what was planned before it happens on the way."""
        self.run(lambda: False, moment)
        self.now = max(self.now, moment)


class SkewedClock(CorrectedClock):
    """The clock of one machine: off by `skew` microseconds, and corrected by the store's time if its owner does that."""

    def __init__(self, timeline: Timeline, skew: int) -> None:
        """Shows true time plus `skew`, which may be changed at any moment: then the clock jumps."""
        super().__init__()
        self.skew = skew
        self.rested = False
        self._timeline = timeline

    def machine(self) -> int:
        """What the machine itself shows."""
        return self._timeline.now + self.skew

    def now(self) -> int:
        """What the process takes for the store's time."""
        return self._timeline.now + self.skew + self.ahead

    @property
    def error(self) -> int:
        """How far what it takes for the store's time is from true time."""
        return self.skew + self.ahead

    def monotonic(self) -> int:
        """Microseconds that passed."""
        return self._timeline.now - START + _FIRST_MONOTONIC

    def blocking_seconds(self, until: int) -> float | None:  # noqa: ARG002 - nobody blocks here, whoever asks is told to come again
        """Zero, and a note that somebody would have blocked: that is how a rest is told from a signal that came before."""
        self.rested = True
        return 0
