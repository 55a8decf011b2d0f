"""Who leads among those of a process that take part in a queue: the first in line, as long as it waits for something."""

from __future__ import annotations

import threading
from collections.abc import Callable

from astyqueue.clock import Clock
from astyqueue.errors import Closed
from astyqueue.protocol.steps import Steps
from astyqueue.queue.telling import Telling
from astyqueue.wakeup import Rest, Wakeup


def was_closed(queue: str) -> Closed:
    """What there is to say to whoever uses a queue after it was closed."""
    return Closed(f"queue {queue!r} was closed here: connect again to use it")


#: Does the most urgent thing there is, or rests on this wakeup until there is one, or until this monotonic moment.
Round = Callable[[Wakeup, int | None], Steps[None]]


class Lead:
    """A line of parties. The first leads; the others rest until they are told, or come to the front."""

    def __init__(self, clock: Clock, round_: Round, telling: Telling) -> None:
        """Whoever leads carries out one `round_` after the other; who leaves the line tells the hooks what came of them."""
        self._clock = clock
        self._round = round_
        self._telling = telling
        self._lock = threading.Lock()
        self._parties: list[Wakeup] = []
        self._closed: str | None = None

    def close(self, queue: str) -> None:
        """Let nobody lead any more: whoever takes part gets Closed."""
        self._closed = queue
        self.wake()
        self.tell_others()

    def wake(self) -> None:
        """Have the leader look around."""
        for leader in self._first():
            leader.set()

    def tell_others(self) -> None:
        """Have all who follow see whether they have what they wait for."""
        with self._lock:
            others = self._parties[1:]
        for wakeup in others:
            wakeup.set()

    def passed(self, until: int | None) -> bool:
        """Whether this monotonic moment has come."""
        return until is not None and self._clock.monotonic() >= until

    def take_part(self, done: Callable[[], bool], me: Wakeup, *, until: int | None, undo: Callable[[], None] | None = None) -> Steps[None]:
        """Lead whenever nobody else does, and rest otherwise, until done; on an error `undo` is called before anybody else leads."""
        while True:
            try:
                yield from self._in_line(lambda: self._telling.waits or done(), me, until=until, undo=undo)
            finally:
                self._telling.tell()
            if done():
                return

    def _in_line(self, done: Callable[[], bool], me: Wakeup, *, until: int | None, undo: Callable[[], None] | None) -> Steps[None]:
        with self._lock:
            self._parties.append(me)
        self.wake()
        try:
            while not done():
                yield from self._turn(me, until)
        except Exception:
            if undo:
                undo()
            raise
        finally:
            with self._lock:
                self._parties.remove(me)
            self.wake()

    def _turn(self, me: Wakeup, until: int | None) -> Steps[None]:
        if self._closed is not None:
            raise was_closed(self._closed)
        if self._first() == (me,):
            yield from self._round(me, until)
        else:
            yield Rest(me, None if self.passed(until) else until)

    def _first(self) -> tuple[Wakeup, ...]:
        with self._lock:
            return tuple(self._parties[:1])
