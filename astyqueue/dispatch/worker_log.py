"""The log of a worker: one line per event, with the same facts as fields of the record.

Its logger is `astyqueue.worker`. At level INFO a message whose handler succeeds costs one line, `done`; at level DEBUG
`start` comes before it.
"""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import Final, NamedTuple

from astyqueue import structured_log
from astyqueue.clock import Clock, SystemClock
from astyqueue.dispatch.handlers.handler import TASK, Handler, Kind
from astyqueue.dispatch.stacks import traceback_text, without_middle
from astyqueue.errors import Reject as RejectError
from astyqueue.errors import Retry, Snooze
from astyqueue.log_throttle import MINUTE, RateLimitedLog
from astyqueue.printable import facts_line, indented
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.settling.outcomes import Outcome, Reject, Release
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.structured_log import log_safely
from astyqueue.text import length_text, reason_of
from astyqueue.units import SECOND

LOG: Final = logging.getLogger("astyqueue.worker")
#: The time after which an event is logged again.
REMIND: Final = MINUTE
#: The most queues or tasks named in a line.
_NAMED: Final = 20
#: The most characters of a name.
_NAME: Final = 200
_MILLISECOND: Final = SECOND // 1_000
#: Errors by which a handler chooses the outcome: they are logged without a traceback.
_CHOSEN: Final = (Retry, RejectError, Snooze)
#: The trace id in a W3C `traceparent` header.
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")
#: The most characters of the stacks of all threads.
_STACKS: Final = 200_000
#: Log lines have the time of this machine, as other programs' do, not the store's.
_CLOCK: Final = SystemClock()


def some(names: Iterable[str]) -> str:
    """The first of these names, and how many more there are."""
    listed = [*names]
    more = len(listed) - _NAMED
    return ",".join([*listed[:_NAMED], f"and {more} more"] if more > 0 else listed)


def store_text(store: Store) -> str:
    """The text of a store if its class defines one, else the name of its class."""
    return type(store).__name__ if type(store).__str__ is object.__str__ else str(store)


@log_safely
def log_event(level: int, event: str, /, **facts: object) -> None:
    """Log `event name=value ...`; a formatter finds the parts as `record.event` and `record.facts`."""
    structured_log.log_event(LOG, level, event, **facts)  # type: ignore[arg-type]  # no fact is named `exc_info`


def _log_failure(level: int, event: str, error: BaseException, facts: dict[str, object]) -> None:
    """Log an event with the traceback of a handler's error, unless the handler chose its outcome by raising it.

    The traceback is text already, because other programs' formatters would print control characters in it.
    """
    if LOG.isEnabledFor(level):
        _log_with_trace(level, event, None if isinstance(error, _CHOSEN) else traceback_text(error), facts)


def _log_with_trace(level: int, event: str, trace: str | None, facts: dict[str, object]) -> None:
    named, line = {"event": event, "facts": facts}, (facts_line(event, facts),)
    record = LOG.makeRecord(LOG.name, level, __file__, 0, "%s", line, None, extra=named)
    record.exc_text = None if trace is None else indented(trace)
    LOG.handle(record)


@log_safely
def log_stacks(level: int, event: str, stacks: str, /, **facts: object) -> None:
    """Log an event with stacks, which follow its line; in JSON they are the field `trace`, if there are any."""
    if LOG.isEnabledFor(level):
        _log_with_trace(level, event, without_middle(stacks, _STACKS) or None, facts)


@log_safely
def log_traceback(error: BaseException, **facts: object) -> None:
    """Log the traceback of an error, at level DEBUG."""
    structured_log.log_event(LOG, logging.DEBUG, "trace", exc_info=error, **facts)


@log_safely
def log_blocked(lasts: int, stack: str, **facts: object) -> None:
    """Log that something keeps the event loop, for how long so far (microseconds), with the stack of its thread."""
    facts["for"] = length_text(lasts)
    facts["hint"] = "no other coroutine goes on meanwhile: await, or run this part in asyncio.to_thread"
    log_stacks(logging.WARNING, "blocked", stack, **facts)


@log_safely
def log_unexpected_error(error: BaseException, **facts: object) -> None:
    """Log the traceback of an unexpected error: a program must be fixed, or an operator remove data from a row."""
    LOG.error(
        "%s", facts_line("unexpected_error", facts), exc_info=error, extra={"event": "unexpected_error", "facts": facts}
    )


class TaskLineHandler(logging.Handler):
    """A logging handler that also takes the bare facts of a `done` line: a log record costs more than the line.

    It is used so while it alone handles all records of `astyqueue.worker`, without filters.
    """

    @abstractmethod
    def done(self, at: int, delivery: Delivery, handler: Handler, began: int, took: int) -> None:
        """Print, soon, the line for a delivery whose handler succeeded at this moment (microseconds since 1970)."""


def done_facts(delivery: Delivery, handler: Handler | None, began: int, took: int) -> dict[str, object]:
    """The facts of a `done` line, and of others about the end of a handler: `began` and `took` are microseconds."""
    facts = _facts(delivery, handler)
    facts["lag_ms"] = (began - delivery.due_us) // _MILLISECOND
    facts["dur_ms"] = took // _MILLISECOND
    return facts


def _facts(delivery: Delivery, handler: Handler | None) -> dict[str, object]:
    headers = delivery.headers
    task = headers.get(TASK) or (handler.name if handler else None)
    facts: dict[str, object] = {
        "task": short(task),
        "queue": delivery.row.partition(":")[0],
        "id": delivery.message_id,
        "attempt": delivery.attempt,
    }
    if "traceparent" in headers and (found := _TRACEPARENT.match(headers["traceparent"])):
        facts["trace_id"] = found[1]
    return facts


def _task_line_handler() -> TaskLineHandler | None:
    """The handler of the root logger, if it alone handles all records of this log at level INFO."""
    root = logging.getLogger()
    logger = LOG
    while logger is not root:
        if logger.handlers or logger.filters or not logger.propagate or logger.parent is None:
            return None
        logger = logger.parent
    if len(root.handlers) != 1:
        return None
    handler = root.handlers[0]
    if isinstance(handler, TaskLineHandler) and handler.level <= logging.INFO and not handler.filters:
        return handler
    return None


def short(name: str | None) -> str | None:
    """A name from a message, cut to 200 characters."""
    return name if name is None or len(name) <= _NAME else f"{name[: _NAME - 1]}…"


class HeldThreads(NamedTuple):
    """How many of the threads for handlers of a queue, or of a dispatcher, are held by handlers past their timeout."""

    held: int
    slots: int


def kind_text(handler: Handler | None) -> str:
    """What a handler runs in, or that it is for batches: "thread", "asyncio", "process" or "batch"."""
    if handler is None or handler.kind is None:
        return Kind.THREAD.value
    return "batch" if handler.batch is not None else handler.kind.value


class DeliveryLog:
    """Logs the deliveries of one queue. Bodies are never logged: they may be confidential."""

    def __init__(self, clock: Clock) -> None:
        """Successes are not logged until `listen` finds that level INFO is on, and starts not before level DEBUG is."""
        self.logs_done = False
        self.logs_start = False
        self._lines: TaskLineHandler | None = None
        self._clock = clock
        self._parked = RateLimitedLog()

    def listen(self) -> None:
        """Check which levels are on; called once per claim, not for each delivery."""
        self.logs_done = LOG.isEnabledFor(logging.INFO)
        self.logs_start = LOG.isEnabledFor(logging.DEBUG)
        self._lines = _task_line_handler()

    @log_safely
    def started(self, delivery: Delivery, handler: Handler, now: int) -> None:
        """Log that a handler begins."""
        lag = (now - delivery.due_us) // _MILLISECOND
        log_event(logging.DEBUG, "start", **_facts(delivery, handler), lag_ms=lag)

    @log_safely
    def done(self, delivery: Delivery, handler: Handler, *, began: int, took: int) -> None:
        """Log that a handler succeeded."""
        if self._lines is not None:
            self._lines.done(_CLOCK.now(), delivery, handler, began, took)
        else:
            log_event(logging.INFO, "done", **done_facts(delivery, handler, began, took))

    @log_safely
    def failed(
        self, delivery: Delivery, handler: Handler, error: BaseException, *, outcome: Outcome, began: int, took: int
    ) -> None:
        """Log that a handler failed, with its traceback, and the outcome of its message."""
        facts = {**done_facts(delivery, handler, began, took), "error": reason_of(error)}
        if isinstance(outcome, Release):
            facts["again_in"] = length_text(max(0, outcome.due - self._clock.now()))
        match outcome:
            case Release(state=State.SNOOZED):
                log_event(logging.INFO, "snooze", **facts)
            case Release():
                _log_failure(logging.WARNING, "retry", error, facts)
            case Reject():
                _log_failure(logging.ERROR, "dead", error, facts)

    @log_safely
    def settled_by_hand(
        self, delivery: Delivery, handler: Handler, error: BaseException | None, *, began: int, took: int
    ) -> None:
        """Log the end of a handler that settled its message itself, or whose message was handed out at most once."""
        facts = {**done_facts(delivery, handler, began, took), "outcome": delivery.settled or delivery.settling}
        if error is None:
            log_event(logging.INFO, "done", **facts)
            return
        _log_failure(logging.WARNING, "failed", error, {**facts, "error": reason_of(error)})

    @log_safely
    def late(self, delivery: Delivery, handler: Handler, error: BaseException | None, *, began: int, took: int) -> None:
        """Log that a handler ended after it was given up; its result is ignored."""
        facts = {**done_facts(delivery, handler, began, took), "outcome": delivery.settled or delivery.settling}
        if error is not None:
            facts["error"] = reason_of(error)
        log_event(logging.WARNING, "ended_after_timeout", **facts)

    @log_safely
    def timed_out(
        self,
        delivery: Delivery,
        handler: Handler | None,
        error: BaseException,
        *,
        outcome: Outcome,
        began: int,
        took: int,
        stack: str,
    ) -> None:
        """Log that a handler exceeded its timeout, with its `stack`, and that its message is retried or dead."""
        facts = {**done_facts(delivery, handler, began, took), "error": reason_of(error)}
        if isinstance(outcome, Release):
            facts["again_in"] = length_text(max(0, outcome.due - self._clock.now()))
        log_stacks(logging.WARNING, "timed_out", stack, **facts)
        if isinstance(outcome, Reject):
            log_event(logging.ERROR, "dead", **facts)

    @log_safely
    def stuck(
        self, delivery: Delivery, handler: Handler | None, *, lasts: int, held: HeldThreads | None, stack: str
    ) -> None:
        """Log that a handler which was given up still runs, and where (`stack`).

        `held` are the threads that such handlers hold, if this one holds one.
        """
        facts = {**_facts(delivery, handler), "kind": kind_text(handler), "for": length_text(lasts)}
        last = held is not None and held.held >= held.slots
        if held is not None:
            facts["threads"] = f"{held.held} of {held.slots}"
        if last:
            facts["hint"] = "no thread is left for this queue: restart the process, or run it with --max-stuck"
        elif held is None and handler is not None and handler.kind is Kind.ASYNCIO:
            facts["hint"] = "it was cancelled and goes on: let CancelledError pass, and end what it shields from that"
        log_stacks(logging.ERROR if last else logging.WARNING, "stuck", stack, **facts)

    def blocking(self, delivery: Delivery, handler: Handler, *, lasts: int, stack: str) -> None:
        """Log that a coroutine keeps the event loop, with the stack of its thread."""
        log_blocked(lasts, stack, **_facts(delivery, handler))

    @log_safely
    def abandoned(self, delivery: Delivery, handler: Handler | None) -> None:
        """Log that a handler still ran when the time to drain was over."""
        log_event(logging.WARNING, "abandoned", **_facts(delivery, handler))

    @log_safely
    def cancelled(self, delivery: Delivery, handler: Handler) -> None:
        """Log that something else than the dispatcher cancelled a coroutine, and that its message is released."""
        log_event(logging.WARNING, "cancelled", **_facts(delivery, handler))

    @log_safely
    def dropped(self, delivery: Delivery) -> None:
        """Log that an at-most-once message was not begun and is lost: it cannot be given back."""
        log_event(logging.WARNING, "dropped", **_facts(delivery, None), outcome=delivery.settled)

    @log_safely
    def expired(self, delivery: Delivery) -> None:
        """Log that a message expired while it waited here: it becomes a dead letter; one at most once is lost."""
        log_event(logging.WARNING, "expired", **_facts(delivery, None))

    @log_safely
    def not_begun(self, delivery: Delivery) -> None:
        """Log that the lease or the time to drain ended before the handler began, as in a suspended process."""
        log_event(logging.WARNING, "not_begun", **_facts(delivery, None))

    @log_safely
    def again(self, delivery: Delivery) -> None:
        """Log that a lease expired while the handler ran and this process claimed the message again; not rerun."""
        log_event(
            logging.WARNING,
            "reclaimed_while_running",
            **_facts(delivery, None),
            effect="its handler still runs here, and its outcome counts for this attempt",
        )

    @log_safely
    def refused(self, delivery: Delivery, error: BaseException) -> None:
        """Log that a hook refused an outcome, or raised an error."""
        log_event(logging.ERROR, "refused", **_facts(delivery, None), error=reason_of(error))
        log_traceback(error, **_facts(delivery, None))

    @log_safely
    def internal_error(self, delivery: Delivery, error: BaseException) -> None:
        """Log an error before or after a handler, caused by the message's content or the program's own code."""
        log_event(logging.ERROR, "internal_error", **_facts(delivery, None), error=reason_of(error))
        log_traceback(error, **_facts(delivery, None))

    @log_safely
    def unknown(self, delivery: Delivery, pause: int) -> None:
        """Log that the task is unknown here; once a minute per name, for at most 100 names."""
        task = delivery.headers.get(TASK)
        if not self._parked.may_say(task, self._clock.monotonic()):
            return
        hint = (
            "this worker does not know the task: start one whose app has it, or correct the sender"
            if task
            else "it names no task: send it with the header task, or give a handler without task="
        )
        if self._parked.full:
            hint += "; too many such names: no more are logged for a minute"
        log_event(
            logging.WARNING,
            "parked",
            **_facts(delivery, None),
            again_in=length_text(pause),
            hint=hint,
        )
