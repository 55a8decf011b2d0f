"""The executions that are under way in one queue of this process, and which thread decides the outcome of each.

The thread that removes an execution from those under way decides its outcome: the one in which it ends, or the
monitor when it gives up waiting. So each has exactly one outcome, and a later result is only logged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from astyqueue.clock import Clock
from astyqueue.dispatch.handlers.handler import Handler
from astyqueue.ids import Id
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import BargingLock

#: A coroutine that was cancelled, or a process that was killed, counts as stuck if it has not ended after this long.
_ENDS_WITHIN: Final = 5 * SECOND


class Execution:
    """A delivery and its handler, when it `began` (wall clock) and its `deadline` (monotonic).

    `current` is the delivery whose receipt counts. It differs from the handler's when the lease expired meanwhile (the
    store was unavailable, say) and this process claimed the message again. `where` is its row and id; `counted`: the
    quota counts it. `thread` is the identifier of the thread that began it. From `stuck_from` on (monotonic), one that
    was given up and still runs counts as stuck. `first_of_batch` is the first execution of its batch, whose handler
    runs for this one too.
    """

    __slots__ = (
        "began",
        "counted",
        "current",
        "deadline",
        "delivery",
        "first_of_batch",
        "handler",
        "stuck_from",
        "thread",
        "where",
    )

    def __init__(self, delivery: Delivery, began: int) -> None:
        """A begun execution; its handler is found next."""
        self.delivery = self.current = delivery
        self.where = (delivery.row, delivery.id)
        self.began = began
        self.thread = threading.get_ident()
        self.counted = False
        self.handler: Handler | None = None
        self.first_of_batch: Execution | None = None
        self.deadline: MonotonicUs | None = None
        self.stuck_from = BEGINNING

    @property
    def holds_slot(self) -> bool:
        """Whether its handler holds a thread of those that handlers share, which nothing but the handler can free."""
        return self.handler is None or (self.handler.interrupt is None and self.handler.batch is None)

    def lasts(self, now: MonotonicUs) -> int:
        """How long its handler has run so far (microseconds), found from its deadline: 0 if it has none."""
        if self.handler is None or self.handler.timeout is None or self.deadline is None:
            return 0
        return self.handler.timeout + (now - self.deadline)

    def interrupt(self) -> None:
        """End its handler if that is possible from outside: a coroutine, or a handler in a process of its own."""
        if self.handler is not None and self.handler.interrupt is not None:
            self.handler.interrupt(self.delivery)


class BegunExecution(Execution):
    """An execution whose handler was found."""

    __slots__ = ()

    handler: Handler


class Interrupted(Exception):
    """How a handler ended that was ended from outside, after its execution was given up."""


class Cancelled(Exception):
    """How a handler ended that something else cancelled: its messages go back, and cost no attempt."""


class ExecutionsUnderWay:
    """The executions that began and have not ended, and those of them that were given up. Safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        """No execution is under way."""
        self._clock = clock
        self._lock = BargingLock()
        self._running: dict[tuple[str, Id], Execution] = {}
        self._given_up: set[Execution] = set()
        self._concluding: set[Execution] = set()
        #: Whether any was given up so far, whatever became of its handler.
        self.abandoned = False
        #: The thread that decided the outcome of an execution calls this once it has handed that in.
        self.leave: Callable[[Execution], None] = self._concluding.discard

    def begin(self, delivery: Delivery, now: int) -> Execution | None:
        """A new execution; None if this process is handling the message already, which this delivery then settles."""
        execution = Execution(delivery, now)
        if self._running.setdefault(execution.where, execution) is execution:
            return execution
        with self._lock:  # the other one may end at this moment
            if (under_way := self._running.setdefault(execution.where, execution)) is execution:
                return execution
            under_way.current = delivery
            delivery.renew_until = under_way.delivery.renew_until
        return None

    def end(self, execution: Execution) -> bool:
        """Remove an execution from those under way, to hand in its outcome; returns False if it was given up before."""
        with self._lock:
            if self._running.get(execution.where) is not execution:
                self._given_up.discard(execution)
                return False
            del self._running[execution.where]
            self._concluding.add(execution)
            return True

    def give_up(self, execution: Execution) -> bool:
        """Move an execution from those under way to those given up; False if it just ended."""
        with self._lock:
            if self._running.get(execution.where) is not execution:
                return False
            del self._running[execution.where]
            self._given_up.add(execution)
            self.abandoned = True
            if not execution.holds_slot:
                execution.stuck_from = self._clock.monotonic() + _ENDS_WITHIN
            return True

    def all(self) -> list[Execution]:
        """Those that were not given up."""
        with self._lock:
            return list(self._running.values())

    def overdue(self) -> list[Execution]:
        """Those past their deadline."""
        now = self._clock.monotonic()
        return [one for one in self.all() if one.deadline is not None and one.deadline <= now]

    def next_deadline(self) -> MonotonicUs | None:
        """The next moment (monotonic) at which an execution is overdue, or one that was interrupted is stuck."""
        now = self._clock.monotonic()
        with self._lock:
            ending = [one.stuck_from for one in self._given_up if one.stuck_from > now]
        return min((*ending, *(one.deadline for one in self.all() if one.deadline is not None)), default=None)

    @property
    def count(self) -> int:
        """How many handlers run, those included that were given up."""
        with self._lock:
            return len(self._running) + len(self._given_up)

    @property
    def threads(self) -> set[int]:
        """The threads in which these, and those whose outcome is handed in, began."""
        with self._lock:
            return {one.thread for one in (*self._running.values(), *self._given_up, *tuple(self._concluding))}

    @property
    def given_up(self) -> bool:
        """Whether any that was given up has not ended."""
        return bool(self._given_up)

    @property
    def slots_held(self) -> int:
        """How many threads are held by handlers that still run past their timeout."""
        return sum(one.holds_slot for one in tuple(self._given_up))

    def is_given_up(self, execution: Execution) -> bool:
        """Whether this one was given up and has not ended."""
        return execution in self._given_up

    @property
    def concluding(self) -> bool:
        """Whether a handler has ended and its thread has yet to hand in the outcome."""
        return bool(self._concluding)

    @property
    def stuck(self) -> list[Execution]:
        """Those whose handlers still run past their timeout, oldest first; of a batch, the first.

        One that can be interrupted, or handles a batch, counts from 5 seconds after that.
        """
        now = self._clock.monotonic()
        with self._lock:
            stuck = [one for one in self._given_up if one.stuck_from <= now and one.first_of_batch is None]
        return sorted(stuck, key=lambda execution: execution.began)
