"""One delivery on its way through: resolve, perform, judge, settle, tell.

An execution belongs to whoever takes it out of those under way: the thread that performed it, or the one that gives up
waiting for it. So each has exactly one outcome, and what comes of it later is logged and changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.dispatch.handlers import Handler, Roster, refuse_unfinished
from astyqueue.dispatch.judging import Judge
from astyqueue.dispatch.pace import Pace, Quota
from astyqueue.dispatch.telling import in_words
from astyqueue.dispatch.verdicts import Verdicts
from astyqueue.errors import AlreadySettled
from astyqueue.ids import Id
from astyqueue.protocol.columns import Timer
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.queue import MessageQueue

#: A message whose task nobody here knows is tried again after as long as it has been due, within these bounds: a newer worker may
#: know it by then, or be one.
PARKED_AT_LEAST: Final = 60 * SECOND
PARKED_AT_MOST: Final = 3_600 * SECOND
#: It costs no attempt until it has been due so long: by then every worker of a deployment is the new one.
PARKED_FREE: Final = 7 * 24 * 3_600 * SECOND
#: A message whose lease runs out before a handler is free goes back after this pause (seconds), doubled each time; after so many
#: times that costs an attempt. As many messages are remembered for that.
_FIRST_PAUSE: Final = 0.1
_FREE: Final = 5
_REMEMBERED: Final = 1_000

Outcome = tuple[Delivery, Settling]


class Execution:
    """A delivery and its handler, since when (wall clock), and until when at most (monotonic).

    `current` is the delivery whose receipt counts: another one than the handler's when the lease ran out meanwhile (the store
    was away, say) and this process was handed the message again.
    """

    __slots__ = ("began", "counted", "current", "deadline", "delivery", "handler")

    def __init__(self, delivery: Delivery, began: int) -> None:
        """It has begun; who handles it is found out next."""
        self.delivery = self.current = delivery
        self.began = began
        self.counted = False
        self.handler: Handler | None = None
        self.deadline: int | None = None


class Executions:
    """What is under way in one subscription."""

    def __init__(self, queue: MessageQueue, roster: Roster, pace: Pace, quota: Quota) -> None:
        """Nothing is, yet."""
        self._quota = quota
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
        self._lock = threading.Lock()
        self._running: dict[tuple[str, Id], Execution] = {}
        self._given_up: set[Execution] = set()
        self._postponed: dict[tuple[str, Id], int] = {}
        self._last_due: tuple[Timer | None, int] = (None, 0)
        self._over = False

    def carry_out(self, delivery: Delivery) -> None:
        """Handle one delivery. Whatever is raised on the way is its failed attempt, and never reaches the thread."""
        execution = self._begin(delivery)
        if execution is None:
            return
        try:
            self._carry_out(execution)
        except BaseException as error:  # noqa: BLE001 - as what a handler raises
            self._end(execution)
            self._fail(execution, error)
        finally:
            self._count_out(execution)

    def _count_out(self, execution: Execution) -> None:
        """Let the quota know, once, that an execution which it counts has ended or was given up."""
        with self._lock:
            counted, execution.counted = execution.counted, False
        if counted:
            self._quota.end()

    def _begin(self, delivery: Delivery) -> Execution | None:
        """A new execution; None if the message is being worked on here already, and then this delivery's receipt settles that."""
        where = (delivery.row, delivery.id)
        with self._lock:
            under_way = self._running.get(where)
            if under_way is None:
                execution = self._running[where] = Execution(delivery, self._now())
                return execution
            under_way.current = delivery
            delivery.renew_until = under_way.delivery.renew_until
        self.verdicts.again(delivery)
        return None

    def _end(self, execution: Execution) -> bool:
        """Take an execution out of those under way; whether it was: if not, its time was over and it was given up."""
        with self._lock:
            self._given_up.discard(execution)
            return self._take_out(execution)

    def _take_out(self, execution: Execution) -> bool:
        """Forget an execution that is under way; False if it is not. The caller holds the lock."""
        where = (execution.delivery.row, execution.delivery.id)
        if self._running.get(where) is not execution:
            return False
        del self._running[where]
        return True

    def _carry_out(self, execution: Execution) -> None:
        delivery = execution.delivery
        handler = self._resolve(execution)
        if handler is None:
            self._end(execution)
            if execution.current is not delivery:  # handed out again meanwhile, which nothing has settled yet
                self.carry_out(execution.current)
            return
        error = perform(handler, delivery)
        if self._end(execution):
            self._conclude(execution, handler, error)
        else:
            self.verdicts.late(delivery, handler, error)

    def _fail(self, execution: Execution, error: BaseException) -> None:
        """Count a failed attempt, because something went wrong beside the handler."""
        delivery, handler = execution.current, execution.handler
        self.verdicts.mishap(delivery, error)
        if not delivery.decided:
            delivery.error = error
            self.hand_in(delivery, self._judge.failed(delivery, error, handler.max_attempts if handler else None))

    @property
    def given_up(self) -> int:
        """How many handlers still run although their time is over."""
        return len(self._given_up)

    @property
    def stuck(self) -> list[Execution]:
        """Those whose time is over while their handlers still run, the longest first."""
        with self._lock:
            return sorted(self._given_up, key=lambda execution: execution.began)

    def _resolve(self, execution: Execution) -> Handler | None:
        """Who handles a delivery; None if nobody does, or it is not to be begun any more, and then it is given back."""
        delivery = execution.delivery
        if not self._worth_beginning(delivery, execution.began):
            return None
        handler = execution.handler = self._find(delivery)
        if handler is None:
            self._park(delivery)
            return None
        if not self._quota.begin():
            self._queue.core.claimer.give_back(delivery)
            return None
        execution.counted = True
        self._postponed.pop((delivery.row, delivery.id), None)
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
            self.hand_in(delivery, self._queue.terms.release(delivery, None) if self._over else self._postpone(delivery))
        return False

    def _postpone(self, delivery: Delivery) -> Settling:
        """Give back what was not begun before its lease ran out: later each time, and at the cost of an attempt when it goes on so."""
        where = (delivery.row, delivery.id)
        if len(self._postponed) >= _REMEMBERED:
            self._postponed.clear()
        times = self._postponed[where] = self._postponed.get(where, 0) + 1
        if times > _FREE:
            reason = f"no handler began with it within its lease, {times} times; give it a longer one, or its queue more threads"
            return self._queue.terms.failed(delivery, reason)
        return self._queue.terms.release(delivery, _FIRST_PAUSE * 2 ** (times - 1))

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
        took = max(0, self._now() - execution.began)
        self._took(took)
        delivery = execution.current
        lost = delivery is not execution.delivery and execution.delivery.settled == "lost"
        if execution.delivery.decided and not lost:
            self.verdicts.settled_by_hand(execution.delivery, handler, error)
            if not delivery.decided:
                self.hand_in(delivery, self._queue.terms.release(delivery, None))
            return
        delivery.error = error
        outcome = ACK if error is None else self._judge.judge(delivery, error, handler.max_attempts)
        self.hand_in(delivery, outcome)
        if error is not None or self.verdicts.loud:
            self.verdicts.concluded(delivery, handler, (outcome, error), took=took)

    def _park(self, delivery: Delivery) -> None:
        waited = self._now() - delivery.due_us
        pause = max(PARKED_AT_LEAST, min(PARKED_AT_MOST, waited))
        self.verdicts.unknown(delivery, pause)
        if not delivery.decided:
            self.hand_in(delivery, self._judge.parked(delivery, pause, free=waited < PARKED_FREE))

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
        return min((execution.deadline for execution in self._under_way() if execution.deadline is not None), default=None)

    def _under_way(self) -> list[Execution]:
        with self._lock:
            return list(self._running.values())

    def overdue(self) -> list[Outcome]:
        """Give up those that have had their time; the attempt has failed."""
        now = self._clock.monotonic()
        late = [execution for execution in self._under_way() if execution.deadline is not None and execution.deadline <= now]
        stalled = [self._stall(execution) for execution in late if self._give_up(execution)]
        for execution in late:
            self._count_out(execution)
        return stalled

    def _give_up(self, execution: Execution) -> bool:
        """Take an execution out of those under way, unless it ended just now."""
        with self._lock:
            if not self._take_out(execution):
                return False
            self._given_up.add(execution)
            return True

    def _stall(self, execution: Execution) -> Outcome:
        handler, delivery = execution.handler, execution.current
        timeout, allowed = (handler.timeout, handler.max_attempts) if handler else (None, None)
        error = TimeoutError(f"no outcome within {in_words(timeout or 0)}")
        delivery.error = error
        outcome = self._judge.judge(delivery, error, allowed)
        self.verdicts.stalled(delivery, handler, (outcome, error))
        return delivery, outcome

    def abandon(self) -> list[Outcome]:
        """Give up everything under way, and begin nothing more; the messages are given back at no cost of an attempt."""
        self._over = True
        left = [execution for execution in self._under_way() if self._give_up(execution)]
        for execution in left:
            self.verdicts.abandoned(execution.delivery, execution.handler)
        return [(execution.current, self._queue.terms.release(execution.current, None)) for execution in left]


def perform(handler: Handler, delivery: Delivery) -> BaseException | None:
    """Run the handler; what it raised, if it did. A result that is still to be awaited is an error too."""
    try:
        result = handler.call(delivery)
        if result is not None:
            refuse_unfinished(result)
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: the thread goes on
        return error
    return None


def _nobody(_: int) -> None:
    """Nobody wants to know of deadlines."""
