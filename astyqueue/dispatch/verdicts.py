"""The log lines about single deliveries: what became of each, and what was odd about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.dispatch.handlers import TASK, Handler
from astyqueue.dispatch.telling import LOG, Lately, harmless, in_words, short, tell, tell_trace
from astyqueue.protocol.columns import State
from astyqueue.protocol.outcomes import Ack, Reject, Release, Settling
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.terms import reason_of

_MILLISECOND: Final = SECOND // 1_000


class Verdicts:
    """Tells of the deliveries of one queue. Bodies are never told: they may hold what is nobody's business."""

    def __init__(self, queue: str, now: Callable[[], int]) -> None:
        """Quiet, until `listen` finds that somebody wants to hear of each start and each success."""
        self.loud = False
        self._queue = queue
        self._now = now
        self._parked = Lately()

    def listen(self) -> None:
        """See whether anybody wants to hear of what goes well; asked once for many deliveries, not for each."""
        self.loud = LOG.isEnabledFor(logging.INFO)

    def _facts(self, delivery: Delivery, handler: Handler | None) -> dict[str, object]:
        task = delivery.headers.get(TASK) or (handler.name if handler else None)
        return {"task": short(task), "id": delivery.message_id, "attempt": delivery.attempt}

    @harmless
    def started(self, delivery: Delivery, handler: Handler, now: int) -> None:
        """A handler begins."""
        lag = (now - delivery.due_us) // _MILLISECOND
        tell(logging.INFO, "start", **self._facts(delivery, handler), lag_ms=lag)

    @harmless
    def concluded(self, delivery: Delivery, handler: Handler, result: tuple[Settling, BaseException | None], *, took: int) -> None:
        """A handler ended, and this is what becomes of the message."""
        outcome, error = result
        facts = {**self._facts(delivery, handler), "dur_ms": took // _MILLISECOND}
        if error is not None:
            facts["error"] = reason_of(error)
        if isinstance(outcome, Release):
            facts["in"] = in_words(max(0, outcome.due - self._now()))
        match outcome:
            case Ack():
                tell(logging.INFO, "done", **facts)
            case Release(state=State.SNOOZED):
                tell(logging.INFO, "snooze", **facts)
            case Release():
                tell(logging.WARNING, "retry", **facts)
            case Reject():
                tell(logging.ERROR, "dead", **facts)
        if error is not None:
            tell_trace(error, **self._facts(delivery, handler))

    @harmless
    def settled_by_hand(self, delivery: Delivery, handler: Handler, error: BaseException | None) -> None:
        """The outcome was settled before the handler ended, by itself or because it is handed out at most once."""
        facts = {**self._facts(delivery, handler), "outcome": delivery.settled or delivery.settling}
        if error is None:
            tell(logging.INFO, "done", **facts)
            return
        tell(logging.WARNING, "failed", **facts, error=reason_of(error))
        tell_trace(error, **facts)

    @harmless
    def late(self, delivery: Delivery, handler: Handler, error: BaseException | None) -> None:
        """A handler ended after it was given up; nothing comes of it."""
        facts = {**self._facts(delivery, handler), "outcome": delivery.settled or delivery.settling}
        if error is not None:
            facts["error"] = reason_of(error)
        tell(logging.WARNING, "late", **facts)

    @harmless
    def stalled(self, delivery: Delivery, handler: Handler | None, result: tuple[Settling, BaseException]) -> None:
        """A handler ran longer than it may. Its thread is lost until it ends; its message goes on without it, or is dead."""
        outcome, error = result
        facts = {**self._facts(delivery, handler), "error": reason_of(error)}
        tell(logging.WARNING, "stalled", **facts)
        if isinstance(outcome, Reject):
            tell(logging.ERROR, "dead", **facts)

    @harmless
    def stuck(self, delivery: Delivery, handler: Handler | None, *, lasts: int, threads: str, last: bool) -> None:
        """A handler still runs that was given up; with the last free thread gone, nothing more of the queue is handled here."""
        facts = {"queue": self._queue, **self._facts(delivery, handler), "for": in_words(lasts), "threads": threads}
        if last:
            facts["hint"] = "no thread is left for this queue: start the process anew, or have it end by itself with --max-stalled"
        tell(logging.ERROR if last else logging.WARNING, "stuck", **facts)

    @harmless
    def abandoned(self, delivery: Delivery, handler: Handler | None) -> None:
        """A handler still ran when the time to drain was over."""
        tell(logging.WARNING, "abandoned", **self._facts(delivery, handler))

    @harmless
    def dropped(self, delivery: Delivery) -> None:
        """A message that was handed out at most once was not begun: there is nowhere to give it back to."""
        tell(logging.WARNING, "dropped", **self._facts(delivery, None), outcome=delivery.settled)

    @harmless
    def not_begun(self, delivery: Delivery) -> None:
        """A lease ran out before its handler began, as when the process was suspended, or the time to drain did."""
        tell(logging.WARNING, "not begun", **self._facts(delivery, None))

    @harmless
    def again(self, delivery: Delivery) -> None:
        """A lease ran out while the handler ran, and the message came to this process again; it is not begun a second time."""
        tell(
            logging.WARNING, "again", **self._facts(delivery, None), hint="its handler still runs here; its outcome counts for this attempt"
        )

    @harmless
    def refused(self, delivery: Delivery, error: BaseException) -> None:
        """A hook refused an outcome, or failed over it."""
        tell(logging.ERROR, "refused", **self._facts(delivery, None), error=reason_of(error))
        tell_trace(error, **self._facts(delivery, None))

    @harmless
    def mishap(self, delivery: Delivery, error: BaseException) -> None:
        """Something was raised on the way to a handler or from it, by what the message holds or by a program's own code."""
        tell(logging.ERROR, "mishap", **self._facts(delivery, None), error=reason_of(error))
        tell_trace(error, **self._facts(delivery, None))

    @harmless
    def unknown(self, delivery: Delivery, pause: int) -> None:
        """Nobody here knows this task; said once a minute for each name, and of so many names."""
        task = delivery.headers.get(TASK)
        if not self._parked.may_say(task, self._now()):
            return
        hint = "no worker here has this task" if task else "it names no task (header task), and no handler takes such messages"
        if self._parked.full:
            hint += "; there are many such names, and no more of them are logged for a minute"
        tell(logging.WARNING, "parked", queue=self._queue, **self._facts(delivery, None), again_in=in_words(pause), hint=hint)
