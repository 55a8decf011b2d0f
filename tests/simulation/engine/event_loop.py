"""Virtual time: the order of events. Nothing waits; the clock jumps to the next event."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from astyqueue.clock import CorrectedClock
from astyqueue.units import BEGINNING, MonotonicUs

#: 2026-01-01T00:00Z, where every simulation begins.
START: Final = 1_767_225_600_000_000
_FIRST_MONOTONIC: Final = BEGINNING + 1_000_000_000


#: A moment, the number of the event, and the call.
_Event = tuple[int, int, Callable[..., object], tuple[object, ...]]


class EventLoop:
    """All future events, in microseconds of true time; those of one moment in the order in which they were planned."""

    def __init__(self) -> None:
        """Nothing is planned."""
        self.now = START
        self._planned = 0
        self._recheck = False
        self._events: list[_Event] = []
        self._passed_over: list[int] = []

    def call_at(self, moment: int, event: Callable[..., object], *values: object) -> None:
        """Call this at a moment, or now if that has passed."""
        self._planned += 1
        heappush(self._events, (max(moment, self.now), self._planned, event, values))

    def call_later(self, delay: int, event: Callable[..., object], *values: object) -> None:
        """Call this after `delay` microseconds, zero or more."""
        self.plan(delay, event, values)

    def plan(self, delay: int, event: Callable[..., object], values: tuple[object, ...]) -> None:
        """As `call_later`, for values that are a tuple already."""
        self._planned = number = self._planned + 1
        heappush(self._events, (self.now + delay, number, event, values))

    def number(self) -> int:
        """The number of an event that is planned now; of the events of one moment the lowest comes first."""
        self._planned += 1
        return self._planned

    def call_in_order(self, moment: int, number: int, event: Callable[[], object]) -> None:
        """Call this at a moment that has not passed, as the event with this number."""
        heappush(self._events, (moment, number, event, ()))

    def pass_over(self, moment: int) -> None:
        """Note a moment at which nothing happens, because what was planned for it has become needless."""
        self._passed_over.append(moment)

    def run(self, until: Callable[[], bool], latest: int) -> None:
        """Let time pass up to the moment `latest`, until this condition holds, or until nothing is planned any more.

        The condition is checked at the beginning and after each call of `recheck`, not after each event.
        """
        events = self._events
        self._recheck = True
        while events and events[0][0] <= latest:
            if self._recheck and self._holds(until):
                return
            self.now, _, event, values = heappop(events)
            event(*values)
        self._end_of_run(until, latest)

    def _holds(self, until: Callable[[], bool]) -> bool:
        self._recheck = False
        return until()

    def _end_of_run(self, until: Callable[[], bool], latest: int) -> None:
        """Let time pass to the last deadline that was passed over: it would have been the last event of this run."""
        passed = self._passed_over
        passed.sort()
        count = bisect_right(passed, latest)
        if count and passed[count - 1] > self.now and not (self._recheck and self._holds(until)):
            self.now = passed[count - 1]
        del passed[: bisect_right(passed, self.now)]

    def recheck(self) -> None:
        """Let `run` check its condition, because something was finished."""
        self._recheck = True

    def advance_to(self, moment: int) -> None:
        """Advance to this moment; events that were planned before it happen on the way."""
        self.run(lambda: False, moment)
        self.now = max(self.now, moment)


class Awaited(Protocol):
    """What has to come before a deadline; `met`: it came, so that there is nothing to do when the time is up."""

    met: bool

    def time_is_up(self) -> None:
        """Do what has to be done if it did not come."""
        ...


class Deadlines:
    """Deadlines that are all set the same time ahead, so that they come in the order in which they are set.

    Most are met, and an event for each would cost as much as what meets it. So only the first has one.
    """

    def __init__(self, event_loop: EventLoop, ahead: int) -> None:
        """None is set; each is to be `ahead` microseconds after the moment at which it is set."""
        self._event_loop = event_loop
        self._ahead = ahead
        self._set: deque[tuple[int, int, Awaited]] = deque()

    def set(self, awaited: Awaited) -> None:
        """Set a deadline for this: unless it is met by then, its `time_is_up` is called."""
        event_loop = self._event_loop
        moment, number = event_loop.now + self._ahead, event_loop.number()
        if not self._set:
            event_loop.call_in_order(moment, number, self._pass)
        self._set.append((moment, number, awaited))

    def _pass(self) -> None:
        """The first deadline has come: plan the next one that is not met."""
        waiting, pass_over = self._set, self._event_loop.pass_over
        _, _, awaited = waiting.popleft()
        while waiting:
            moment, number, following = waiting[0]
            if not following.met:
                self._event_loop.call_in_order(moment, number, self._pass)
                break
            pass_over(moment)
            waiting.popleft()
        if not awaited.met:
            awaited.time_is_up()


class SkewedClock(CorrectedClock):
    """The clock of one machine: off by `skew` microseconds; a process may correct it by the store's time."""

    def __init__(self, event_loop: EventLoop, skew: int) -> None:
        """Shows true time plus `skew`, which may be changed at any moment: then the clock jumps."""
        super().__init__()
        self.skew = skew
        self._event_loop = event_loop
        self._last_stamp = 0

    def machine(self) -> int:
        """The time that the machine itself shows."""
        return self._event_loop.now + self.skew

    def now(self) -> int:
        """The time that the process takes for the store's."""
        return self._event_loop.now + self.skew + self.ahead

    def stamps(self, count: int) -> int:
        """The first of this number of write times of the process, each later than all before it: as by `Stamps`."""
        first = max(self.machine(), self._last_stamp + 1)
        self._last_stamp = first + count - 1
        return first

    @property
    def error(self) -> int:
        """How far the time that the process takes for the store's is from true time."""
        return self.skew + self.ahead

    def monotonic(self) -> MonotonicUs:
        """Microseconds that have passed, whatever the skew."""
        return _FIRST_MONOTONIC + (self._event_loop.now - START)

    def blocking_seconds(self, until: MonotonicUs) -> float | None:  # noqa: ARG002 - no simulated process ever blocks
        """Zero."""
        return 0
