"""An event of a queue's history: what happened to a message or a schedule, when, and in which worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.model.envelope import MessageId
from astyqueue.text import exact

Json = dict[str, JsonValue]


class Kind(StrEnum):
    """The kind of an event, in the order in which events of one moment are listed.

    An attempt that failed is FAILED, and its message is then RETRIED (to be handed out again) or DEAD (a dead letter).
    RELEASED: handed back without using up an attempt. UNKNOWN: written by a newer astyqueue.
    """

    SENT = "sent"
    CLAIMED = "claimed"
    DONE = "done"
    FAILED = "failed"
    RETRIED = "retried"
    RELEASED = "released"
    DEAD = "dead"
    REDRIVEN = "redriven"
    CANCELLED = "cancelled"
    FIRED = "fired"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


def kind_of(written: str) -> Kind:
    """The kind of this name; an unknown name raises BadInput."""
    try:
        return Kind(written)
    except ValueError as error:
        problem = f"{written!r} is not a kind of event: use one of {', '.join(Kind)}"
        raise BadInput(problem) from error


#: The events that a queue keeps: none, failures and what followed them, or all.
Keeping = Literal["none", "failures", "all"]
_FAILURES: Final = frozenset({Kind.FAILED, Kind.RETRIED, Kind.DEAD, Kind.REDRIVEN, Kind.SKIPPED})
#: The kinds of events that each setting keeps.
KEPT: Final[Mapping[Keeping, frozenset[Kind]]] = MappingProxyType(
    {"none": frozenset(), "failures": _FAILURES, "all": frozenset(Kind)}
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a queue's history; all instants are microseconds since 1970, or None.

    `key` is the message's; an event of a schedule (FIRED, SKIPPED) has the schedule's name there. `worker` caused the
    event or had the lease: host, process id and a random part. `task`, `schedule` and `tenant` are the message's
    headers of those names.

    `sent`, `due` (for the first time), `claimed` (this attempt was handed to the worker) and `began` (its handler did)
    are repeated in the event that ends an attempt, so that a missing earlier event loses nothing. `until` is when the
    message is visible again, `slot` the schedule's occurrence.

    `why` is one word: the kind of a dead letter ("rejected", "failed", "attempts", "expired", "undecodable"), or how a
    message was released or cancelled. `reason` is a line for people, `trace` the traceback. `lost`: the event
    was written but did not take effect, because the receipt was no longer current.

    `raw` is the number of the kind and the stored value, if it has more than this version understands; else empty.
    """

    at: int
    kind: Kind
    queue: str
    message: MessageId | None = None
    key: str | None = None
    attempt: int = 0
    worker: str = ""
    task: str | None = None
    schedule: str | None = None
    tenant: str | None = None
    sent: int | None = None
    due: int | None = None
    claimed: int | None = None
    began: int | None = None
    until: int | None = None
    slot: int | None = None
    why: str = ""
    reason: str = ""
    trace: str = ""
    lost: bool = False
    raw: str = ""

    @property
    def when(self) -> datetime:
        """When it happened."""
        return instant(self.at)

    @property
    def host(self) -> str:
        """The host name of the worker."""
        return self.worker.partition(":")[0]

    @property
    def failure(self) -> str:
        """The reason with its variable parts replaced, so that failures of one cause are equal."""
        return normalised(self.reason)

    @property
    def waited(self) -> int | None:
        """Microseconds from when the message was due until this attempt began, for the first attempt."""
        return _between(self.due, self.began) if self.attempt == 1 else None

    @property
    def ran(self) -> int | None:
        """Microseconds from the start of the handler to this event, if it ends an attempt."""
        return _between(self.began, self.at) if self.kind in _ENDS else None

    @property
    def took(self) -> int | None:
        """Microseconds from the sending of the message until it was done or dead."""
        return _between(self.sent, self.at) if self.kind in _LAST else None

    def flat(self) -> dict[str, str | int | bool | None]:
        """The event as plain values, under the names of `FLAT` and in their order."""
        plain: dict[str, str | int | bool | None] = {}
        for name in FLAT:
            value = getattr(self, name)
            plain[name] = str(value) if isinstance(value, MessageId | Kind) else value
        return plain

    def as_json(self) -> Json:
        """The values that are set, with instants as text."""
        known = {name: value for name, value in self.flat().items() if value or (value == 0 and FLAT[name] == "length")}
        return {
            name: _text(value) if FLAT[name] == "instant" and isinstance(value, int) else value
            for name, value in known.items()
        }


_ENDS: Final = frozenset({Kind.DONE, Kind.FAILED, Kind.RELEASED})
_LAST: Final = frozenset({Kind.DONE, Kind.DEAD})

#: The plain values of an event: text, number, flag, an instant (microseconds since 1970) or a length of time
#: (microseconds).
FLAT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "queue": "text",
        "at": "instant",
        "kind": "text",
        "message": "text",
        "key": "text",
        "attempt": "number",
        "worker": "text",
        "host": "text",
        "task": "text",
        "schedule": "text",
        "tenant": "text",
        "sent": "instant",
        "due": "instant",
        "claimed": "instant",
        "began": "instant",
        "until": "instant",
        "slot": "instant",
        "waited": "length",
        "ran": "length",
        "took": "length",
        "why": "text",
        "reason": "text",
        "failure": "text",
        "trace": "text",
        "lost": "flag",
        "raw": "text",
    }
)

#: The parts in which failures of one cause differ: quoted text, ids, addresses, numbers.
_DIFFERS: Final = re.compile(
    r"""
    (?P<quoted> (?<!\w)'[^']*'(?!\w) | "[^"]*" )
    | (?P<id> \b [0-9a-f]{8} (?: -[0-9a-f]{4} ){3} -[0-9a-f]{12} \b )
    | (?P<hex> \b 0x[0-9a-f]+ \b | \b (?=[0-9a-f]*\d) (?=[0-9a-f]*[a-f]) [0-9a-f]{8,} \b )
    | (?P<number> \d+ (?: [.,:]\d+ )* )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NORMAL_LENGTH: Final = 200


def normalised(reason: str) -> str:
    """A reason with its variable parts replaced by their kind: "no user 4711" becomes "no user <number>"."""
    return _DIFFERS.sub(lambda found: f"<{found.lastgroup}>", reason)[:_NORMAL_LENGTH]


def _between(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else max(0, last - first)


def _text(moment: int) -> str:
    return exact(instant(moment))
