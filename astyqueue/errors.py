"""Every error astyqueue raises on purpose, in one tree.

    AstyqueueError
    ├── BadInput                what was asked cannot be done as asked; nothing was changed
    │   ├── BadSetting          an option, a URL or a setting is wrong
    │   ├── BadExpression       a cron expression cannot be read; it says which field and why
    │   ├── ScheduleTaken       there is a schedule of this name already
    │   └── LayoutDiffers       the stored layout of a queue is another one
    ├── NotFound                no such queue, message, dead letter or schedule
    │   └── UnknownTrigger      no trigger of this name was registered in this process
    ├── KeyTaken                another message has the unique key; nothing was sent
    ├── Vetoed                  a hook refused a send or a settle
    ├── LeaseLost               the receipt is no longer current; nothing was changed
    ├── AlreadySettled          this delivery was settled before
    ├── Busy                    somebody else has the lock of a row; a lock of your own may raise it
    ├── Undecodable             a column cannot be read; if it is a header or a timer, its row takes no claims until it is mended
    ├── Closed                  the queue or the store was closed before
    ├── HandlersStuck           too many handlers of a dispatcher ran on past their timeout; it was stopped
    ├── ThreadsDied             the handler threads of a dispatcher died again and again; it was stopped
    └── StoreError              the store did not do what it was asked
        ├── StoreUnavailable    it cannot be reached, opened or written now
        │   ├── WrongSchema     its tables are missing, or a newer astyqueue made them
        │   ├── StoreGone       it was removed or replaced since it was opened: open it anew
        │   └── SliceTooLong    a slice passes more deleted columns than it reads at once
        ├── StoreCorrupt        what it holds cannot be trusted
        ├── StoreFull           there is no room left; nothing was changed
        └── OutcomeUnknown      it may or may not have been done

What a handler raises to say what should become of its message (`Retry`, `Reject`, `Snooze`) derives from
`Exception` but not from `AstyqueueError`: it is an instruction, not a failure.
"""

from __future__ import annotations

import copyreg
import reprlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any


class _Portable(Exception):
    """An exception that pickle and copy give back as it was.

    They would call its class with its message, and most classes here make the message themselves, of facts. So a copy is
    made without `__init__`, and takes over message and facts.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]  # as pickle's documentation has it


class AstyqueueError(_Portable):
    """The root of everything astyqueue raises on purpose."""


class BadInput(AstyqueueError, ValueError):
    """What was asked cannot be done as asked; nothing was changed."""


class BadSetting(BadInput):
    """An option, a URL or a setting is wrong."""


class BadExpression(BadInput):
    """A cron expression cannot be read."""

    def __init__(self, expression: str, field: str, why: str) -> None:
        """Name the field and say what is wrong with it; `field` is empty when it is the expression as a whole."""
        self.expression = expression
        self.field = field
        self.why = why
        place = f", {field}" if field else ""
        super().__init__(f"cron expression {reprlib.repr(expression)}{place}: {why}")


class ScheduleTaken(BadInput):
    """There is a schedule of this name already."""

    def __init__(self, name: str) -> None:
        """Say which name it is."""
        self.name = name
        super().__init__(f"there is a schedule {name!r} already: give another name, or replace it")


class LayoutDiffers(BadInput):
    """A queue exists with another layout than the one asked for."""

    def __init__(self, queue: str, differences: Iterable[tuple[str, object, object]]) -> None:
        """Name each setting that differs, as (name, stored, asked)."""
        self.queue = queue
        self.differences = tuple(differences)
        told = "; ".join(f"{name} is {stored!r} and {asked!r} was asked for" for name, stored, asked in self.differences)
        super().__init__(
            f"queue {queue!r} exists with another layout: {told}. A layout is fixed when a queue is created: "
            "leave these settings out to use the stored ones, or take another queue name"
        )


class NotFound(AstyqueueError, LookupError):
    """No such queue, message or dead letter."""


class UnknownTrigger(NotFound):
    """A trigger goes by a name that nobody registered in this process; it is kept as it is."""

    def __init__(self, name: str) -> None:
        """Say which name it is."""
        self.name = name
        super().__init__(
            f"no trigger named {name!r} is registered here: import the module that registers it, "
            "or let a process fire this schedule that has it"
        )


class KeyTaken(AstyqueueError):
    """Another message that was sent with `unique` has the key; nothing was sent."""

    def __init__(self, key: str, id: Any, standing: str, *, repeats: bool = False) -> None:  # noqa: A002, ANN401 - see below
        """Say which message that is, by its `MessageId`, and where it stands: "waiting", "delayed", "in_flight" and so on.

        One that `repeats` has a trigger of its own: the id is that of the run that is there, or of the next one. (An id is called so
        everywhere, and its class belongs to the model, which errors lie below.)
        """
        self.key = key
        self.id = id
        self.standing = standing
        self.repeats = repeats
        until = "it was stopped, or its last run is done, dead or deleted" if repeats else "that is done, dead or deleted"
        super().__init__(
            f"key {key!r:.120} is taken by {'repeating ' if repeats else ''}message {id} ({standing.replace('_', ' ')}), "
            f'so nothing was sent. The key is free once {until}; send with unique="keep" to be content with it, or unique="replace" to '
            "put this in its place unless somebody works on it"
        )


class Vetoed(AstyqueueError):
    """A hook refused a send or a settle; nothing was changed."""


class LeaseLost(AstyqueueError):
    """The receipt is no longer current; nothing was changed.

    The lease ran out and the message was handed out again, or it was deleted or cleared. (A lease that ran out while
    nobody took the message can still be settled: its receipt is the last one.)
    """

    def __init__(self, receipts: Iterable[str]) -> None:
        """Name the receipts that are no longer current."""
        self.receipts = tuple(receipts)
        shown = ", ".join(self.receipts[:3]) + (f" and {len(self.receipts) - 3} more" if len(self.receipts) > 3 else "")  # noqa: PLR2004 - as many as a person reads
        super().__init__(
            f"no longer held: {shown}. The message may have been handed to another taker; "
            "its outcome here was not recorded. Ask for a longer lease, or extend it while working"
        )


class AlreadySettled(AstyqueueError):
    """This delivery was settled before; the first outcome stands."""

    def __init__(self, receipt: str, outcome: str) -> None:
        """Say which outcome stands."""
        self.receipt = receipt
        self.outcome = outcome
        super().__init__(f"delivery {receipt} was settled before ({outcome}); the first outcome stands")


class Undecodable(AstyqueueError):
    """A column of a row cannot be read; it is neither guessed nor dropped."""

    def __init__(self, row: str, column: str, why: str, *, until: str = "Nothing is claimed from this row until it can") -> None:
        """Name the column, and say what is wrong with it and what does not go on `until` it can be read."""
        self.row = row
        self.column = column
        self.why = why
        super().__init__(
            f"row {row}: {column} cannot be read ({why}). {until}: "
            "it was written by a newer astyqueue (upgrade this process) or damaged (restore it from a backup)"
        )


class Busy(AstyqueueError):
    """Somebody else has the lock of a row: a lock manager may raise this in the place of saying False. It is no failure."""


class Closed(AstyqueueError):
    """The queue or the store was closed before; open a new one."""


class HandlersStuck(AstyqueueError):
    """Too many handlers of a dispatcher ran on past their timeout and kept their threads; it was stopped."""

    def __init__(self, stuck: int, threads: int, tasks: Iterable[str]) -> None:
        """Say how many of how many threads, and for which tasks."""
        self.stuck = stuck
        self.threads = threads
        self.tasks = tuple(tasks)
        super().__init__(
            f"{stuck} of {threads} threads are held by handlers that ran on past their timeout ({', '.join(self.tasks)}): the dispatcher "
            "was stopped. Start the process anew; give what these handlers wait for a timeout of its own"
        )


class ThreadsDied(AstyqueueError):
    """The handler threads of a dispatcher died again and again; it was stopped, and its messages were given back."""

    def __init__(self, queue: str, deaths: int, reason: str) -> None:
        """Say how many died, and of what the last one did."""
        self.queue = queue
        self.deaths = deaths
        self.reason = reason
        super().__init__(
            f"{deaths} threads that handle queue {queue!r} died within a minute, the last of {reason}: the dispatcher was stopped. "
            "Start the process anew; the log has the errors"
        )


class StoreError(AstyqueueError):
    """The store did not do what it was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, opened or written now; what was asked was not done."""


class WrongSchema(StoreUnavailable):
    """The tables of the store are missing, or were made by a newer astyqueue; what was asked was not done."""


class StoreGone(StoreUnavailable):
    """The store was removed or replaced since it was opened; no waiting mends that, so open it anew, best in a new process."""


class SliceTooLong(StoreUnavailable):
    """A slice passes more deleted columns than the store reads at once; it was not read, and shorter ones can be."""


class StoreCorrupt(StoreError):
    """What the store holds cannot be trusted; what was asked was not done."""


class StoreFull(StoreError):
    """There is no room left in the store; what was asked was not done."""


class OutcomeUnknown(StoreError):
    """The store may or may not have done what it was asked; read back before asking again."""


class Retry(_Portable):
    """Raised by a handler: try again after this long (by default the queue's backoff); it counts as a failed attempt."""

    def __init__(self, after: float | timedelta | str | None = None, *, reason: str = "") -> None:
        """`after` is seconds, a `timedelta`, or text like "10m"."""
        self.after = after
        self.reason = reason
        super().__init__(reason or "retry")


class Reject(_Portable):
    """Raised by a handler: make this message a dead letter at once, with this reason."""

    def __init__(self, reason: str = "rejected by its handler") -> None:
        """`reason` is kept with the dead letter."""
        self.reason = reason
        super().__init__(reason)


class Snooze(_Portable):
    """Raised by a handler: hand this message out again at (or after) this moment; it costs no attempt."""

    def __init__(self, until: datetime | float | timedelta | str) -> None:
        """`until` is an aware datetime, or a duration from now: seconds, a `timedelta`, or text like "10m"."""
        self.until = until
        super().__init__(f"until {until}")
