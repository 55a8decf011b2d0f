"""What the clients of a simulated world did and were told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from astyqueue.ids import Id
from astyqueue.model.message import MessageId


class Result(StrEnum):
    """What somebody was told of what he asked for."""

    DONE = "done"
    REFUSED = "refused"  # it was said to have changed nothing
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Sent:
    """A message, by the number that is its body; its id is known if the send returned. `clock_error` is its sender's, in microseconds.

    One with a unique key says what was wanted if the key was taken, and, if it was not sent for that, which message was
    said to have it. One that `repeats` may be sent again by the same call.
    """

    number: int
    began: int
    result: Result = Result.UNKNOWN
    message: MessageId | None = None
    clock_error: int = 0
    told: int = 0
    key: str = ""
    unique: str = ""
    holder: Id | None = None
    repeats: bool = False

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of the message that has its key, or may have done so."""
        return self.unique in ("replace", "debounce") and self.result is not Result.REFUSED


@dataclass(slots=True)
class Handed:
    """A delivery. `claimed` is when the commit that took it was asked for."""

    number: int
    id: Id
    attempt: int
    nonce: bytes
    claimed: int
    told: int
    who: str


@dataclass(slots=True)
class Settled:
    """An outcome that somebody wanted for what it held. `lost` if the receipt was said to be no longer current.

    `unknowns` are the unknown outcomes that its process had met by its beginning, and, once it is told, since then.
    """

    number: int
    id: Id
    kind: str
    nonce: bytes
    began: int
    unknowns: int
    told: int = 0
    result: Result = Result.UNKNOWN
    lost: bool = False
    reason: str = ""

    def tell(self, now: int, *, unknowns: int, lost: bool) -> None:
        """It is settled, or lost."""
        self.told, self.result, self.lost = now, Result.DONE, lost
        self.unknowns = unknowns - self.unknowns


@dataclass(slots=True)
class Removed:
    """An order of a person: `what` (delete, clear, purge, redrive) on one message, or on a whole row.

    `found` is whether it was said that there was anything to do.
    """

    what: str
    row: str
    began: int
    ids: list[Id] | None = None
    told: int = 0
    result: Result = Result.UNKNOWN
    found: bool = True


@dataclass(slots=True)
class Saved:
    """A schedule that somebody made, with so many slots."""

    name: str
    row: str
    slots: int
    began: int
    result: Result = Result.UNKNOWN


@dataclass(slots=True)
class History:
    """All of it, each kind in the order in which it began. `steps` counts what was done, by name.

    `reader_error` is the most, in microseconds, that the clock of anybody was off who claimed by it.
    """

    sent: list[Sent] = field(default_factory=list)
    handed: list[Handed] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    reader_error: int = 0
    steps: Counter[str] = field(default_factory=Counter)

    def send(self, began: int, key: str = "", unique: str = "") -> Sent:
        """One more message."""
        sent = Sent(len(self.sent), began, key=key, unique=unique)
        self.sent.append(sent)
        return sent
