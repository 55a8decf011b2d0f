"""One row of a queue in a memory store, who acts on it, and who comes in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeVar

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.errors import OutcomeUnknown
from astyqueue.model.envelope import Envelope, MessageId, encode
from astyqueue.model.views import Counts, DeadLetter
from astyqueue.protocol.admin.browse import counts
from astyqueue.protocol.admin.dead_letters import dead_page
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, Header, decode_header
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Client, Commit, Request, Steps, run
from astyqueue.store import Batch, Column, Named, Slice, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import deterministic_client

T = TypeVar("T")
ROW: Final = "mail:0:0"
LEASE: Final = 60 * SECOND


class Stage:
    """A row, and short words for what happens on it."""

    opens: ClassVar[Callable[[Clock], Store]] = MemoryStore

    def __init__(self, levels: int = 1) -> None:
        self.levels = levels
        self.clock = TimeMachine()
        self.store = Stage.opens(self.clock)
        self.ann = deterministic_client("ann", self.clock)
        self.bob = deterministic_client("bob", self.clock)
        self.cyd = deterministic_client("cyd", self.clock)
        self._numbers = itertools.count()

    def run(self, steps: Steps[T], store: Store | None = None) -> T:
        return run(steps, store or self.store)

    def send(
        self,
        body: str = "",
        *,
        row: str = ROW,
        priority: int = 0,
        delay: int = 0,
        expires: int | None = None,
        group: str | None = None,
    ) -> MessageId:
        """A message that is due after `delay` seconds; its body is also its key and its header `task`."""
        due = self.clock.now() + delay * SECOND
        value = self.value(body, due=due, expires=expires, group=group)
        return self.put(value, due, row=row, priority=priority)

    def value(
        self, body: str, *, due: int | None = None, expires: int | None = None, group: str | None = None
    ) -> bytes:
        """What the column of such a message holds; it is due now if there is no `due`."""
        now = self.clock.now()
        due = now if due is None else due
        envelope = Envelope(now, due, body, {"task": body}, expires, None, None, None, group=group)
        return encode(envelope, b'"%b"' % body.encode())

    def put(self, value: bytes, due: int, *, row: str = ROW, priority: int = 0) -> MessageId:
        """A message column with this value."""
        id_ = ids.first_at(due)[:8] + next(self._numbers).to_bytes(8)
        self.run(send(self.ann, Batch(row, (message_put(priority, id_, value, sent=self.clock.now()),))))
        return MessageId(row, priority, id_)

    def send_many(self, count: int) -> list[MessageId]:
        return [self.send(f"m{number}") for number in range(count)]

    def claiming(self, count: int, by: Client) -> Steps[list[Claim]]:
        claimed = yield from claim(by, RowSnapshot(ROW, self.levels), ClaimRequest(count, LEASE, 5))
        return claimed.claims

    def claim(self, count: int, by: Client | None = None) -> list[Claim]:
        return self.run(self.claiming(count, by or self.ann))

    def settle(self, claimed: Claim, outcome: Outcome, *which: MessageId) -> SettleResult:
        """Settle these messages of a claim, or all of them."""
        chosen = [message.id for message in which] or [held.entry.id for held in claimed.held]
        return self.run(settle(self.ann, ROW, SettleRequest(claimed.timer, dict.fromkeys(chosen, outcome))))

    def is_held(self, claimed: Claim, message: MessageId) -> bool:
        """Whether the receipt of this message is current: its lease can be extended."""
        return not self.settle(claimed, Extend(self.clock.now() + 2 * LEASE), message).lost

    def bury(self, *bodies: str, reason: str = "no such address") -> list[MessageId]:
        """Dead letters with these bodies; nothing else may be waiting."""
        sent = [self.send(body) for body in bodies]
        for taken in self.claim(len(sent)):
            self.settle(taken, Reject("rejected", reason, 1))
        return sent

    def bury_undecodable(self) -> MessageId:
        """A dead letter that cannot be read; nothing else may be waiting."""
        sent = self.put(b"\x63what is this", self.clock.now())
        self.claim(1)
        return sent

    def dead(self) -> list[DeadLetter]:
        """The dead letters of the row, if they are few."""
        return self.run(dead_page([ROW], 1)).letters

    def drain(self) -> list[MessageId]:
        """What can be claimed now, by a process that knows nothing of the row; it is acked."""
        done: list[MessageId] = []
        while claims := self.claim(200, self.cyd):
            for taken in claims:
                done += [MessageId(ROW, held.entry.priority, held.entry.id) for held in taken.held]
                self.settle(taken, ACK)
        return sorted(done)

    def counts(self, row: str = ROW) -> Counts:
        return self.run(counts(self.ann, [row], levels=self.levels)).rows[row]

    def columns(self, kind: int, row: str = ROW) -> list[Column]:
        return self.store.read((Slice(row, kind),))[0]

    def kinds(self, row: str = ROW) -> set[int]:
        """The types of columns that are there."""
        return {kind for kind in range(7) if self.columns(kind, row)}

    def header(self, row: str = ROW) -> Header | None:
        found = self.store.read((Named(row, (HEADER,)),))[0]
        return decode_header(row, found[0].value) if found else None


class Meddling(Faulty):
    """Another process comes in between: before each of the first commits the next of these is called."""

    def __init__(self, store: Store, meddlers: Iterable[Callable[[], object]]) -> None:
        super().__init__(store)
        self._meddlers = iter(meddlers)
        self.commits = 0

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            self.commits += 1
            next(self._meddlers, lambda: None)()
        return super().perform(request)


class Unanswered(Faulty):
    """The first `times` commits have an unknown outcome; `instead` is what really happens."""

    def __init__(self, store: Store, instead: Callable[[Commit], object], *, times: int = 1) -> None:
        super().__init__(store)
        self._instead = instead
        self._times = times
        self.commits = 0

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            self.commits += 1
            if self.commits <= self._times:
                self._instead(request)
                raise OutcomeUnknown
        return super().perform(request)
