"""Decides the outcome of a message from the error that its handler raised."""

from __future__ import annotations

from datetime import datetime

from astyqueue import errors
from astyqueue.dispatch.handlers import TASK
from astyqueue.durations import as_microseconds, instant_of
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.settling.outcomes import Outcome, Reject, Release
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.delivery.retry_policy import one_line, reason_of
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import length_text


class OutcomePolicy:
    """Decides outcomes under the retry policy of one queue."""

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
