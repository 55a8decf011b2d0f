"""The history of a simulation, and the record that checkers read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from tests.simulation.checkers.reference_model import ReferenceModel
from tests.simulation.workload.locks import LockNotes


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A history, the true contents of the rows, and how many tombstones a last message and an idle poll passed over."""

    history: History
    model: ReferenceModel
    last_poll: int
    locks: LockNotes | None = None

    def dead(self) -> dict[Id, str]:
        """The dead letters at the end, with their reasons."""
        return {id_: letter.reason for row in self.model.rows.values() for id_, letter in row.dead.items()}

    def died(self) -> set[Id]:
        """The messages that were dead letters at some time."""
        return {id_ for row in self.model.rows.values() for id_ in row.died}

    def lost_their_keys(self) -> set[Id]:
        """The messages whose key another one took in its commit: they were cancelled, or superseded while leased."""
        return {id_ for row in self.model.rows.values() for id_ in row.replaced | row.superseded}

    def orders(self, id_: Id, row: str) -> Iterator[Removed]:
        """The operators' commands that may have removed this message, if they were carried out in time."""
        return (
            one
            for one in self.history.removed
            if one.what != "redrive" and (one.row == row if one.ids is None else id_ in one.ids)
        )

    def removed(self, sent: Sent) -> bool:
        """Whether an operator may have removed this message after its own send began, or another one took its key."""
        if sent.message is None:
            return False
        orders = self.orders(sent.message.id, sent.message.row)
        if any(one.result is not Result.DONE or one.answered >= sent.began for one in orders):
            return True
        return bool(sent.key) and sent.message.id in self.lost_their_keys()

    def comes_again(self) -> set[Id]:
        """The messages that may be sent again although an operator removed them.

        These are messages of repeatable sends whose row was cleared, or that were purged as dead letters.
        """
        sent = (one.message for one in self.history.sent if one.repeats and one.message)
        return {
            one.id for one in sent if any(order.what in ("clear", "purge") for order in self.orders(one.id, one.row))
        }

    def replacing(self, sent: Sent) -> Iterator[Sent]:
        """The sends whose messages may have taken the key of this one, if a commit shows that one did."""
        taken = sent.key and sent.message and sent.message.id in self.lost_their_keys()
        others = self.history.sent if taken else ()
        return (other for other in others if other.key == sent.key and other is not sent and other.replaces)


#: Yields what is wrong with a history, one sentence each.
Checker = Callable[[RunRecord], Iterator[str]]


class Result(StrEnum):
    """The outcome of a request as its caller knows it."""

    DONE = "done"
    REFUSED = "refused"  # the error said that nothing was changed
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Sent:
    """A message, by the number that is its body; its id is known if the send returned.

    `clock_error` is that of its sender, in microseconds. For a unique key, `unique` is the policy for a key that is
    taken, and `holder` is the message that was named as the key's owner if this one was not sent for that reason. A
    message that `repeats` may be sent again by the same call.
    """

    number: int
    began: int
    result: Result = Result.UNKNOWN
    message: MessageId | None = None
    clock_error: int = 0
    answered: int = 0
    key: str = ""
    unique: str = ""
    holder: Id | None = None
    repeats: bool = False
    group: str = ""

    @property
    def replaces(self) -> bool:
        """Whether it took the key of the message that had it, or may have done so."""
        return self.unique in ("replace", "debounce", "supersede") and self.result is not Result.REFUSED


@dataclass(slots=True)
class Delivered:
    """A delivery. `claimed` is when the commit that claimed it was requested."""

    number: int
    id: Id
    attempt: int
    nonce: bytes
    claimed: int
    answered: int
    client_name: str


@dataclass(slots=True)
class Settled:
    """An outcome that a process requested for a delivery; `lost` if the receipt was reported as no longer current.

    `unknowns` counts the unknown outcomes that the process had met when the request began, and, once the request is
    answered, those met since then.
    """

    number: int
    id: Id
    kind: str
    nonce: bytes
    began: int
    unknowns: int
    answered: int = 0
    result: Result = Result.UNKNOWN
    lost: bool = False
    reason: str = ""

    def answer(self, now: int, *, unknowns: int, lost: bool) -> None:
        """Note that the message was settled, or the receipt lost."""
        self.answered, self.result, self.lost = now, Result.DONE, lost
        self.unknowns = unknowns - self.unknowns


@dataclass(slots=True)
class Removed:
    """An operator's command: `what` (delete, clear, purge, redrive) on messages, or on a whole row.

    `found` is whether the answer said that there was anything to do.
    """

    what: str
    row: str
    began: int
    ids: list[Id] | None = None
    answered: int = 0
    result: Result = Result.UNKNOWN
    found: bool = True


@dataclass(frozen=True, slots=True)
class ExpensivePoll:
    """A poll that found nothing and cost too much.

    It passed one tombstone, now for the `times`th time, or the tombstones of all these messages `ahead` of the head.
    """

    client_name: str
    row: str
    times: int
    ahead: frozenset[Id]


@dataclass(frozen=True, slots=True)
class LateBegin:
    """A message into an idle queue that began `late` microseconds too late; None: not while anybody waited for it."""

    number: int
    queue: str
    late: int | None


@dataclass(slots=True)
class Saved:
    """A schedule that a process created, with its number of occurrences."""

    name: str
    row: str
    occurrences: int
    began: int
    result: Result = Result.UNKNOWN


class ClaimAhead(NamedTuple):
    """When a claim began, and by how much its process's clock was ahead (microseconds)."""

    began: int
    clock_error: int


@dataclass(slots=True)
class History:
    """Everything that happened, each kind in the order in which it began. `steps` counts what was done, by name.

    `operations` counts steps of the protocol that began, however many messages each concerned. `idle_polls` counts
    polls that found nothing in a row of which everything was known; `expensive_polls` lists those of them that cost too
    much. `late_begins` are the messages that idle queues found too late. `reader_error` is the largest error, in
    microseconds, of the clock of any process when it claimed, and `ahead` lists the claims by a clock that was ahead.
    """

    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    reader_error: int = 0
    ahead: list[ClaimAhead] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    idle_polls: int = 0
    expensive_polls: list[ExpensivePoll] = field(default_factory=list)
    late_begins: list[LateBegin] = field(default_factory=list)

    def begins(self, *names: str) -> None:
        """Count a step of the protocol that begins, under one name, or under that of each outcome it is to commit."""
        self.operations += 1
        for name in names:
            self.steps[name] += 1

    def claims(self, began: int, clock_error: int) -> None:
        """Note a claim by a process whose clock is off by this, in microseconds."""
        self.reader_error = max(self.reader_error, abs(clock_error))
        if clock_error > 0:
            self.ahead.append(ClaimAhead(began, clock_error))

    def send(self, began: int, key: str = "", unique: str = "", *, group: str = "") -> Sent:
        """Add one more message."""
        sent = Sent(len(self.sent), began, key=key, unique=unique, group=group)
        self.sent.append(sent)
        return sent
