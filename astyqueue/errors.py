"""Every error astyqueue raises on purpose, in one tree; those of journals have a module of their own.

    AstyqueueError
    ├── BadInput                the request is invalid; nothing was changed
    │   ├── BadSetting          an option, a URL or a setting is wrong
    │   ├── BadExpression       a cron expression cannot be read; it says which field and why
    │   ├── ScheduleTaken       a schedule of this name exists
    │   ├── QueueNameExists     a queue of this name exists with another visibility timeout
    │   └── LayoutDiffers       the stored layout of a queue differs from the requested one
    ├── NotFound                no such queue, message, dead letter or schedule
    │   ├── QueueDoesNotExist   a queue service has no queue of this name
    │   └── UnknownTrigger      no trigger of this name was registered in this process
    ├── KeyTaken                another message has the unique key; nothing was sent
    ├── QueueFull               the queue has as many messages as it may have; its `sent` counts what the call had sent
    ├── Vetoed                  a hook refused a send or a settle
    ├── LeaseLost               a receipt is no longer current; nothing was changed for it
    ├── AlreadySettled          this delivery was settled before
    ├── Busy                    another process has the lock of a row; a custom lock manager may raise it
    ├── Undecodable             a column cannot be read; of a header or timer: its row takes no claims until repaired
    ├── NoTransactions          the store has no transactions that a caller's own writes can be part of
    ├── Closed                  the queue or the store was closed before
    ├── HandlersStuck           too many handlers of a dispatcher ran on past their timeout; the dispatcher was stopped
    ├── HandlerFailed           a handler in a process of its own raised an error; its text and traceback are here
    ├── ChildDied               the process that handled a message ended before its handler
    ├── ThreadsDied             the handler threads of a dispatcher died repeatedly; the dispatcher was stopped
    ├── JournalError            a journal or a spool did not carry out a call: see `astyqueue.journal_errors`
    └── StoreError              the store did not carry out a request
        ├── StoreUnavailable    it cannot be reached, opened or written now
        │   ├── WrongSchema     its tables are missing, or a newer astyqueue made them
        │   ├── StoreGone       it was removed or replaced since it was opened: reopen it
        │   └── SliceTooLong    a slice passes more deleted columns than the store reads at once
        ├── StoreCorrupt        its contents cannot be trusted
        ├── StoreFull           no space is left; nothing was changed
        └── OutcomeUnknown      the request may or may not have been carried out

`Retry`, `Reject` and `Snooze`, which a handler raises to choose the outcome of its message, derive from
`Exception` but not from `AstyqueueError`: they are instructions, not failures.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import reprlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Self

from astyqueue.units import SECOND


class _Portable(Exception):
    """An exception that survives pickle and copy with its message and attributes.

    By default both call the class with the message, but most classes here build the message from other arguments. So a
    copy is made without `__init__` and takes over message and attributes.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]  # as pickle's documentation has it


class AstyqueueError(_Portable):
    """The root of everything astyqueue raises on purpose."""

    def with_sentence(self, sentence: str) -> Self:
        """The same error, with this sentence behind its message."""
        error = copy.copy(self)
        error.args = (f"{str(self).rstrip('.')}. {sentence}",)
        return error


@contextlib.contextmanager
def saying_how_far(done: Callable[[], str]) -> Iterator[None]:
    """Have an error in the block say what was `done` before it; empty: nothing was."""
    try:
        yield
    except AstyqueueError as error:
        if not (before := done()):
            raise
        raise error.with_sentence(before) from error


class BadInput(AstyqueueError, ValueError):
    """The request is invalid; nothing was changed."""


class BadSetting(BadInput):
    """An option, a URL or a setting is wrong."""


class BadExpression(BadInput):
    """A cron expression cannot be read."""

    def __init__(self, expression: str, field: str, why: str) -> None:
        """Name the field and its problem; `field` is empty when the expression as a whole is wrong."""
        self.expression = expression
        self.field = field
        self.why = why
        place = f", {field}" if field else ""
        super().__init__(f"cron expression {reprlib.repr(expression)}{place}: {why}")


class ScheduleTaken(BadInput):
    """A schedule of this name exists."""

    def __init__(self, name: str, *, is_key: bool = False) -> None:
        """`name` is the schedule's, and the key of the message with a trigger that was sent if it `is_key`."""
        self.name = name
        remedy = (
            f"send with another key; or, if a message with a trigger made that one, end it by queue.stop({name!r}), or "
            "send with unique="
            if is_key
            else "give another name, or replace it"
        )
        super().__init__(f"there is a schedule {name!r} already: {remedy}")


class QueueNameExists(BadInput):
    """A queue of this name exists with another visibility timeout; it is unchanged."""

    def __init__(self, name: str, stored: int, requested: int) -> None:
        """The queue's visibility timeout, and the requested one, in seconds."""
        self.name = name
        self.stored = stored
        self.requested = requested
        super().__init__(
            f"queue {name!r} exists with a visibility timeout of {stored} s, not the requested {requested} s: "
            "create it with the same timeout, or take another name"
        )


class LayoutDiffers(BadInput):
    """A queue exists with another layout than the requested one."""

    def __init__(self, queue: str, differences: Iterable[tuple[str, object, object]]) -> None:
        """`differences` has (name, stored, requested) for each setting that differs."""
        self.queue = queue
        self.differences = tuple(differences)
        shown = "; ".join(
            f"{name} is {stored!r}, not the requested {given!r}" for name, stored, given in self.differences
        )
        super().__init__(
            f"queue {queue!r} exists with another layout: {shown}. A layout is fixed when a queue is created: "
            "leave these settings out to use the stored ones, or take another queue name"
        )


class NotFound(AstyqueueError, LookupError):
    """No such queue, message, dead letter or schedule."""


class QueueDoesNotExist(NotFound):
    """A queue service has no queue of this name."""

    def __init__(self, name: str) -> None:
        """`name` is the queue's."""
        self.name = name
        super().__init__(f"there is no queue {name!r}: create it first")


class UnknownTrigger(NotFound):
    """A trigger has a name that is not registered in this process; the stored trigger is unchanged."""

    def __init__(self, name: str) -> None:
        """`name` is the trigger's."""
        self.name = name
        super().__init__(
            f"no trigger named {name!r} is registered in this process: import the module that registers it, "
            "or let a process that has it fire this schedule"
        )


class KeyTaken(AstyqueueError):
    """Another message that was sent with `unique` has the key; nothing was sent."""

    def __init__(self, key: str, id: Any, standing: str, *, repeats: bool = False) -> None:  # noqa: A002, ANN401 - see below
        """`id` is the `MessageId` that has the key, `standing` its state: "waiting", "delayed", "in_flight" and so on.

        If it `repeats`, it has a trigger of its own, and the id is that of its current or next run. (`id` keeps the
        name it has everywhere; its type is Any because its class is in the model, which imports this module.)
        """
        self.key = key
        self.id = id
        self.standing = standing
        self.repeats = repeats
        until = (
            "it was stopped, or its last run is done, dead or deleted" if repeats else "that is done, dead or deleted"
        )
        if standing != "in_flight":
            other = 'unique="replace" to replace it unless it is under a lease'
        elif repeats:
            other = "end it by queue.stop(key)"
        else:
            other = 'unique="supersede", without a trigger, to send beside it and have it not delivered again'
        super().__init__(
            f"key {key!r:.120} is taken by {'repeating ' if repeats else ''}message {id} "
            f"({standing.replace('_', ' ')}), so nothing was sent. The key is free once {until}; "
            f'send with unique="keep" to keep that message, or {other}'
        )


class QueueFull(AstyqueueError):
    """A queue has as many messages as its `max_messages` allows; what was to be sent was not."""

    def __init__(self, queue: str, *, counted: int, limit: int, waited: int = 0, sent: int = 0) -> None:
        """The messages that were counted, and how many the queue may have.

        `waited`: microseconds for which the send waited for room; `sent`: the messages that the same call sent before.
        """
        self.queue = queue
        self.counted = counted
        self.limit = limit
        self.waited = waited
        self.sent = sent
        after = f" after a wait of {waited / SECOND:g} s" if waited else ""
        what = f"{sent} messages of this call were sent, the others were not" if sent else "nothing was sent"
        super().__init__(
            f"queue {queue!r} is full{after}: it has {counted} messages, and max_messages is {limit}, so {what}. "
            "Send again when consumers have taken some, raise max_messages, or choose another overflow: "
            "block, drop_oldest or forward"
        )

    def after(self, before: int) -> QueueFull:
        """The same for a call that had sent this number of messages before it came to the ones that this counts."""
        return QueueFull(
            self.queue, counted=self.counted, limit=self.limit, waited=self.waited, sent=before + self.sent
        )


class Vetoed(AstyqueueError):
    """A hook refused a send or a settle; nothing was changed."""


class LeaseLost(AstyqueueError):
    """A receipt is no longer current; nothing was changed for it. Other deliveries of the call are settled.

    The lease expired and the message was handed out again, or it was deleted or cleared. (After its lease expired a
    delivery can still be settled until a consumer claims the message again: its receipt is the last one.)
    """

    def __init__(self, receipts: Iterable[str]) -> None:
        """`receipts` are those that are no longer current."""
        self.receipts = tuple(receipts)
        shown = ", ".join(self.receipts[:3]) + (f" and {len(self.receipts) - 3} more" if len(self.receipts) > 3 else "")  # noqa: PLR2004 - as many as a person reads
        super().__init__(
            f"lease lost: {shown}. The message may have been handed to another consumer; "
            "its outcome here was not recorded. Request a longer lease, or extend it while working"
        )


class AlreadySettled(AstyqueueError):
    """This delivery was settled before; its first outcome is unchanged."""

    def __init__(self, receipt: str, outcome: str) -> None:
        """`outcome` is the first one."""
        self.receipt = receipt
        self.outcome = outcome
        super().__init__(f"delivery {receipt} was settled before ({outcome}); that outcome is unchanged")


class Undecodable(AstyqueueError):
    """A column of a row cannot be read; it is kept as it is."""

    def __init__(
        self, row: str, column: str, why: str, *, until: str = "Nothing is claimed from this row until it can be read"
    ) -> None:
        """Name the column and its problem; `until` is the sentence on what stops until the column can be read."""
        self.row = row
        self.column = column
        self.why = why
        super().__init__(
            f"row {row}: {column} cannot be read ({why}). {until}: "
            "it was written by a newer astyqueue (upgrade this process) or damaged (restore it from a backup)"
        )


class Busy(AstyqueueError):
    """Another process has the lock of a row: a lock manager may raise this instead of returning False."""


class Closed(AstyqueueError):
    """The queue or the store was closed before; open a new one."""


class NoTransactions(AstyqueueError):
    """The store of a queue has no transactions that a caller's own writes can be part of."""

    def __init__(self, queue: str, store: str) -> None:
        """`store` is what the store is called in logs."""
        self.queue = queue
        self.store = store
        super().__init__(
            f"the store of queue {queue!r} has no transactions that your own writes can be part of; a SQLite file has. "
            "Write what is to be sent into a table of your own instead, an outbox, and send from there: "
            "docs/how-to/transactions.md"
        )


class HandlersStuck(AstyqueueError):
    """Too many handlers ran on past their timeout; their dispatcher was stopped."""

    def __init__(self, stuck: int, threads: int, tasks: Iterable[str], *, held: int | None = None) -> None:
        """`stuck` handlers of these tasks ran on past their timeout; `held` of the `threads` threads have one of them.

        Without `held` all do. Other handlers are coroutines, batches or in child processes.
        """
        self.stuck = stuck
        self.held = stuck if held is None else held
        self.threads = threads
        self.tasks = tuple(tasks)
        those = (
            f"{self.held} of {threads} threads are held by handlers that ran on past their timeout"
            if self.held == stuck
            else f"{stuck} handlers ran on past their timeout, and hold {self.held} of {threads} threads"
        )
        super().__init__(
            f"{those} ({', '.join(self.tasks)}): the dispatcher was stopped. Restart the process; "
            "set timeouts on the calls that block these handlers"
        )


class ThreadsDied(AstyqueueError):
    """The handler threads of a dispatcher died repeatedly; it was stopped, and its messages were released."""

    def __init__(self, queue: str, deaths: int, reason: str) -> None:
        """`deaths` threads died within a minute, the last of `reason`, in `queue` ("" if it had no message)."""
        self.queue = queue
        self.deaths = deaths
        self.reason = reason
        where = f" in queue {queue!r}" if queue else ""
        super().__init__(
            f"{deaths} handler threads died within a minute, the last one{where} of {reason}: "
            "the dispatcher was stopped. Restart the process; the log has the errors"
        )


class HandlerFailed(AstyqueueError):
    """A handler in a process of its own raised an error, of which only text crosses to this process."""

    def __init__(self, kind: str, text: str | None, traceback: str) -> None:
        """The name of the error's class, its text in one line (None: it has none), and its traceback there."""
        self.kind = kind
        self.text = text
        self.traceback = traceback
        super().__init__(f"{kind}: {text}" if text else kind)


class ChildDied(AstyqueueError):
    """The process that handled a message ended before its handler did: an attempt of this message only."""

    def __init__(self, how: str) -> None:
        """`how` it ended, such as "it was killed by SIGSEGV"."""
        self.how = how
        super().__init__(f"the process that handled it ended: {how}")


class StoreError(AstyqueueError):
    """The store did not carry out a request."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, opened or written now; the request was not carried out."""


class WrongSchema(StoreUnavailable):
    """The tables of the store are missing, or a newer astyqueue made them; the request was not carried out."""


class StoreGone(StoreUnavailable):
    """The store was removed or replaced since it was opened; retries fail: reopen it, best in a new process."""


class SliceTooLong(StoreUnavailable):
    """A slice passes more deleted columns than the store reads at once; it was not read, but shorter slices can be."""


class StoreCorrupt(StoreError):
    """The contents of the store cannot be trusted; the request was not carried out."""


class StoreFull(StoreError):
    """No space is left in the store; the request was not carried out."""


class OutcomeUnknown(StoreError):
    """The store may or may not have carried out the request; read back before repeating it."""


class Retry(_Portable):
    """Raised by a handler: try again after a delay (Default: the queue's backoff); it counts as a failed attempt."""

    def __init__(self, after: float | timedelta | str | None = None, *, reason: str = "") -> None:
        """`after` is seconds, a `timedelta`, or text like "10m"."""
        self.after = after
        self.reason = reason
        super().__init__(reason or "retry")


class Reject(_Portable):
    """Raised by a handler: make this message a dead letter now, with this reason."""

    def __init__(self, reason: str = "rejected by its handler") -> None:
        """`reason` is stored with the dead letter."""
        self.reason = reason
        super().__init__(reason)


class Snooze(_Portable):
    """Raised by a handler: hand this message out again at or after a moment; it costs no attempt."""

    def __init__(self, until: datetime | float | timedelta | str) -> None:
        """`until` is an aware datetime, or a duration from now: seconds, a `timedelta`, or text like "10m"."""
        self.until = until
        super().__init__(f"until {until}" if isinstance(until, datetime) else f"for {until}")
