"""What becomes of a message after an attempt: from what its handler raised."""

from __future__ import annotations

from datetime import datetime

from astyqueue import errors
from astyqueue.dispatch.handlers import TASK
from astyqueue.durations import as_microseconds
from astyqueue.instants import instant_of
from astyqueue.model.moments import told_length
from astyqueue.protocol.columns import State
from astyqueue.protocol.outcomes import Reject, Release, Settling
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.terms import one_line, reason_of


class Judge:
    """Works out outcomes under the terms of one queue."""

    def __init__(self, queue: MessageQueue) -> None:
        """Its backoff and number of attempts are those in force when an attempt ends."""
        self._terms = queue.terms
        self._now = queue.clock.now

    def judge(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Settling:
        """Again later, or a dead letter; `allowed` attempts, if its handler says so."""
        try:
            return self._of(delivery, error, allowed)
        except Exception as wrong:  # noqa: BLE001 - what the handler asked for makes no sense: that is a failed attempt
            return self.failed(delivery, wrong, allowed)

    def failed(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Settling:
        """A failed attempt, whatever the error asks for."""
        return self._terms.failed(delivery, reason_of(error), allowed=allowed)

    def _of(self, delivery: Delivery, error: BaseException, allowed: int | None) -> Settling:
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

    def parked(self, delivery: Delivery, pause: int, *, free: bool) -> Settling:
        """Set aside for a while; unless it is free, as a failed attempt."""
        parked = Release(self._now() + pause, delivery.attempt - 1, State.PARKED)
        if free:
            return parked
        task = delivery.headers.get(TASK)
        reason = f"no worker that had it in {told_length(self._now() - delivery.due_us)} knows task {task!r}"
        outcome = self._terms.failed(delivery, one_line(reason), pause=pause)
        return outcome if isinstance(outcome, Reject) else parked._replace(spent=delivery.attempt)
