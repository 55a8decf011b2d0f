"""The events that observers get: small values without bodies.

Moments are microseconds since 1970 by the store's time, durations are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from astyqueue.model.envelope import MessageId, queue_of


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A request to the store ended.

    `kind` is "read", "send" or "commit". `columns` were returned by a read, or are put or deleted by the others.
    `outcome` is "done" (read, send), "committed", "refused" (a commit whose expectations did not hold), "unknown" (the
    store did not report whether it applied it) or "failed"; the last two have an `error`. `took` is the time that the
    caller waited for it.
    """

    queue: str
    kind: str
    rows: tuple[str, ...]
    columns: int
    outcome: str
    took: int
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class RowEvent:
    """Something that this process did or found in a row."""

    row: str

    @property
    def queue(self) -> str:
        """The queue that the row belongs to."""
        return queue_of(self.row)


@dataclass(frozen=True, slots=True)
class Claimed(RowEvent):
    """A claim leased these messages to this process until a moment; None: they are delivered at most once."""

    messages: tuple[MessageId, ...]
    until: int | None


@dataclass(frozen=True, slots=True)
class ClaimRefused(RowEvent):
    """The commits of one claim were refused this number of times, because other processes committed before."""

    times: int


@dataclass(frozen=True, slots=True)
class LeaseExpired(RowEvent):
    """A claim found a message whose lease had run out. `holder`: the process that had it. `attempt`: which it was."""

    message: MessageId
    holder: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RowTakenOver(RowEvent):
    """A claim took the row lease of a row that another process, `previous`, owned until then."""

    previous: str


@dataclass(frozen=True, slots=True)
class LeaseRenewed(RowEvent):
    """This process renewed the lease of these messages, without a consumer's request."""

    messages: tuple[MessageId, ...]
    until: int


@dataclass(frozen=True, slots=True)
class Settled(RowEvent):
    """An outcome of these messages is in the store: "acked", "released", "rejected", or "extended" by a consumer."""

    outcome: str
    messages: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class OutcomeLost(RowEvent):
    """An outcome came too late and changed nothing: the lease of its message had ended."""

    message: MessageId


@dataclass(frozen=True, slots=True)
class OccurrenceFired(RowEvent):
    """An occurrence of a schedule was fired: a message was sent for it. `occurrence` is its moment."""

    schedule: str
    occurrence: int
    message: MessageId


@dataclass(frozen=True, slots=True)
class OutcomeReadBack(RowEvent):
    """The store did not report whether it applied a commit, and reading the row has shown it.

    `operation` is "claim", "settle", "send", "fire" or "change". If not `applied`, it is repeated or left to others.
    """

    operation: str
    applied: bool


@dataclass(frozen=True, slots=True)
class SpoolForwarded:
    """The forwarder of a spool has stored these messages, of any rows; some may have been in the store before."""

    queue: str
    messages: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class SpoolRefused:
    """The forwarder of a spool set a message aside for this reason. None: its record cannot be read as a message."""

    queue: str
    message: MessageId | None
    reason: str


#: What an observer gets.
ObservedEvent = (
    RequestDone
    | Claimed
    | ClaimRefused
    | LeaseExpired
    | RowTakenOver
    | LeaseRenewed
    | Settled
    | OutcomeLost
    | OccurrenceFired
    | OutcomeReadBack
    | SpoolForwarded
    | SpoolRefused
)
