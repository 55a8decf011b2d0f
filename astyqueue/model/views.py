"""What people are shown of a queue: messages and dead letters as they were found, counts, and what a redrive came to.

Instants are microseconds since 1970 in fields and aware datetimes in properties; `as_json` is the same with all instants
as text, for those who read JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.model.message import Envelope, MessageId, decode
from astyqueue.model.moments import exact

Json = dict[str, JsonValue]
#: How a message became a dead letter; "attempts": each worker that had it died or fell silent.
DeathKind = Literal["failed", "rejected", "attempts", "expired", "undecodable"]
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Standing(StrEnum):
    """Where a message stands. Whatever anybody may claim now is WAITING, also what comes back from an earlier attempt."""

    WAITING = "waiting"
    DELAYED = "delayed"
    IN_FLIGHT = "in_flight"
    BACKING_OFF = "backing_off"
    SNOOZED = "snoozed"
    PARKED = "parked"
    DEAD = "dead"


class Include(StrEnum):
    """Which messages a peek shows: those anybody may claim now, those hidden for a while, those for the future, or all."""

    DUE = "due"
    HIDDEN = "hidden"
    FUTURE = "future"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Content:
    """What a message column holds. If it cannot be read, `problem` says why, `raw` has the bytes, and the rest is empty."""

    envelope: Envelope | None
    raw: bytes = b""
    problem: str | None = None

    @classmethod
    def of(cls, value: bytes | None) -> Content:
        """The content of a column's value, or of a column that is gone."""
        if value is None:
            return cls(None, problem="its message is gone")
        try:
            return cls(decode(value))
        except ValueError as error:
            return cls(None, value, f"its message cannot be read: {error}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it lies in the store."""

    id: MessageId
    content: Content

    @property
    def body(self) -> JsonValue:
        """What was sent; None also if it cannot be read, which `problem` tells."""
        return self.content.envelope.body if self.content.envelope else None

    @property
    def key(self) -> str | None:
        """The sender's handle for the message."""
        return self.content.envelope.key if self.content.envelope else None

    @property
    def headers(self) -> Mapping[str, str]:
        """Text metadata."""
        return (self.content.envelope.headers if self.content.envelope else None) or _NOTHING

    @property
    def priority(self) -> int:
        """The greatest goes first."""
        return self.id.priority

    @property
    def sent(self) -> datetime | None:
        """When it was sent, if it can be read."""
        return instant(self.content.envelope.sent) if self.content.envelope else None

    @property
    def due(self) -> datetime:
        """When it was due for the first time."""
        return instant(self.id.moment)

    @property
    def expires(self) -> datetime | None:
        """From when on nobody is handed it any more."""
        return _instant(self.content.envelope.expires if self.content.envelope else None)

    @property
    def raw(self) -> bytes:
        """The stored bytes of a message that cannot be read."""
        return self.content.raw

    @property
    def problem(self) -> str | None:
        """Why it cannot be read, if so."""
        return self.content.problem

    def _message_json(self) -> Json:
        shown: Json = {
            "id": str(self.id),
            "key": self.key,
            "priority": self.priority,
            "headers": dict(self.headers),
            "sent": _text(self.sent),
            "due": _text(self.due),
            "expires": _text(self.expires),
            "body": self.body,
        }
        return shown if self.problem is None else shown | {"problem": self.problem, "raw": self.raw.hex()}


@dataclass(frozen=True, slots=True)
class Found(Stored):
    """A message and where it stands.

    `spent` counts the attempts it used up. `hidden_until` (microseconds) is when it may be handed out, if that is later
    than now; `holder` the process that has it in hand; `reason` why it is dead.
    """

    standing: Standing
    spent: int = 0
    hidden_until: int | None = None
    holder: str = ""
    reason: str = ""

    @property
    def until(self) -> datetime | None:
        """When it may be handed out, if not now: when its delay, lease or pause ends."""
        return _instant(self.hidden_until)

    def as_json(self) -> Json:
        """The message and where it stands."""
        standing: Json = {
            "standing": self.standing.value,
            "until": _text(self.until),
            "spent": self.spent,
            "holder": self.holder,
            "reason": self.reason,
        }
        return self._message_json() | standing


@dataclass(frozen=True, slots=True)
class DeadLetter(Stored):
    """A message that is kept but handed to nobody, and why.

    `kind` is "rejected", "failed", "attempts", "expired" or "undecodable"; `died` is microseconds; `claim` the nonce of
    the receipt under which it was given up, if any.
    """

    died: int
    attempts: int
    kind: str
    reason: str
    claim: str = ""

    @property
    def at(self) -> datetime:
        """When it became a dead letter."""
        return instant(self.died)

    def as_json(self) -> Json:
        """The message and why it is dead."""
        death: Json = {"at": _text(self.at), "attempts": self.attempts, "kind": self.kind, "reason": self.reason, "claim": self.claim}
        return self._message_json() | death


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters are meant; what is left out fits all.

    `reason` is a part of the reason, capitals or not; died from `since` on and before `until` (microseconds); `headers`
    are those that must be there with just these values.
    """

    kind: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def asks_content(self) -> bool:
        """Whether the message itself must be read to tell."""
        return self.key is not None or bool(self.headers)

    def fits(self, kind: str, reason: str, died: int) -> bool:
        """Whether a death fits."""
        return (
            self.kind in (None, kind)
            and (self.reason is None or self.reason.casefold() in reason.casefold())
            and (self.since is None or self.since <= died)
            and (self.until is None or died < self.until)
        )

    def fits_content(self, message: Stored) -> bool:
        """Whether the message that died fits."""
        return self.key in (None, message.key) and self.headers.items() <= message.headers.items()


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages stand where; of a queue, with the counts of each `rows` of it."""

    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    backing_off: int = 0
    snoozed: int = 0
    parked: int = 0
    dead: int = 0
    rows: Mapping[str, Counts] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of_rows(cls, rows: Mapping[str, Counts]) -> Counts:
        """The counts of these rows together."""
        sums = (sum(getattr(counts, standing) for counts in rows.values()) for standing in Standing)
        return replace(cls(*sums), rows=rows)

    @property
    def total(self) -> int:
        """All of them, dead letters too."""
        return sum(self._by_standing().values())

    def _by_standing(self) -> dict[str, int]:
        return {standing.value: getattr(self, standing) for standing in Standing}

    def as_json(self) -> Json:
        """The counts, their total, and those of each row."""
        shown: Json = {**self._by_standing(), "total": self.total}
        return shown | {"rows": {row: counts.as_json() for row, counts in self.rows.items()}} if self.rows else shown


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """What a redrive came to: dead letters that were put back, and those left because they would die again at once.

    Left are also those whose unique key another message has by now.

    Of a dry run, what it would come to.
    """

    redriven: int = 0
    left: int = 0
    dry_run: bool = False

    def __add__(self, other: RedriveReport) -> RedriveReport:
        return RedriveReport(self.redriven + other.redriven, self.left + other.left, self.dry_run or other.dry_run)

    def as_json(self) -> Json:
        """The same as JSON."""
        return {"redriven": self.redriven, "left": self.left, "dry_run": self.dry_run}


@dataclass(frozen=True, slots=True)
class RescanReport:
    """What a rescan came to: rows it went through, ids it looked at, messages that nobody would have found and that are due now.

    `unreadable` are rows it could not go through, for their header or a timer cannot be read.
    """

    rows: int = 0
    looked: int = 0
    listed: int = 0
    unreadable: tuple[str, ...] = ()

    def __add__(self, other: RescanReport) -> RescanReport:
        unreadable = self.unreadable + other.unreadable
        return RescanReport(self.rows + other.rows, self.looked + other.looked, self.listed + other.listed, unreadable)

    def as_json(self) -> Json:
        """The same as JSON."""
        return {"rows": self.rows, "looked": self.looked, "listed": self.listed, "unreadable": list(self.unreadable)}


def _instant(moment: int | None) -> datetime | None:
    return None if moment is None else instant(moment)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else exact(moment)
