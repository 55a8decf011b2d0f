"""What a history is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from astyqueue.ids import Id
from astyqueue.model.message import MessageId
from tests.simulation.checkers.reference_model import Truth
from tests.simulation.workload.locks import LockNotes


@dataclass(frozen=True, slots=True)
class Evidence:
    """A history, what really stood in the rows, and how many graves a last message and a poll without any walked over."""

    history: History
    truth: Truth
    last_poll: int
    locks: LockNotes | None = None

    def dead(self) -> dict[Id, str]:
        """The dead letters there are at the end, with their reasons."""
        return {id_: letter.reason for row in self.truth.rows.values() for id_, letter in row.dead.items()}

    def died(self) -> set[Id]:
        """The messages that were dead letters at some time."""
        return {id_ for row in self.truth.rows.values() for id_ in row.died}

    def orders(self, id_: Id, row: str) -> Iterator[Removed]:
        """What people ordered that may have removed this message, if it was carried out in time."""
        return (
            one
            for one in self.history.removed
            if one.what != "redrive" and (one.row == row if one.ids is None else id_ in one.ids)
        )

    def removed(self, sent: Sent) -> bool:
        """Whether somebody may have removed it, or put another in its place, after its send began."""
        if sent.message is None:
            return False
        orders = self.orders(sent.message.id, sent.message.row)
        if any(one.result is not Result.DONE or one.told >= sent.began for one in orders):
            return True
        return any(other.result is Result.UNKNOWN or other.told >= sent.began for other in self.replacing(sent))

    def comes_again(self) -> set[Id]:
        """The messages that may be sent again although somebody removed them: repeatable ones whose row was cleared, or letters purged."""
        sent = (one.message for one in self.history.sent if one.repeats and one.message)
        return {
            one.id for one in sent if any(order.what in ("clear", "purge") for order in self.orders(one.id, one.row))
        }

    def replacing(self, sent: Sent) -> Iterator[Sent]:
        """The sends that may have put themselves in the place of this one."""
        others = self.history.sent if sent.key else ()
        return (other for other in others if other.key == sent.key and other is not sent and other.replaces)


#: A judgement: what is wrong with a history, one sentence each.
Oracle = Callable[[Evidence], Iterator[str]]


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


@dataclass(frozen=True, slots=True)
class Dear:
    """A poll that found nothing and walked over much: a grave `times` times by now, or the graves of all these `ahead` of the head."""

    who: str
    row: str
    times: int
    ahead: frozenset[Id]


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

    `operations` are steps of the protocol that began, however many messages each was about; `idle_polls` are polls that found
    nothing in a row of which everything was known, `dear` those of them that cost too much. `reader_error` is the most, in
    microseconds, that the clock of anybody was off who claimed by it.
    """

    sent: list[Sent] = field(default_factory=list)
    handed: list[Handed] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    reader_error: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    idle_polls: int = 0
    dear: list[Dear] = field(default_factory=list)

    def begins(self, *names: str) -> None:
        """A step of the protocol begins, under one name, or under that of each outcome which it is to commit."""
        self.operations += 1
        self.steps.update(names)

    def send(self, began: int, key: str = "", unique: str = "") -> Sent:
        """One more message."""
        sent = Sent(len(self.sent), began, key=key, unique=unique)
        self.sent.append(sent)
        return sent
