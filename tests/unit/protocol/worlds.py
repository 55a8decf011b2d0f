"""Small worlds around one row: who holds what at the beginning, what the actors do, and a judge of how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.ids import Id
from astyqueue.model.envelope import Envelope, encode, encode_plain
from astyqueue.protocol.claiming.claim import Claim, ClaimResult, claim
from astyqueue.protocol.claiming.selection import ClaimedMessage, ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.layout.unique_key import NOTHING, settle_effects
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.settling.outcomes import ACK, Ack, Outcome, Reject
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Client, Commit, Steps, run
from astyqueue.store import Batch, Committed, Named, Put, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario, deterministic_client
from tests.modelcheck.schedule import Actor, Mode, Work
from tests.stores.conformance.defective_stores import Unguarded
from tests.unit.protocol.checked_store import ROW, Graves, Watched, picture

LEASE = 30 * SECOND
ATTEMPTS = 5


@dataclass
class Told:
    """What an actor learned: the messages it got, with their attempts, and what its settles came to."""

    handed: list[tuple[Id, int]] = field(default_factory=list)
    acked: set[Id] = field(default_factory=set)
    rejected: set[Id] = field(default_factory=set)
    lost: set[Id] = field(default_factory=set)

    def settled(self, outcomes: Mapping[Id, Outcome], settled: SettleResult) -> None:
        self.lost.update(settled.lost)
        done = {id_: outcome for id_, outcome in outcomes.items() if id_ not in settled.lost}
        self.acked.update(id_ for id_, outcome in done.items() if isinstance(outcome, Ack))
        self.rejected.update(id_ for id_, outcome in done.items() if isinstance(outcome, Reject))


def acking(held: ClaimedMessage) -> Outcome:
    """The ack of a message, with what goes along with it."""
    effects = settle_effects(held.entry.priority, held.entry.id, held.envelope)
    return ACK if effects == NOTHING else Ack(effects)


def put_at(moment: int, number: int = 0, *, priority: int = 0, sent: int | None = None, **options: object) -> Put:
    """A message with the id of a moment; `number` distinguishes those of one moment."""
    id_ = ids.first_at(moment)[:8] + bytes(7) + bytes([number + 1])
    plain = {
        "sent": sent or moment,
        "due": 0,
        "key": None,
        "headers": None,
        "expires": None,
        "lease": None,
        "attempts": None,
    }
    envelope = Envelope(**(plain | options), body=None)  # type: ignore[arg-type]  # an example's options are what the example says
    value = encode(envelope, b"%d" % number) if options else encode_plain(sent or moment, b"%d" % number)
    return message_put(priority, id_, value, sent=sent or moment)


class Scene:
    """A row in a store of its own, with a clock in the hand."""

    opens: ClassVar[Callable[[Clock], Store]] = MemoryStore

    def __init__(
        self, *, messages: int = 0, unguarded: tuple[int, ...] = (), graves: bool = False, row: str = ROW
    ) -> None:
        self.row = row
        self.clock = TimeMachine()
        store = Scene.opens(self.clock)
        if unguarded:
            store = Unguarded(store, types=unguarded)
        if graves:
            store = Graves(store, self.clock)
        self.store = self.watched(store)
        self._processes: dict[str, Client] = {}
        self.sent = self.send(messages)

    def watched(self, store: Store) -> Watched:
        return Watched(store, self.clock, self.row)

    @property
    def now(self) -> int:
        return self.clock.now()

    def survey(self, snapshot: RowSnapshot) -> None:
        """Have a process see the header as a plain read shows it."""
        [found] = self.store.read((Named(snapshot.row, (HEADER,)),))
        snapshot.check_header(found[0].value if found else None, self.now)

    def process(self, name: str) -> Client:
        """The process of this name, the same every time: its ids and nonces never come twice."""
        if name not in self._processes:
            self._processes[name] = deterministic_client(name, self.clock)
        return self._processes[name]

    def send(self, count: int, **options: object) -> list[Id]:
        """Messages of this moment, there at once."""
        puts = tuple(put_at(self.now, number, **options) for number in range(count))  # type: ignore[arg-type]  # as in put_at
        self.put(*puts)
        return [put.name.id for put in puts]

    def put(self, *puts: Put) -> None:
        if puts:
            self.store.send(Batch(self.row, puts))

    def do(
        self,
        name: str,
        *,
        snapshot: RowSnapshot | None = None,
        want: int = 10,
        leased_count: int = 0,
        lease: int = LEASE,
    ) -> ClaimResult:
        """One claim, at once."""
        steps = claim(
            self.process(name), snapshot or RowSnapshot(self.row, 1), ClaimRequest(want, lease, ATTEMPTS, leased_count)
        )
        return run(steps, self.store)

    def settle(
        self, taken: Claim, outcomes: Mapping[Id, Outcome], *, name: str = "ann", snapshot: RowSnapshot | None = None
    ) -> SettleResult:
        """Settle from a claim as it was handed out; the sight, if given, takes note of it."""
        settled = run(settle(self.process(name), self.row, SettleRequest(taken.timer, outcomes)), self.store)
        for settle_plan in settled.done if snapshot else ():
            snapshot.settled(settle_plan.timer_change)  # type: ignore[union-attr]  # it was asked in the line above
        return settled

    def acked(self, taken: Claim, *, snapshot: RowSnapshot | None = None) -> SettleResult:
        return self.settle(taken, {held.entry.id: acking(held) for held in taken.held}, snapshot=snapshot)

    def world(self, **actors: Actor) -> Scenario:
        """Played by these actors, and judged by `nothing_lost`."""

        def judged(history: History) -> str | None:
            self.nothing_lost(history)
            return None

        return Scenario(self.store, actors, judged)

    def nothing_lost(self, history: History) -> None:
        """All that was sent is settled or comes again, no answer was false, and no change was unlawful."""
        told = {name: result for name, result in history.results.items() if isinstance(result, Told)}
        acked = {id_ for one in told.values() for id_ in one.acked}
        if not any(event.choice.mode in (Mode.APPLIED, Mode.LOST) for event in history.events):
            ended = [id_ for one in told.values() for id_ in one.acked | one.rejected]
            assert len(ended) == len(set(ended)), "a message was settled by two"
            others = _removed_by_others(history, told)
            assert not others, f"{others[0]} was told of an ack, and another removed the message"
        assert acked <= self.store.gone, "an ack was reported that was not done"
        last = picture(self.store, self.row)
        there = last.messages - last.superseded
        assert set(self.sent) <= last.messages | self.store.gone, "a message is gone without a trace"
        again = self.everything_again()
        dead = picture(self.store, self.row).dead
        assert not last.superseded & picture(self.store, self.row).messages, "a superseded message stays"
        assert there - dead == set(again), f"{len(there - dead - set(again))} messages are stranded"
        assert not acked & set(again), "a message came again after its ack"
        self.store.require_lawful()

    def everything_again(self) -> dict[Id, int]:
        """What a newcomer gets that comes back every two hours, with the attempts spent; it settles what it gets."""
        found: dict[Id, int] = {}
        snapshot = RowSnapshot(self.row, 1)
        process = self.process("newcomer")
        for _ in range(3):
            self.clock.advance("2h")
            for claimed in self._all(process, snapshot):
                handed = [*claimed.at_most_once, *[held for taken in claimed.claims for held in taken.held]]
                found |= {held.entry.id: held.entry.spent for held in handed}
                for taken in claimed.claims:
                    self.acked(taken, snapshot=snapshot)
        return found

    def _all(self, process: Client, snapshot: RowSnapshot) -> Iterable[ClaimResult]:
        while True:
            claimed = run(claim(process, snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), self.store)
            yield claimed
            if not claimed.claims and not claimed.at_most_once and not claimed.more and not claimed.dead:
                return


def _removed_by_others(history: History, told: Mapping[str, Told]) -> list[str]:
    """The actors whose ack was reported as done although another's commit was the first to remove the message."""
    commits = [
        (actor, asked)
        for (actor, _), asked, answer in history.events
        if isinstance(asked, Commit) and isinstance(answer, Committed)
    ]
    removed: dict[Id, str] = {}
    for actor, asked in commits:
        for name in asked.batch.deletes:
            if name.type == Type.MESSAGE:
                removed.setdefault(name.id, actor)
    return [name for name, one in told.items() if any(removed.get(id_, name) != name for id_ in one.acked)]


def begin() -> None:
    """Asked for first, so that an actor looks at the clock when its turn comes and not before the story begins."""


@dataclass(frozen=True)
class Taking:
    """An actor that claims once and settles what it got one way, or keeps it if there is no outcome.

    `first` comes before all.
    """

    scene: Scene
    name: str
    snapshot: RowSnapshot | None = None
    outcome: Outcome | None = ACK
    want: int = 10
    first: Callable[[], None] | None = None

    def __call__(self) -> Work:
        process, told = self.scene.process(self.name), Told()
        if self.first:
            yield self.first
        claimed = yield from claim(
            process, self.snapshot or RowSnapshot(self.scene.row, 1), ClaimRequest(self.want, LEASE, ATTEMPTS)
        )
        for taken in claimed.claims:
            told.handed += [(held.entry.id, held.entry.spent) for held in taken.held]
            if self.outcome is not None:
                yield from _settled(process, taken, self.outcome, told)
        return told


def _settled(process: Client, taken: Claim, outcome: Outcome, told: Told) -> Steps[None]:
    outcomes = {held.entry.id: acking(held) if outcome is ACK else outcome for held in taken.held}
    settled = yield from settle(process, taken.row, SettleRequest(taken.timer, outcomes))
    told.settled(outcomes, settled)


def settler(scene: Scene, name: str, taken: Claim, *stages: Mapping[Id, Outcome]) -> Actor:
    """Settles what it holds, in stages, always from the claim as it was handed out."""

    def act() -> Work:
        process, told = scene.process(name), Told()
        for outcomes in stages:
            settled = yield from settle(process, taken.row, SettleRequest(taken.timer, outcomes))
            told.settled(outcomes, settled)
        return told

    return act


def joiner(scene: Scene, name: str, settling: list[SettleRequest], *, snapshot: RowSnapshot | None = None) -> Actor:
    """Settles together with its next claim, and acks what that brought."""

    def act() -> Work:
        process, told = scene.process(name), Told()
        claimed = yield from claim(
            process, snapshot or RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS, 1), settling=settling
        )
        for settlement in settling:
            told.settled(settlement.outcomes, claimed.settled[settlement.timer.name])
        for taken in claimed.claims:
            yield from _settled(process, taken, ACK, told)
        return told

    return act


def sender(scene: Scene, name: str, *puts: Put) -> Actor:
    """Sends these messages; once it returned they count as sent."""

    def act() -> Work:
        yield from send(scene.process(name), Batch(ROW, puts))
        scene.sent += [put.name.id for put in puts]

    return act


def warm(scene: Scene, name: str) -> RowSnapshot:
    """The snapshot of a process that read the row a moment ago and claimed nothing."""
    snapshot = RowSnapshot(ROW, 1)
    scene.do(name, snapshot=snapshot, want=0)
    return snapshot
