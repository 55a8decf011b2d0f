"""The execution of one delivery: find its handler, run it, decide the outcome, settle, log.

An execution begins in one thread and may end in another: that of an event loop, say. `running_executions` lets one
thread decide its outcome: the one in which it ends, or the monitor when it gives up waiting.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Final

from astyqueue import errors
from astyqueue.dispatch.flow_control import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.handlers.handler import TASK, Kind, LineKey, perform
from astyqueue.dispatch.handlers.handler_registry import HandlerRegistry
from astyqueue.dispatch.running_executions import BegunExecution, Execution, ExecutionsUnderWay, Interrupted
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
#: A message whose handler was cancelled from outside is hidden for this time (seconds): its process is about to end.
_CANCELLED_PAUSE: Final = 1

DeliveryOutcome = tuple[Delivery, Outcome]


class OutcomePolicy:
    """Decides the outcome of a message from the error that its handler raised, under the retry policy of its queue."""

    def __init__(self, queue: MessageQueue) -> None:
        """The queue's backoff and number of attempts are read when an attempt ends."""
        self._retry_policy = queue.retry_policy
        self._now = queue.clock.now

    def judge(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Outcome:
        """A retry, a snooze or a dead letter; `allowed` attempts override the message's and the queue's."""
        try:
            return self._of(delivery, error, allowed)
        except Exception as wrong:  # noqa: BLE001 - the handler's request is invalid: a failed attempt
            return self.failed(delivery, wrong, allowed)

    def failed(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Outcome:
        """A failed attempt; a `Retry`, `Reject` or `Snooze` in `error` is not followed."""
        return self._retry_policy.failed(delivery, reason_of(error), allowed=allowed)

    def _of(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Outcome:
        match error:
            case errors.Retry(after=after):
                pause = None if after is None else as_microseconds(after)
                return self._retry_policy.failed(delivery, reason_of(error), pause=pause, allowed=allowed)
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
        outcome = self._retry_policy.failed(delivery, one_line(reason), pause=pause)
        return outcome if isinstance(outcome, Reject) else parked._replace(spent=delivery.attempt)


class UnusedLeases:
    """The leases of one queue that expire before a handler is free, and how often that happened to a message."""

    def __init__(self, queue: MessageQueue) -> None:
        """No lease has expired so far."""
        self._retry_policy = queue.retry_policy
        self._postponed: dict[tuple[str, Id], int] = {}
        self._last_due: tuple[Timer | None, int] = (None, 0)

    def due(self, timer: Timer) -> int:
        """When a lease ends; the last answer is cached, because deliveries claimed together share a timer."""
        known, due = self._last_due
        if known is not timer:
            due = timer.due
            self._last_due = (timer, due)
        return due

    def postpone(self, delivery: Delivery) -> Outcome:
        """Release a delivery whose lease expired unused: later each time, and after five as a failed attempt."""
        where = (delivery.row, delivery.id)
        if len(self._postponed) >= _REMEMBERED:
            self._postponed.clear()
        times = self._postponed[where] = self._postponed.get(where, 0) + 1
        if times > _FREE:
            reason = f"its lease expired before a handler was free, {times} times; set a longer lease, or add threads"
            return self._retry_policy.failed(delivery, reason)
        return self._retry_policy.release(delivery, _FIRST_PAUSE * 2 ** (times - 1))

    def forget_earlier(self, execution: Execution) -> None:
        """Forget how often leases of a message expired unused: its handler begins."""
        if self._postponed:
            self._postponed.pop(execution.where, None)


class HandlerExecutions:
    """The executions under way in one subscription."""

    def __init__(
        self, queue: MessageQueue, registry: HandlerRegistry, prefetch: AdaptivePrefetch, quota: MessageQuota
    ) -> None:
        """Start without executions."""
        self._quota = quota
        self.log = DeliveryLog(queue.clock)
        #: Called with the deadline of each execution that has one.
        self.on_deadline: Callable[[MonotonicUs], None] = lambda _: None
        #: Called, once no execution may begin any more, when the outcome of one that has ended is handed in.
        self.on_concluded: Callable[[], None] = lambda: None
        #: The stack of what runs the handler of an execution.
        self.stack_of: Callable[[Execution], str] = _no_stack
        #: Called when a handler has ended or does not begin, in a queue that limits how many run at the same time.
        self.on_ended: Callable[[Delivery], None] | None = None
        self._queue = queue
        self._retry_policy = queue.retry_policy
        self._registry = registry
        self._find = registry.find
        self._thread_took = prefetch.took
        #: What hears how long the handlers of the other lines took (microseconds).
        self.line_took: defaultdict[LineKey, Callable[[int], object]] = defaultdict(lambda: lambda _: None)
        self._policy = OutcomePolicy(queue)
        self._clock = queue.clock
        self._now = queue.clock.now
        self._settle_later = queue.core.claimer.settle_later
        self.under_way = under_way = ExecutionsUnderWay(queue.clock)
        self._end = under_way.end
        self._quota_lock = threading.Lock()
        self._unused = UnusedLeases(queue)
        self._over = False

    def carry_out(self, delivery: Delivery) -> None:
        """Handle one delivery in this thread. Any error counts as its failed attempt, and is not raised."""
        execution = self.begin(delivery)
        if execution is not None:
            self.end(execution, perform(execution.handler, delivery))

    def begin(self, delivery: Delivery) -> BegunExecution | None:
        """Find the handler of a delivery; None if it is not to run now, and what becomes of the message is settled.

        Any thread may run the handler and call `end`, once. It must be called: until then the lease is renewed.
        """
        execution = self.under_way.begin(delivery, self._now())
        if execution is None:
            self.log.again(delivery)
            return None
        try:
            if self._resolve(execution):
                return execution  # type: ignore[return-value]  # its handler was found; a cast would be a call
            self._end(execution)
            again = execution.current
        except BaseException as error:  # noqa: BLE001 - as what a handler raises
            self._end(execution)
            self._fail(execution, error)
            again = delivery
        self._leave(execution)
        # It may have been handed out again meanwhile; that delivery is not settled yet.
        return None if again is delivery else self.begin(again)

    def end(self, execution: BegunExecution, error: BaseException | None) -> None:
        """Decide the outcome of an execution that began, and settle: `error` is what its handler raised, if it did.

        If it was given up before, its outcome is decided, and the end is only logged.
        """
        try:
            if self._end(execution):
                self._conclude(execution, error)
            elif not isinstance(error, Interrupted):
                duration = max(0, self._now() - execution.began)
                self.log.late(execution.delivery, execution.handler, error, began=execution.began, took=duration)
        except BaseException as wrong:  # noqa: BLE001 - as what a handler raises
            self._fail(execution, wrong)
        finally:
            self._leave(execution)

    def give_back(self, execution: BegunExecution) -> None:
        """End an execution that was cancelled from outside: its message is released, and no attempt is counted."""
        if self._end(execution):
            self.log.cancelled(execution.delivery, execution.handler)
            if not execution.current.decided:
                self.hand_in(execution.current, self._retry_policy.release(execution.current, _CANCELLED_PAUSE))
        self._leave(execution)

    def _leave(self, execution: Execution) -> None:
        """Report, to the thread that waits for the last outcomes and to the quota, that one is handed in."""
        self.under_way.leave(execution)
        if self._over:
            self.on_concluded()
        if execution.counted:
            self._count_out(execution)
        if self.on_ended is not None:
            self.on_ended(execution.delivery)

    def _count_out(self, execution: Execution) -> None:
        """Report to the quota, once, that an execution it counts has ended or was given up."""
        with self._quota_lock:
            counted, execution.counted = execution.counted, False
        if counted:
            self._quota.end()

    def _fail(self, execution: Execution, error: BaseException) -> None:
        """Count a failed attempt after an error outside the handler."""
        delivery, handler = execution.current, execution.handler
        self.log.internal_error(delivery, error)
        if not delivery.decided:
            delivery.error = error
            self.hand_in(delivery, self._policy.failed(delivery, error, handler.max_attempts if handler else None))

    def _resolve(self, execution: Execution) -> bool:
        """Find the handler; False if the message was parked for want of one, or given back as it may not begin."""
        delivery = execution.delivery
        if not self._worth_beginning(delivery, execution.began):
            return False
        handler = execution.handler = self._find(delivery)
        if handler is None:
            self._park(delivery)
            return False
        if handler.kind is Kind.ASYNCIO and isinstance(
            delivery, Delivery
        ):  # its kind was not known when it was claimed
            self._registry.learn(delivery.headers.get(TASK), handler)
            self._queue.core.claimer.give_back(delivery)
            return False
        if self._quota.limited:
            execution.counted = self._quota.begin()
            if not execution.counted and delivery.lease is not None:  # else nothing can give it back
                self._queue.core.claimer.give_back(delivery)
                return False
        self._unused.forget_earlier(execution)
        delivery.began = execution.began
        if handler.timeout is not None:
            self._limit(execution, handler.timeout)
        if self.log.logs_start:
            self.log.started(delivery, handler, execution.began)
        return True

    def _worth_beginning(self, delivery: Delivery, now: int) -> bool:
        """Whether it has not expired, its lease is current after the wait, and the dispatcher is not being stopped.

        Else it becomes a dead letter, or is released.
        """
        lease = delivery.lease
        expired = self._retry_policy.expired(delivery)
        if expired is not None and (lease is None or not delivery.settled):
            self.log.expired(delivery)
            if lease is not None:
                self.hand_in(delivery, expired)
            return False
        if not self._over and (lease is None or (self._unused.due(lease.timer) > now and not delivery.settled)):
            return True
        if not delivery.settled:
            self.log.not_begun(delivery)
            over = self._over
            self.hand_in(
                delivery, self._retry_policy.release(delivery, None) if over else self._unused.postpone(delivery)
            )
        elif lease is None:  # delivered at most once: nothing can give it back
            self.log.dropped(delivery)
        return False

    def _limit(self, execution: Execution, timeout: int) -> None:
        execution.delivery.renew_until = execution.began + timeout
        execution.deadline = deadline = self._clock.monotonic() + timeout
        self.on_deadline(deadline)

    def _conclude(self, execution: BegunExecution, error: BaseException | None) -> None:
        """Decide the outcome, settle and log; an outcome that the handler settled itself is kept."""
        handler = execution.handler
        duration = max(0, self._now() - execution.began)
        (self._thread_took if handler.line is Kind.THREAD else self.line_took[handler.line])(duration)
        delivery = execution.current
        lost = delivery is not execution.delivery and execution.delivery.settled == "lost"
        if execution.delivery.decided and not lost:
            self.log.settled_by_hand(execution.delivery, handler, error, began=execution.began, took=duration)
            if not delivery.decided:
                self.hand_in(delivery, self._retry_policy.release(delivery, None))
            return
        if delivery is not execution.delivery:
            delivery.take_over(execution.delivery.follow_ups)
        delivery.error = error
        outcome = ACK if error is None else self._policy.judge(delivery, error, handler.max_attempts)
        self.hand_in(delivery, outcome)
        if error is not None:
            self.log.failed(delivery, handler, error, outcome=outcome, began=execution.began, took=duration)
        elif self.log.logs_done:
            self.log.done(delivery, handler, began=execution.began, took=duration)

    def _park(self, delivery: Delivery) -> None:
        if delivery.lease is None:  # delivered at most once: nothing can give it back
            self.log.dropped(delivery)
            return
        waited = self._now() - delivery.due_us
        pause = max(PARKED_AT_LEAST, min(PARKED_AT_MOST, waited))
        self.log.unknown(delivery, pause)
        if not delivery.decided:
            self.hand_in(delivery, self._policy.parked(delivery, pause, free=waited < PARKED_FREE))

    def hand_in(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle with the next commit. If a hook refuses, the lease is no longer renewed and expires."""
        try:
            self._settle_later(delivery, outcome)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything, and this thread goes on
            if isinstance(error, AlreadySettled) and delivery.decided:  # another thread settled it first
                return
            delivery.renew_until = self._now()
            self.log.refused(delivery, error)

    def overdue(self) -> list[DeliveryOutcome]:
        """Give up the executions past their deadline; returns them with their failed outcomes."""
        late = self.under_way.overdue()
        given_up = [execution for execution in late if self.under_way.give_up(execution)]
        timed_out = [self._time_out(execution) for execution in given_up]
        for execution in late:
            self._count_out(execution)
        for execution in given_up:
            execution.interrupt()
        return timed_out

    def _time_out(self, execution: Execution) -> DeliveryOutcome:
        handler, delivery = execution.handler, execution.current
        timeout, allowed = (handler.timeout, handler.max_attempts) if handler else (None, None)
        error = TimeoutError(f"no outcome within {duration_setting_text(timeout or 0)}")
        delivery.error = error
        outcome = self._policy.judge(delivery, error, allowed)
        duration = max(0, self._now() - execution.began)
        stack = self.stack_while_stuck(execution)
        self.log.timed_out(delivery, handler, error, outcome=outcome, began=execution.began, took=duration, stack=stack)
        return delivery, outcome

    def stack_while_stuck(self, execution: Execution) -> str:
        """Where the handler of an execution that was given up is now; empty if it has ended meanwhile."""
        stack = self.stack_of(execution)
        return stack if self.under_way.is_given_up(execution) else ""

    def abandon(self) -> list[DeliveryOutcome]:
        """Give up all executions and begin no more; returns them with a release that costs no attempt."""
        self._over = True
        left = [execution for execution in self.under_way.all() if self.under_way.give_up(execution)]
        for execution in left:
            self.log.abandoned(execution.delivery, execution.handler)
            execution.interrupt()
        return [(execution.current, self._retry_policy.release(execution.current, None)) for execution in left]


def _no_stack(_: Execution) -> str:
    """The default of `stack_of`."""
    return ""
