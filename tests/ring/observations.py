"""The contents of all journals as one history of the simulation's kind, so that the same checkers read both."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import DeadLetter
from astyqueue.protocol.layout.columns import Dead
from tests.ring.journal import Line, lines, parted
from tests.ring.worker import REASON
from tests.simulation.checkers.reference_model import ReferenceModel, RowModel
from tests.simulation.engine.history import Delivered, History, Result, RunRecord, Sent, Settled

_QUORUM: Final = 2
_NEVER: Final = 1 << 62
#: A hook's names of outcomes, and a history's.
_KINDS: Final = {"acked": "ack", "released": "release", "rejected": "reject"}


class Failure(NamedTuple):
    """A request that failed: when, and whether the store may have carried it out."""

    at: int
    unknown: bool


class Lease(NamedTuple):
    """A message that a worker had, from its claim until it was settled or claimed again.

    If neither happened, `settled` is after the end of every run. `journal` is that of the worker.
    """

    number: int
    nonce: bytes
    claimed: int
    delivered: int
    settled: int
    outcome: str
    journal: str


@dataclass(slots=True)
class _Claim:
    """A claim that was requested: when, and whether it was carried out, if that is known."""

    at: int
    ids: list[Id]
    done: bool | None = None


@dataclass(slots=True)
class Observations:
    """The contents of all journals."""

    history: History = field(default_factory=History)
    failures: list[Failure] = field(default_factory=list)
    sent_at: list[int] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    claims: dict[Id, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def record(self, dead: Iterable[DeadLetter]) -> RunRecord:
        """What the checkers read.

        Of the commits of a real store only the claims are known, and of its rows only what was left at the end.
        """
        row = RowModel(claims=self.claims)
        row.dead = {
            letter.id.id: Dead(letter.died, letter.attempts, letter.kind, letter.reason, letter.claim)
            for letter in dead
        }
        model = ReferenceModel(_QUORUM, "")
        model.rows["all"] = row
        return RunRecord(self.history, model, last_poll=0)


def read(journals: Iterable[Path]) -> Observations:
    """The contents of these journals."""
    answered = Observations()
    for journal in journals:
        _Reader(journal, answered).read()
    answered.leases = list(_while_leased(answered.leases))
    answered.history.sent.sort(key=lambda sent: sent.number)
    answered.history.delivered.sort(key=lambda delivered: delivered.answered)
    answered.failures.sort()
    answered.sent_at.sort()
    return answered


def _while_leased(leases: list[Lease]) -> Iterator[Lease]:
    """Each holding, ended at the latest when its message was claimed again."""
    leases.sort(key=lambda lease: (lease.number, lease.claimed))
    for lease, after in zip_longest(leases, leases[1:]):
        again = after is not None and after.number == lease.number
        yield lease._replace(settled=min(lease.settled, after.claimed)) if again else lease


class _Reader:
    """Reads one journal."""

    def __init__(self, journal: Path, answered: Observations) -> None:
        self._journal = journal
        self._observations = answered
        self._claims: dict[bytes, _Claim] = {}
        self._handed: dict[tuple[Id, bytes], Delivered] = {}
        self._settled: dict[tuple[Id, bytes], Settled] = {}
        self._sent: dict[int, list[Sent]] = {}
        self._unknowns: list[int] = []

    def read(self) -> None:
        """Read the whole journal."""
        words = {
            "sending": self._sending, "sent": self._were_sent, "refused": self._refused, "failed": self._failed,
            "claim": self._claim, "claimed": self._claimed, "delivered": self._was_delivered,
            "settle": self._settle, "settled": self._was_settled,
        }  # fmt: skip
        for line in lines(self._journal):
            if act := words.get(line.word):
                act(line)
        self._conclude()

    def _sending(self, line: Line) -> None:
        first, count = map(int, line.details)
        self._sent[first] = [Sent(number, line.at) for number in range(first, first + count)]
        self._observations.history.sent += self._sent[first]

    def _were_sent(self, line: Line) -> None:
        first, _, row, priority, packed = line.details
        for sent, id_ in zip(self._sent[int(first)], parted(packed), strict=True):
            sent.result, sent.message = Result.DONE, MessageId(row, int(priority), id_)
        self._observations.sent_at += [line.at] * len(self._sent[int(first)])

    def _refused(self, line: Line) -> None:
        for sent in self._sent[int(line.details[0])]:
            sent.result = Result.REFUSED

    def _failed(self, line: Line) -> None:
        unknown = line.details[0] == "unknown"
        self._observations.failures.append(Failure(line.at, unknown))
        self._unknowns += [line.at] * unknown

    def _claim(self, line: Line) -> None:
        nonce, packed = line.details
        self._claims[bytes.fromhex(nonce)] = _Claim(line.at, parted("" if packed == "-" else packed))

    def _claimed(self, line: Line) -> None:
        nonce, how = line.details
        self._claims[bytes.fromhex(nonce)].done = {"done": True, "refused": False, "undone": False}.get(how)

    def _was_delivered(self, line: Line) -> None:
        number, id_, attempt, nonce = line.details
        claim = self._claims[bytes.fromhex(nonce)]
        claim.done = True
        delivered = Delivered(
            int(number), bytes.fromhex(id_), int(attempt), bytes.fromhex(nonce), claim.at, line.at, self._journal.name
        )
        self._handed[delivered.id, delivered.nonce] = delivered
        self._observations.history.delivered.append(delivered)

    def _settle(self, line: Line) -> None:
        number, id_, nonce, outcome = line.details
        settled = Settled(
            int(number), bytes.fromhex(id_), _KINDS[outcome], bytes.fromhex(nonce), line.at, len(self._unknowns)
        )
        settled.reason = REASON if outcome == "rejected" else ""
        self._settled[settled.id, settled.nonce] = settled
        self._observations.history.settled.append(settled)

    def _was_settled(self, line: Line) -> None:
        _, id_, nonce, outcome = line.details
        if settled := self._settled.get((bytes.fromhex(id_), bytes.fromhex(nonce))):
            settled.answer(line.at, unknowns=len(self._unknowns), lost=outcome == "lost")

    def _conclude(self) -> None:
        """Add what is known only when the journal was read to its end."""
        for nonce, claim in self._claims.items():
            for id_ in claim.ids if claim.done is not False else ():
                self._observations.claims[id_].add(nonce)
        for key, delivered in self._handed.items():
            settled = self._settled.get(key)
            over = settled is not None and settled.result is Result.DONE
            outcome = ("lost" if settled.lost else settled.kind) if settled is not None and over else ""
            until = settled.answered if settled is not None and over else _NEVER
            self._observations.leases.append(
                Lease(
                    delivered.number,
                    delivered.nonce,
                    delivered.claimed,
                    delivered.answered,
                    until,
                    outcome,
                    delivered.client_name,
                )
            )


def between(moments: list[int], since: int, until: int) -> int:
    """How many of these sorted moments are in a period."""
    return bisect_left(moments, until) - bisect_left(moments, since)
