"""The execution of one delivery: find its handler, run it, decide the outcome, settle, log.

The thread that removes an execution from those under way decides its outcome: the handler thread, or the supervisor
when it gives up waiting. So each has exactly one outcome, and a later result is only logged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from astyqueue import errors
from astyqueue.dispatch.backlog_size import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.handlers import TASK, Handler, HandlerRegistry, refuse_unfinished
from astyqueue.dispatch.worker_log import DeliveryLog
from astyqueue.durations import as_microseconds, instant_of
from astyqueue.errors import AlreadySettled
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import State, Timer
from astyqueue.protocol.settling.outcomes import ACK, Outcome, Reject, Release
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import duration_setting_text, length_text, one_line, reason_of
from astyqueue.units import SECOND, MonotonicUs

#: A message of an unknown task is parked for as long as it has been due, within these bounds: by then a newer worker
#: may take it.
PARKED_AT_LEAST: Final = 60 * SECOND
PARKED_AT_MOST: Final = 3_600 * SECOND
#: Parking costs no attempt until the message has been due for this long: by then a deployment has replaced all workers.
PARKED_FREE: Final = 7 * 24 * 3_600 * SECOND
#: A message whose lease expires before a handler is free is hidden for this pause (seconds), doubled each time; after
#: `_FREE` times that costs an attempt. At most `_REMEMBERED` messages are counted for that.
_FIRST_PAUSE: Final = 0.1
_FREE: Final = 5
_REMEMBERED: Final = 1_000

DeliveryOutcome = tuple[Delivery, Outcome]


class OutcomePolicy:
    """Decides the outcome of a message from the error that its handler raised, under the retry policy of its queue."""

    def __init__(self, queue: MessageQueue) -> None:
        """The queue's backoff and number of attempts are read when an attempt ends."""
        self._terms = queue.terms
        self._now = queue.clock.now

    def judge(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Outcome:
        """A retry, a snooze or a dead letter; `allowed` attempts override the message's and the queue's."""
        try:
            return self._of(delivery, error, allowed)
        except Exception as wrong:  # noqa: BLE001 - the handler's request is invalid: a failed attempt
            return self.failed(delivery, wrong, allowed)

    def failed(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Outcome:
        """A failed attempt; a `Retry`, `Reject` or `Snooze` in `error` is not followed."""
        return self._terms.failed(delivery, reason_of(error), allowed=allowed)

    def _of(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Outcome:
        match error:
            case errors.Retry(after=after):
                pause = None if after is None else as_microseconds(after)
                return self._terms.failed(delivery, reason_of(error), pause=pause, allowed=allowed)
            case errors.Reject(reason=reason):
                return Reject("rejected", one_line(reason), delivery.attempt)
            case errors.Snooze(until=until):
                due = instant_of(until) if isinstance(until, datetime) else self._now() + as_microseconds(until)
                return Release(due, delivery.attempt - 1, State.SNOOZED)
        return self.failed(delivery, error, allowed)

    def parked(self, delivery: Delivery, pause: int, *, free: bool) -> Outcome:
        """Park a message of an unknown task for `pause` microseconds; unless `free`, as a failed attempt."""
        parked = Release(self._now() + pause, delivery.attempt - 1, State.PARKED)
        if free:
            return parked
        task = delivery.headers.get(TASK)
        reason = f"no worker that claimed it in {length_text(self._now() - delivery.due_us)} knows task {task!r}"
        outcome = self._terms.failed(delivery, one_line(reason), pause=pause)
        return outcome if isinstance(outcome, Reject) else parked._replace(spent=delivery.attempt)


class Execution:
    """A delivery and its handler, when it `began` (wall clock) and its `deadline` (monotonic).

    `current` is the delivery whose receipt counts. It differs from the handler's when the lease expired meanwhile (the
    store was unavailable, say) and this process claimed the message again. `where` is its row and id; `counted`: the
    quota counts it.
    """

    __slots__ = ("began", "counted", "current", "deadline", "delivery", "handler", "where")

    def __init__(self, delivery: Delivery, began: int) -> None:
        """A begun execution; its handler is found next."""
        self.delivery = self.current = delivery
        self.where = (delivery.row, delivery.id)
        self.began = began
        self.counted = False
        self.handler: Handler | None = None
        self.deadline: MonotonicUs | None = None


class HandlerExecutions:
    """The executions under way in one subscription."""

    def __init__(
        self, queue: MessageQueue, roster: HandlerRegistry, pace: AdaptivePrefetch, quota: MessageQuota
    ) -> None:
        """Start without executions."""
        self._quota = quota
        self.verdicts = DeliveryLog(queue.name, queue.clock)
        #: Called with the deadline of each execution that has one.
        self.on_deadline: Callable[[MonotonicUs], None] = _ignore
        #: Called, once no execution may begin any more, when the outcome of one that has ended is handed in.
        self.on_concluded: Callable[[], None] = _ignore
        self._queue = queue
        self._find = roster.find
        self._took = pace.took
        self._judge = OutcomePolicy(queue)
        self._clock = queue.clock
        self._now = queue.clock.now
        self._settle_later = queue.core.claimer.settle_later
        self._lock = threading.Lock()
        self._running: dict[tuple[str, Id], Execution] = {}
        self._given_up: set[Execution] = set()
        self._concluding: set[Execution] = set()
        self._postponed: dict[tuple[str, Id], int] = {}
        self._last_due: tuple[Timer | None, int] = (None, 0)
        self._over = False

    def carry_out(self, delivery: Delivery) -> None:
        """Handle one delivery. Any error counts as its failed attempt, and is not raised."""
        execution = self._begin(delivery)
        if execution is None:
            return
        try:
            self._carry_out(execution)
        except BaseException as error:  # noqa: BLE001 - as what a handler raises
            self._end(execution)
            self._fail(execution, error)
        finally:
            self._concluding.discard(execution)
            if self._over:
                self.on_concluded()
            if execution.counted:
                self._count_out(execution)

    def _count_out(self, execution: Execution) -> None:
        """Report to the quota, once, that an execution it counts has ended or was given up."""
        with self._lock:
            counted, execution.counted = execution.counted, False
        if counted:
            self._quota.end()

    def _begin(self, delivery: Delivery) -> Execution | None:
        """A new execution; None if this process is handling the message already, which this delivery then settles."""
        execution = Execution(delivery, self._now())
        if self._running.setdefault(execution.where, execution) is execution:
            return execution
        with self._lock:  # the other one may end at this moment
            if (under_way := self._running.setdefault(execution.where, execution)) is execution:
                return execution
            under_way.current = delivery
            delivery.renew_until = under_way.delivery.renew_until
        self.verdicts.again(delivery)
        return None

    def _end(self, execution: Execution) -> bool:
        """Remove an execution from those under way, to hand in its outcome; returns False if it was given up before."""
        with self._lock:
            if self._running.get(execution.where) is not execution:
                self._given_up.discard(execution)
                return False
            del self._running[execution.where]
            self._concluding.add(execution)
            return True

    def _carry_out(self, execution: Execution) -> None:
        delivery = execution.delivery
        handler = self._resolve(execution)
        if handler is None:
            self._end(execution)
            if execution.current is not delivery:  # it was handed out again meanwhile; that delivery is not settled yet
                self.carry_out(execution.current)
            return
        error = perform(handler, delivery)
        if self._end(execution):
            self._conclude(execution, handler, error)
        else:
            self.verdicts.late(delivery, handler, error)

    def _fail(self, execution: Execution, error: BaseException) -> None:
        """Count a failed attempt after an error outside the handler."""
        delivery, handler = execution.current, execution.handler
        self.verdicts.mishap(delivery, error)
        if not delivery.decided:
            delivery.error = error
            self.hand_in(delivery, self._judge.failed(delivery, error, handler.max_attempts if handler else None))

    @property
    def given_up(self) -> int:
        """How many handlers still run past their timeout."""
        return len(self._given_up)

    @property
    def concluding(self) -> bool:
        """Whether a handler has ended and its thread has yet to hand in the outcome."""
        return bool(self._concluding)

    @property
    def stuck(self) -> list[Execution]:
        """The executions whose handlers still run past their timeout, oldest first."""
        with self._lock:
            return sorted(self._given_up, key=lambda execution: execution.began)

    def _resolve(self, execution: Execution) -> Handler | None:
        """The handler of a delivery; None if it was parked for want of one, or given back because it may not begin."""
        delivery = execution.delivery
        if not self._worth_beginning(delivery, execution.began):
            return None
        handler = execution.handler = self._find(delivery)
        if handler is None:
            self._park(delivery)
            return None
        if self._quota.limited:
            if not self._quota.begin():
                self._queue.core.claimer.give_back(delivery)
                return None
            execution.counted = True
        self._postponed.pop(execution.where, None)
        delivery.began = execution.began
        if handler.timeout is not None:
            self._limit(execution, handler.timeout)
        if self.verdicts.starts:
            self.verdicts.started(delivery, handler, execution.began)
        return handler

    def _worth_beginning(self, delivery: Delivery, now: int) -> bool:
        """Whether its lease is current after the wait, and the dispatcher is not being stopped; else release it."""
        lease = delivery.lease
        if not self._over and (lease is None or (self._due(lease.timer) > now and not delivery.settled)):
            return True
        if not delivery.settled:
            self.verdicts.not_begun(delivery)
            self.hand_in(
                delivery, self._queue.terms.release(delivery, None) if self._over else self._postpone(delivery)
            )
        return False

    def _postpone(self, delivery: Delivery) -> Outcome:
        """Release a delivery whose lease expired unused: later each time, and after five as a failed attempt."""
        where = (delivery.row, delivery.id)
        if len(self._postponed) >= _REMEMBERED:
            self._postponed.clear()
        times = self._postponed[where] = self._postponed.get(where, 0) + 1
        if times > _FREE:
            reason = f"its lease expired before a handler was free, {times} times; give a longer one, or more threads"
            return self._queue.terms.failed(delivery, reason)
        return self._queue.terms.release(delivery, _FIRST_PAUSE * 2 ** (times - 1))

    def _due(self, timer: Timer) -> int:
        """When a timer is due; the last answer is cached, because deliveries claimed together share a timer."""
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
        """Decide the outcome, settle and log; an outcome that the handler settled itself is kept."""
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
        if error is not None:
            self.verdicts.failed(delivery, handler, (outcome, error), took=took)
        elif self.verdicts.loud:
            self.verdicts.done(delivery, handler, began=execution.began, took=took)

    def _park(self, delivery: Delivery) -> None:
        waited = self._now() - delivery.due_us
        pause = max(PARKED_AT_LEAST, min(PARKED_AT_MOST, waited))
        self.verdicts.unknown(delivery, pause)
        if not delivery.decided:
            self.hand_in(delivery, self._judge.parked(delivery, pause, free=waited < PARKED_FREE))

    def hand_in(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle with the next commit. If a hook refuses, the lease is no longer renewed and expires."""
        try:
            self._settle_later(delivery, outcome)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything, and this thread goes on
            if isinstance(error, AlreadySettled) and delivery.decided:  # another thread settled it first
                return
            delivery.renew_until = self._now()
            self.verdicts.refused(delivery, error)

    def next_deadline(self) -> MonotonicUs | None:
        """The earliest deadline of the executions under way (monotonic); None without one."""
        return min((one.deadline for one in self.under_way() if one.deadline is not None), default=None)

    def under_way(self) -> list[Execution]:
        """Those whose handlers run and may still decide the outcome."""
        with self._lock:
            return list(self._running.values())

    def overdue(self) -> list[DeliveryOutcome]:
        """Give up the executions past their deadline; returns them with their failed outcomes."""
        now = self._clock.monotonic()
        late = [one for one in self.under_way() if one.deadline is not None and one.deadline <= now]
        stalled = [self._stall(execution) for execution in late if self._give_up(execution)]
        for execution in late:
            self._count_out(execution)
        return stalled

    def _give_up(self, execution: Execution) -> bool:
        """Move an execution from those under way to those given up; False if it just ended."""
        with self._lock:
            if self._running.get(execution.where) is not execution:
                return False
            del self._running[execution.where]
            self._given_up.add(execution)
            return True

    def _stall(self, execution: Execution) -> DeliveryOutcome:
        handler, delivery = execution.handler, execution.current
        timeout, allowed = (handler.timeout, handler.max_attempts) if handler else (None, None)
        error = TimeoutError(f"no outcome within {duration_setting_text(timeout or 0)}")
        delivery.error = error
        outcome = self._judge.judge(delivery, error, allowed)
        self.verdicts.stalled(delivery, handler, (outcome, error))
        return delivery, outcome

    def abandon(self) -> list[DeliveryOutcome]:
        """Give up all executions and begin no more; returns them with a release that costs no attempt."""
        self._over = True
        left = [execution for execution in self.under_way() if self._give_up(execution)]
        for execution in left:
            self.verdicts.abandoned(execution.delivery, execution.handler)
        return [(execution.current, self._queue.terms.release(execution.current, None)) for execution in left]


def perform(handler: Handler, delivery: Delivery) -> BaseException | None:
    """Run the handler and return the error it raised, if any. A result that must be awaited or iterated is an error."""
    try:
        result = handler.call(delivery)
        if result is not None:
            refuse_unfinished(result)
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: the thread goes on
        return error
    return None


def _ignore(*_: object) -> None:
    """The default of callbacks, before the dispatcher has started."""
