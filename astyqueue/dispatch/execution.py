"""One delivery on its way through: resolve, perform, judge, settle, tell.

An execution belongs to whoever takes it out of those under way: the thread that performed it, or the one that gives up
waiting for it. So each has exactly one outcome, and what comes of it later is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.dispatch.handlers import Handler, Roster, unfinished
from astyqueue.dispatch.judging import Judge, reason_of
from astyqueue.dispatch.pace import Pace
from astyqueue.dispatch.telling import in_words
from astyqueue.dispatch.verdicts import Verdicts
from astyqueue.protocol.settle import Settling
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.queue import MessageQueue

#: A message whose task nobody here knows is looked at again after so long: a newer worker may know it by then, or be one.
UNKNOWN_FOR: Final = 60 * SECOND

Outcome = tuple[Delivery, Settling]


class Execution:
    """A delivery and who handles it, since when (wall clock), and until when at most (monotonic)."""

    __slots__ = ("began", "deadline", "delivery", "handler")

    def __init__(self, delivery: Delivery, handler: Handler, began: int) -> None:
        """It has begun."""
        self.delivery = delivery
        self.handler = handler
        self.began = began
        self.deadline: int | None = None


class Executions:
    """What is under way in one subscription."""

    def __init__(self, queue: MessageQueue, roster: Roster, pace: Pace) -> None:
        """Nothing is, yet."""
        self.verdicts = Verdicts(queue.name)
        self.parked_for = UNKNOWN_FOR
        #: Called with the deadline of each execution that has one, and, while somebody waits for it, at the end of each.
        self.on_deadline: Callable[[int], None] = _nobody
        self.on_end: Callable[[], None] | None = None
        self._queue = queue
        self._find = roster.find
        self._took = pace.took
        self._judge = Judge(queue)
        self._clock = queue.clock
        self._now = queue.clock.now
        self._settle_later = queue.core.claimer.settle_later
        self._running: dict[Execution, bool] = {}

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._running)

    def carry_out(self, delivery: Delivery) -> None:
        """Handle one delivery, whatever happens: nothing is raised."""
        began = self._now()
        if not self._still_ours(delivery, began):
            return
        handler = self._find(delivery)
        if handler is None:
            self._park(delivery)
            return
        execution = Execution(delivery, handler, began)
        self._running[execution] = True
        if handler.timeout is not None:
            self._limit(execution, handler.timeout)
        if self.verdicts.loud:
            self.verdicts.started(delivery, handler, began)
        error = perform(handler, delivery)
        if self._running.pop(execution, False):
            self._conclude(execution, error)
        else:
            self.verdicts.late(delivery, handler, error)
        if self.on_end:
            self.on_end()

    def _still_ours(self, delivery: Delivery, now: int) -> bool:
        """Whether a delivery is worth beginning: its lease may have been lost while it waited."""
        hold = delivery.hold
        if hold is None:
            return True
        if delivery.settled:
            return False
        if hold.timer.due > now:
            return True
        self.verdicts.lapsed(delivery)
        self.hand_in(delivery, self._queue.terms.release(delivery, None))
        return False

    def _limit(self, execution: Execution, timeout: int) -> None:
        execution.delivery.renew_until = execution.began + timeout
        execution.deadline = deadline = self._clock.monotonic() + timeout
        self.on_deadline(deadline)

    def _conclude(self, execution: Execution, error: BaseException | None) -> None:
        """Judge, settle and tell; what the handler settled itself is left as it is."""
        delivery, handler = execution.delivery, execution.handler
        self._took(took := max(0, self._now() - execution.began))
        if delivery.settled:
            self.verdicts.settled_by_hand(delivery, handler, error)
            return
        outcome = self._judge.judge(delivery, error, handler.max_attempts)
        self.hand_in(delivery, outcome)
        if error is not None or self.verdicts.loud:
            self.verdicts.concluded(delivery, handler, (outcome, error), took=took)

    def _park(self, delivery: Delivery) -> None:
        self.verdicts.unknown(delivery, self._now())
        if not delivery.settled:
            self.hand_in(delivery, self._judge.parked(delivery, self.parked_for))

    def hand_in(self, delivery: Delivery, outcome: Settling) -> None:
        """Settle with the next commit. If a hook refuses, the message is let go: its lease runs out."""
        try:
            self._settle_later(delivery, outcome)
        except Exception as error:  # noqa: BLE001 - a hook may raise anything, and this thread goes on
            delivery.renew_until = self._now()
            self.verdicts.refused(delivery, error)

    def next_deadline(self) -> int | None:
        """When the next execution under way has had its time (monotonic)."""
        deadlines = [execution.deadline for execution in tuple(self._running) if execution.deadline is not None]
        return min(deadlines, default=None)

    def overdue(self) -> list[Outcome]:
        """Give up those that have had their time; the attempt has failed."""
        now = self._clock.monotonic()
        given_up: list[Outcome] = []
        for execution in tuple(self._running):
            if execution.deadline is None or execution.deadline > now or not self._running.pop(execution, False):
                continue
            delivery, handler = execution.delivery, execution.handler
            error = TimeoutError(f"no outcome within {in_words(handler.timeout or 0)}")
            given_up.append((delivery, self._judge.judge(delivery, error, handler.max_attempts)))
            self.verdicts.stalled(delivery, handler, reason_of(error))
        return given_up

    def abandon(self) -> list[Outcome]:
        """Give up everything under way; its messages are given back at no cost of an attempt."""
        given_up: list[Outcome] = []
        for execution in tuple(self._running):
            if self._running.pop(execution, False):
                delivery = execution.delivery
                given_up.append((delivery, self._queue.terms.release(delivery, None)))
                self.verdicts.abandoned(delivery, execution.handler)
        return given_up


def perform(handler: Handler, delivery: Delivery) -> BaseException | None:
    """Run the handler; what it raised, if it did. A result that is still to be awaited is an error too."""
    try:
        result = handler.call(delivery)
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: the thread goes on
        return error
    if result is None or not unfinished(result):
        return None
    if close := getattr(result, "close", None):
        close()
    return TypeError(f"the handler returned {type(result).__name__}, so nothing was done yet: await it inside, or go through it")


def _nobody(_: int) -> None:
    """Nobody wants to know of deadlines."""


