"""Read-only views of a queue: messages, dead letters, counts, and reports of redrives and rescans.

Instants are microseconds since 1970 in fields and aware datetimes in properties; `as_json` has all instants as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.model.envelope import Envelope, MessageId, decode
from astyqueue.text import exact

Json = dict[str, JsonValue]
#: How a message became a dead letter; "attempts": each worker that had it crashed or stopped responding.
DeathKind = Literal["failed", "rejected", "attempts", "expired", "undecodable"]
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Standing(StrEnum):
    """The state of a message. Each message that may be claimed now is WAITING, also after a failed attempt.

    A BLOCKED message waits for an earlier one of its group.
    """

    WAITING = "waiting"
    DELAYED = "delayed"
    IN_FLIGHT = "in_flight"
    BACKING_OFF = "backing_off"
    SNOOZED = "snoozed"
    PARKED = "parked"
    BLOCKED = "blocked"
    DEAD = "dead"


class Include(StrEnum):
    """Which messages a peek shows: claimable now (DUE), hidden for a while, due in the future, or all."""

    DUE = "due"
    HIDDEN = "hidden"
    FUTURE = "future"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message column. If it cannot be read, `problem` says why and `raw` has the bytes."""

    envelope: Envelope | None
    raw: bytes = b""
    problem: str | None = None

    @classmethod
    def of(cls, value: bytes | None) -> Content:
        """The content of a column's value; None is a missing column."""
        if value is None:
            return cls(None, problem="its message column is missing")
        try:
            return cls(decode(value))
        except ValueError as error:
            return cls(None, value, f"its message cannot be read: {error}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in the store."""

    id: MessageId
    content: Content

    @property
    def body(self) -> JsonValue:
        """The body as sent; None also if it cannot be read: see `problem`."""
        return self.content.envelope.body if self.content.envelope else None

    @property
    def key(self) -> str | None:
        """The sender's handle for the message."""
        return self.content.envelope.key if self.content.envelope else None

    @property
    def group(self) -> str | None:
        """Its message group; None without one, or if it cannot be read."""
        return self.content.envelope.group if self.content.envelope else None

    @property
    def headers(self) -> Mapping[str, str]:
        """Text metadata."""
        return (self.content.envelope.headers if self.content.envelope else None) or _NOTHING

    @property
    def priority(self) -> int:
        """The highest priority is handed out first."""
        return self.id.priority

    @property
    def sent(self) -> datetime | None:
        """When it was sent; None if the message cannot be read."""
        return instant(self.content.envelope.sent) if self.content.envelope else None

    @property
    def due(self) -> datetime:
        """When it was due for the first time."""
        return instant(self.id.moment)

    @property
    def expires(self) -> datetime | None:
        """From when on it is no longer handed out; None if it does not expire or cannot be read."""
        return _instant(self.content.envelope.expires if self.content.envelope else None)

    @property
    def raw(self) -> bytes:
        """The stored bytes of a message that cannot be read."""
        return self.content.raw

    @property
    def problem(self) -> str | None:
        """Why it cannot be read; None if it can."""
        return self.content.problem

    def _message_json(self) -> Json:
        shown: Json = {
            "id": str(self.id),
            "key": self.key,
            "group": self.group,
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
    """A message and its state.

    `spent` counts the attempts it used up. `hidden_until` (microseconds) is when it may be handed out, if that is later
    than now; `holder` is the process that has its lease; `reason` is why it is dead.
    """

    standing: Standing
    spent: int = 0
    hidden_until: int | None = None
    holder: str = ""
    reason: str = ""

    @property
    def until(self) -> datetime | None:
        """When its delay, lease or pause ends; None if it may be handed out now."""
        return _instant(self.hidden_until)

    def as_json(self) -> Json:
        """The message and its state."""
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
    """A message that is kept but no longer handed out, and why.

    `kind` is "rejected", "failed", "attempts", "expired" or "undecodable"; `died` is microseconds; `claim` is the nonce
    of the receipt with which it was dead-lettered, if any.
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
        death: Json = {
            "at": _text(self.at),
            "attempts": self.attempts,
            "kind": self.kind,
            "reason": self.reason,
            "claim": self.claim,
        }
        return self._message_json() | death


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Selects dead letters; a field left out matches all.

    `reason` is a part of the reason (case-insensitive); died from `since` on and before `until` (microseconds);
    `headers` must be present with exactly these values.
    """

    kind: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def asks_content(self) -> bool:
        """Whether the message itself must be read to decide."""
        return self.key is not None or bool(self.headers)

    def fits(self, kind: str, reason: str, died: int) -> bool:
        """Whether a death of this kind, reason and time (microseconds) matches."""
        return (
            self.kind in (None, kind)
            and (self.reason is None or self.reason.casefold() in reason.casefold())
            and (self.since is None or self.since <= died)
            and (self.until is None or died < self.until)
        )

    def fits_content(self, message: Stored) -> bool:
        """Whether the key and headers of the dead letter match."""
        return self.key in (None, message.key) and self.headers.items() <= message.headers.items()


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages are in each state; for a queue, `rows` has the counts of each of its rows."""

    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    backing_off: int = 0
    snoozed: int = 0
    parked: int = 0
    blocked: int = 0
    dead: int = 0
    rows: Mapping[str, Counts] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of_rows(cls, rows: Mapping[str, Counts]) -> Counts:
        """The sum of the counts of these rows."""
        sums = (sum(getattr(counts, standing) for counts in rows.values()) for standing in Standing)
        return replace(cls(*sums), rows=rows)

    @property
    def total(self) -> int:
        """The number of all messages, dead letters included."""
        return sum(self._by_standing().values())

    def _by_standing(self) -> dict[str, int]:
        return {standing.value: getattr(self, standing) for standing in Standing}

    def as_json(self) -> Json:
        """The counts, their total, and those of each row."""
        shown: Json = {**self._by_standing(), "total": self.total}
        return shown | {"rows": {row: counts.as_json() for row, counts in self.rows.items()}} if self.rows else shown


class ActiveProcess(NamedTuple):
    """A process that has a permit of a queue, or stands by for one, since a moment, and at most until another.

    Moments are microseconds since 1970. The name is that of its client: host, process id and a random part.
    """

    process: str
    since: int
    until: int

    def as_json(self) -> Json:
        """All fields, as JSON values."""
        return {"process": self.process, "since": exact(instant(self.since)), "until": exact(instant(self.until))}


@dataclass(frozen=True, slots=True)
class QueuePermits:
    """Which processes may claim from a queue, and which stand by; `limit` is `max_active_processes` (0: no limit)."""

    limit: int
    active: list[ActiveProcess]
    standby: list[ActiveProcess]

    def as_json(self) -> Json:
        """All fields, as JSON values."""
        return {
            "limit": self.limit,
            "active": [one.as_json() for one in self.active],
            "standby": [one.as_json() for one in self.standby],
        }


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """The result of a redrive, or what a dry run would do: dead letters that were put back, and those that were left.

    A dead letter is left if it would die again at once, or if another message has its unique key.
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
    """The result of a rescan: `rows` scanned, ids `looked` at, messages `listed` as due that no scan would have found.

    `unreadable` are rows it could not scan because their header or a timer cannot be read.
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
