"""Virtual time: the order of events. Nothing waits; the clock jumps to the next event."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from astyqueue.clock import CorrectedClock
from astyqueue.units import BEGINNING, MonotonicUs

#: 2026-01-01T00:00Z, where every simulation begins.
START: Final = 1_767_225_600_000_000
_FIRST_MONOTONIC: Final = BEGINNING + 1_000_000_000


class EventLoop:
    """All future events, in microseconds of true time; those of one moment in the order in which they were planned."""

    def __init__(self) -> None:
        """Nothing is planned."""
        self.now = START
        self._planned = 0
        self._recheck = False
        self._events: list[tuple[int, int, Callable[..., object], tuple[object, ...]]] = []

    def call_at(self, moment: int, event: Callable[..., object], *values: object) -> None:
        """Call this at a moment, or now if that has passed."""
        self._planned += 1
        heapq.heappush(self._events, (max(moment, self.now), self._planned, event, values))

    def call_later(self, delay: int, event: Callable[..., object], *values: object) -> None:
        """Call this after `delay` microseconds, zero or more."""
        self._planned += 1
        heapq.heappush(self._events, (self.now + delay, self._planned, event, values))

    def run(self, until: Callable[[], bool], latest: int) -> None:
        """Let time pass up to the moment `latest`, until this condition holds, or until nothing is planned any more.

        The condition is checked at the beginning and after each call of `recheck`, not after each event.
        """
        events, pop = self._events, heapq.heappop
        self._recheck = True
        while events and events[0][0] <= latest and not (self._recheck and self._holds(until)):
            self.now, _, event, values = pop(events)
            event(*values)

    def _holds(self, until: Callable[[], bool]) -> bool:
        self._recheck = False
        return until()

    def recheck(self) -> None:
        """Let `run` check its condition, because something was finished."""
        self._recheck = True

    def advance_to(self, moment: int) -> None:
        """Advance to this moment; events that were planned before it happen on the way."""
        self.run(lambda: False, moment)
        self.now = max(self.now, moment)


class SkewedClock(CorrectedClock):
    """The clock of one machine: off by `skew` microseconds; a process may correct it by the store's time."""

    def __init__(self, event_loop: EventLoop, skew: int) -> None:
        """Shows true time plus `skew`, which may be changed at any moment: then the clock jumps."""
        super().__init__()
        self.skew = skew
        self.rested = False
        self._event_loop = event_loop

    def machine(self) -> int:
        """The time that the machine itself shows."""
        return self._event_loop.now + self.skew

    def now(self) -> int:
        """The time that the process takes for the store's."""
        return self._event_loop.now + self.skew + self.ahead

    @property
    def error(self) -> int:
        """How far the time that the process takes for the store's is from true time."""
        return self.skew + self.ahead

    def monotonic(self) -> MonotonicUs:
        """Microseconds that have passed, whatever the skew."""
        return _FIRST_MONOTONIC + (self._event_loop.now - START)

    def blocking_seconds(self, until: MonotonicUs) -> float | None:  # noqa: ARG002 - no simulated process ever blocks
        """Zero, and a note that the caller would have blocked; it would not, had a signal come before."""
        self.rested = True
        return 0
