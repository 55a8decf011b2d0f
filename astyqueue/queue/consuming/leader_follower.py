"""Leadership among the threads and tasks of a process that use a queue: the first in line leads while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from astyqueue.clock import Clock
from astyqueue.errors import Closed
from astyqueue.protocol.steps import Steps
from astyqueue.queue.consuming.outcome_recorder import SettleTicket
from astyqueue.queue.hooks import HookNotifier
from astyqueue.units import MonotonicUs
from astyqueue.waiting import Rest, Wakeup


def closed_error(queue: str) -> Closed:
    """The error of a caller that uses a queue after it was closed."""
    return Closed(f"queue {queue!r} was closed here: connect again to use it")


#: Does the most urgent work, or rests on this wakeup until there is some, or until this monotonic moment.
Round = Callable[[Wakeup, MonotonicUs | None], Steps[None]]


class Leadership:
    """A line of threads and tasks. The first leads; the others rest until they are woken or become the first."""

    def __init__(self, clock: Clock, round_: Round, notifier: HookNotifier) -> None:
        """The leader carries out one `round_` after the other; a thread that leaves the line calls the hooks."""
        self._clock = clock
        self._round = round_
        self._notifier = notifier
        self._lock = threading.Lock()
        self._parties: list[Wakeup] = []
        self._closed: str | None = None

    def __repr__(self) -> str:
        """How many threads and tasks take part."""
        return f"<Leadership: {len(self._parties)} in line{', closed' if self._closed is not None else ''}>"

    def close(self, queue: str) -> None:
        """End leadership: all that take part, now or later, get Closed."""
        self._closed = queue
        self.wake()
        self.wake_others()

    def wake(self) -> None:
        """Wake the leader."""
        for leader in self._first():
            leader.set()

    def wake_others(self) -> None:
        """Wake all others, so that they check whether they have what they wait for."""
        with self._lock:
            others = self._parties[1:]
        for wakeup in others:
            wakeup.set()

    def passed(self, until: MonotonicUs | None) -> bool:
        """Whether this monotonic moment has come."""
        return until is not None and self._clock.monotonic() >= until

    def take_part(
        self, done: Callable[[], bool], me: Wakeup, *, until: MonotonicUs | None, undo: Callable[[], None] | None = None
    ) -> Steps[None]:
        """Lead while first in line and rest otherwise, until `done`; on error, call `undo` before another leads."""
        while True:
            try:
                yield from self._in_line(lambda: self._notifier.waiting or done(), me, until=until, undo=undo)
            finally:
                self._notifier.call()
            if done():
                return

    def _in_line(
        self, done: Callable[[], bool], me: Wakeup, *, until: MonotonicUs | None, undo: Callable[[], None] | None
    ) -> Steps[None]:
        try:
            with self._lock:
                self._parties.append(me)
            self.wake()
            while not done():
                yield from self._turn(me, until)
        except Exception:
            if undo:
                undo()
            raise
        finally:
            with self._lock:  # no other call comes before the removal: it might be interrupted
                if me in self._parties:  # or an interrupt came before it joined
                    self._parties.remove(me)
            self.wake()

    def _turn(self, me: Wakeup, until: MonotonicUs | None) -> Steps[None]:
        if self._closed is not None:
            raise closed_error(self._closed)
        if self._first() == (me,):
            yield from self._round(me, until)
        else:
            yield Rest(me, None if self.passed(until) else until)

    def _first(self) -> tuple[Wakeup, ...]:
        with self._lock:
            return tuple(self._parties[:1])


class Participants:
    """Threads and tasks that take part without receiving, for one purpose; an error of the work may end their waits."""

    def __init__(self, lead: Leadership, clock: Clock) -> None:
        """No thread and no task takes part yet."""
        self._lead = lead
        self._clock = clock
        self._tickets: list[SettleTicket] = []

    def __bool__(self) -> bool:
        """Whether any thread or task takes part."""
        return bool(self._tickets)

    def take_part(self, done: Callable[[], bool]) -> Steps[None]:
        """Take part until `done`, or until an error ends it, which is raised."""
        wakeup = Wakeup(self._clock)
        ticket = SettleTicket(1, wakeup=wakeup)
        try:
            self._tickets.append(ticket)
            yield from self._lead.take_part(lambda: ticket.over or done(), wakeup, until=None)
        finally:
            if ticket in self._tickets:  # or an interrupt came before it joined
                self._tickets.remove(ticket)
        if ticket.error is not None:
            raise ticket.error

    def fail(self, error: Exception) -> bool:
        """End all these waits with an error; False if there are none."""
        failing = tuple(self._tickets)  # other threads come and go
        for ticket in failing:
            ticket.fail(error)
        return bool(failing)
