"""One delivery on its way through: resolve, perform, judge, settle, tell.

An execution belongs to whoever takes it out of those under way: the thread that performed it, or the one that gives up
waiting for it. So each has exactly one outcome, and what comes of it later is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.dispatch.handlers import Handler, Roster, unfinished
from astyqueue.dispatch.judging import Judge
from astyqueue.dispatch.pace import Pace
from astyqueue.dispatch.telling import in_words
from astyqueue.dispatch.verdicts import Verdicts
from astyqueue.errors import AlreadySettled
from astyqueue.protocol.columns import Timer
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.queue import MessageQueue

#: A message whose task nobody here knows is looked at again after so long: a newer worker may know it by then, or be one.
UNKNOWN_FOR: Final = 60 * SECOND

Outcome = tuple[Delivery, Settling]


class Execution:
    """A delivery and who handles it, since when (wall clock), and until when at most (monotonic)."""

    __slots__ = ("began", "deadline", "delivery", "handler")

    def __init__(self, delivery: Delivery, began: int) -> None:
        """It has begun; who handles it is found out next."""
        self.delivery = delivery
        self.began = began
        self.handler: Handler | None = None
        self.deadline: int | None = None


class Executions:
    """What is under way in one subscription."""

    def __init__(self, queue: MessageQueue, roster: Roster, pace: Pace) -> None:
        """Nothing is, yet."""
        self.verdicts = Verdicts(queue.name, queue.clock.now)
        #: Called with the deadline of each execution that has one.
        self.on_deadline: Callable[[int], None] = _nobody
        self._queue = queue
        self._find = roster.find
        self._took = pace.took
        self._judge = Judge(queue)
        self._clock = queue.clock
        self._now = queue.clock.now
        self._settle_later = queue.core.claimer.settle_later
        self._running: dict[Execution, bool] = {}
        self._given_up: set[Execution] = set()
        self._last_due: tuple[Timer | None, int] = (None, 0)
        self._over = False

    def carry_out(self, delivery: Delivery) -> None:
        """Handle one delivery. Whatever is raised on the way is its failed attempt, and never reaches the thread."""
        execution = Execution(delivery, self._now())
        self._running[execution] = True
        try:
            self._carry_out(execution)
        except BaseException as error:  # noqa: BLE001 - as what a handler raises
            self._running.pop(execution, None)
            self._given_up.discard(execution)
            self._fail(execution, error)

    def _carry_out(self, execution: Execution) -> None:
        delivery = execution.delivery
        handler = self._resolve(execution)
        if handler is None:
            self._running.pop(execution, None)
            return
        error = perform(handler, delivery)
        if self._running.pop(execution, False):
            self._conclude(execution, handler, error)
        else:
            self._given_up.discard(execution)
            self.verdicts.late(delivery, handler, error)

    def _fail(self, execution: Execution, error: BaseException) -> None:
        """Count a failed attempt, because something went wrong beside the handler."""
        delivery, handler = execution.delivery, execution.handler
        self.verdicts.mishap(delivery, error)
        if not delivery.decided:
            delivery.error = error
            self.hand_in(delivery, self._judge.failed(delivery, error, handler.max_attempts if handler else None))

    @property
    def given_up(self) -> int:
        """How many handlers still run although their time is over."""
        return len(self._given_up)

    def _resolve(self, execution: Execution) -> Handler | None:
        """Who handles a delivery; None if nobody does, or it is not to be begun any more, and then it is given back."""
        delivery = execution.delivery
        if not self._worth_beginning(delivery, execution.began):
            return None
        handler = execution.handler = self._find(delivery)
        if handler is None:
            self._park(delivery)
            return None
        delivery.began = execution.began
        if handler.timeout is not None:
            self._limit(execution, handler.timeout)
        if self.verdicts.loud:
            self.verdicts.started(delivery, handler, execution.began)
        return handler

    def _worth_beginning(self, delivery: Delivery, now: int) -> bool:
        """Whether its lease still holds after the wait, and the time to drain is not over."""
        hold = delivery.hold
        if not self._over and (hold is None or (self._due(hold.timer) > now and not delivery.settled)):
            return True
        if not delivery.settled:
            self.verdicts.not_begun(delivery)
            self.hand_in(delivery, self._queue.terms.release(delivery, None))
        return False

    def _due(self, timer: Timer) -> int:
        """When a timer is due; the last answer is kept, for deliveries that were claimed together share one."""
        known, due = self._last_due
        if known is not timer:
            due = timer.due
            self._last_due = (timer, due)
        return due

    def _limit(self, execution: Execution, timeout: int) -> None:
        execution.delivery.renew_until = execution.began + timeout
        execution.deadline = deadline = self._clock.monotonic() + timeout
        self.on_deadline(deadline)

    def _conclude(self, execution: Execution, handler: Handler, error: BaseException | None) -> None:
        """Judge, settle and tell; what the handler settled itself is left as it is."""
        delivery = execution.delivery
        took = max(0, self._now() - execution.began)
        self._took(took)
        if delivery.decided:
            self.verdicts.settled_by_hand(delivery, handler, error)
            return
        delivery.error = error
        outcome = ACK if error is None else self._judge.judge(delivery, error, handler.max_attempts)
        self.hand_in(delivery, outcome)
        if error is not None or self.verdicts.loud:
            self.verdicts.concluded(delivery, handler, (outcome, error), took=took)

    def _park(self, delivery: Delivery) -> None:
        self.verdicts.unknown(delivery)
        if not delivery.settled:
            self.hand_in(delivery, self._judge.parked(delivery, UNKNOWN_FOR))

    def hand_in(self, delivery: Delivery, outcome: Settling) -> None:
        """Settle with the next commit. If a hook refuses, the message is let go: its lease runs out."""
        try:
            self._settle_later(delivery, outcome)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything, and this thread goes on
            if isinstance(error, AlreadySettled) and delivery.decided:  # by another thread that has it; the first outcome stands
                return
            delivery.renew_until = self._now()
            self.verdicts.refused(delivery, error)

    def next_deadline(self) -> int | None:
        """When the next execution under way has had its time (monotonic)."""
        deadlines = [execution.deadline for execution in tuple(self._running) if execution.deadline is not None]
        return min(deadlines, default=None)

    def overdue(self) -> list[Outcome]:
        """Give up those that have had their time; the attempt has failed."""
        now = self._clock.monotonic()
        late = [execution for execution in tuple(self._running) if execution.deadline is not None and execution.deadline <= now]
        return [self._stall(execution) for execution in late if self._give_up(execution)]

    def _give_up(self, execution: Execution) -> bool:
        """Take an execution out of those under way, unless it ended just now."""
        self._given_up.add(execution)
        if self._running.pop(execution, False):
            return True
        self._given_up.discard(execution)
        return False

    def _stall(self, execution: Execution) -> Outcome:
        handler, delivery = execution.handler, execution.delivery
        timeout, allowed = (handler.timeout, handler.max_attempts) if handler else (None, None)
        error = TimeoutError(f"no outcome within {in_words(timeout or 0)}")
        delivery.error = error
        self.verdicts.stalled(delivery, handler, error)
        return delivery, self._judge.judge(delivery, error, allowed)

    def abandon(self) -> list[Outcome]:
        """Give up everything under way, and begin nothing more; the messages are given back at no cost of an attempt."""
        self._over = True
        left = [execution for execution in tuple(self._running) if self._give_up(execution)]
        for execution in left:
            self.verdicts.abandoned(execution.delivery, execution.handler)
        return [(execution.delivery, self._queue.terms.release(execution.delivery, None)) for execution in left]


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
