"""Small worlds around one row: who holds what at the beginning, what the actors do, and a judge of how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from astyqueue import ids
from astyqueue.clock import SECOND, Clock
from astyqueue.ids import Id
from astyqueue.model.message import Envelope, encode, encode_plain
from astyqueue.protocol.along import NOTHING, goes_along
from astyqueue.protocol.claim import Claim, Claimed, claim
from astyqueue.protocol.columns import HEADER
from astyqueue.protocol.outcomes import ACK, Ack, Settling
from astyqueue.protocol.picking import Held, Order
from astyqueue.protocol.process import Process
from astyqueue.protocol.send import message_put, send
from astyqueue.protocol.settle import Settled, Settlement, settle
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, run
from astyqueue.store import Batch, Named, Put, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import History, Mode, TimeMachine, Unguarded, World, repeatable_process
from astyqueue.testing.schedule import Actor, Work
from tests.unit.protocol.watched import ROW, Graves, Watched, picture

LEASE = 30 * SECOND
ATTEMPTS = 5


@dataclass
class Told:
    """What an actor was told: the messages it was handed, with their attempts, and what its settles came to."""

    handed: list[tuple[Id, int]] = field(default_factory=list)
    acked: set[Id] = field(default_factory=set)
    lost: set[Id] = field(default_factory=set)

    def settled(self, outcomes: Mapping[Id, Settling], settled: Settled) -> None:
        self.lost.update(settled.lost)
        self.acked.update(id_ for id_, outcome in outcomes.items() if isinstance(outcome, Ack) and id_ not in settled.lost)


def acking(held: Held) -> Settling:
    """The ack of a message, with what goes along with it."""
    along = goes_along(held.entry.priority, held.entry.id, held.envelope)
    return ACK if along == NOTHING else Ack(along)


def put_at(moment: int, number: int = 0, *, priority: int = 0, sent: int | None = None, **options: object) -> Put:
    """A message with the id of a moment; `number` tells those of one moment apart."""
    id_ = ids.first_at(moment)[:8] + bytes(7) + bytes([number + 1])
    plain = {"sent": sent or moment, "due": 0, "key": None, "headers": None, "expires": None, "lease": None, "attempts": None}
    value = encode(Envelope(**(plain | options), body=None), b"%d" % number) if options else encode_plain(sent or moment, b"%d" % number)  # type: ignore[arg-type]  # an example's options are what the example says
    return message_put(priority, id_, value, sent=sent or moment)


class Scene:
    """A row in a store of its own, with a clock in the hand."""

    opens: ClassVar[Callable[[Clock], Store]] = MemoryStore

    def __init__(self, *, messages: int = 0, unguarded: tuple[int, ...] = (), graves: bool = False, row: str = ROW) -> None:
        self.row = row
        self.clock = TimeMachine()
        store = Scene.opens(self.clock)
        if unguarded:
            store = Unguarded(store, types=unguarded)
        if graves:
            store = Graves(store, self.clock)
        self.store = self.watched(store)
        self._processes: dict[str, Process] = {}
        self.sent = self.send(messages)

    def watched(self, store: Store) -> Watched:
        return Watched(store, self.clock, self.row)

    @property
    def now(self) -> int:
        return self.clock.now()

    def survey(self, sight: Sight) -> None:
        """Have a process see the header as a plain read shows it."""
        [found] = self.store.read((Named(sight.row, (HEADER,)),))
        sight.surveyed(found[0].value if found else None, self.now)

    def process(self, name: str) -> Process:
        """The process of this name, the same every time: its ids and nonces never come twice."""
        if name not in self._processes:
            self._processes[name] = repeatable_process(name, self.clock)
        return self._processes[name]

    def send(self, count: int, **options: object) -> list[Id]:
        """Messages of this moment, there at once."""
        puts = tuple(put_at(self.now, number, **options) for number in range(count))  # type: ignore[arg-type]  # as in put_at
        self.put(*puts)
        return [put.name.id for put in puts]

    def put(self, *puts: Put) -> None:
        if puts:
            self.store.send(Batch(self.row, puts))

    def do(self, name: str, *, sight: Sight | None = None, want: int = 10, in_hand: int = 0, lease: int = LEASE) -> Claimed:
        """One claim, at once."""
        steps = claim(self.process(name), sight or Sight(self.row, 1), Order(want, lease, ATTEMPTS, in_hand))
        return run(steps, self.store)

    def settle(self, taken: Claim, outcomes: Mapping[Id, Settling], *, name: str = "ann", sight: Sight | None = None) -> Settled:
        """Settle from a claim as it was handed out; the sight, if given, takes note of it."""
        settled = run(settle(self.process(name), self.row, Settlement(taken.timer, outcomes)), self.store)
        for worked in settled.done if sight else ():
            sight.settled(worked)  # type: ignore[union-attr]  # it was asked in the line above
        return settled

    def acked(self, taken: Claim, *, sight: Sight | None = None) -> Settled:
        return self.settle(taken, {held.entry.id: acking(held) for held in taken.held}, sight=sight)

    def world(self, **actors: Actor) -> World:
        """Played by these actors, and judged by `nothing_lost`."""

        def judged(history: History) -> str | None:
            self.nothing_lost(history)
            return None

        return World(self.store, actors, judged)

    def nothing_lost(self, history: History) -> None:
        """All that was sent is settled or comes again, nobody was told what is not so, and no change was unlawful."""
        told = [result for result in history.results.values() if isinstance(result, Told)]
        acks = [id_ for one in told for id_ in one.acked]
        acked = set(acks)
        if not any(event.choice.mode in (Mode.APPLIED, Mode.LOST) for event in history.events):
            assert len(acks) == len(acked), "a message was acked by two"
        assert acked <= self.store.gone, "an ack was reported that was not done"
        there = picture(self.store, self.row).messages
        assert set(self.sent) <= there | self.store.gone, "a message is gone without a trace"
        again = self.everything_again()
        dead = picture(self.store, self.row).dead
        assert there - dead == set(again), f"{len(there - dead - set(again))} messages are stranded"
        assert not acked & set(again), "a message came again after its ack"
        self.store.require_lawful()

    def everything_again(self) -> dict[Id, int]:
        """What a newcomer is handed who comes back every two hours, with the attempts spent; it settles what it gets."""
        found: dict[Id, int] = {}
        sight = Sight(self.row, 1)
        process = self.process("newcomer")
        for _ in range(3):
            self.clock.advance("2h")
            for taken in self._all(process, sight):
                found |= {held.entry.id: held.entry.spent for held in taken.held}
                self.acked(taken)
        return found

    def _all(self, process: Process, sight: Sight) -> Iterable[Claim]:
        while True:
            claimed = run(claim(process, sight, Order(200, LEASE, ATTEMPTS)), self.store)
            yield from claimed.claims
            if not claimed.claims and not claimed.more and not claimed.dead:
                return


def begin() -> None:
    """Asked for first, so that an actor looks at the clock when its turn comes and not before the story begins."""


@dataclass(frozen=True)
class Taking:
    """An actor that claims once and settles what it got one way; with no outcome it keeps it. `first` comes before all."""

    scene: Scene
    name: str
    sight: Sight | None = None
    outcome: Settling | None = ACK
    want: int = 10
    first: Callable[[], None] | None = None

    def __call__(self) -> Work:
        process, told = self.scene.process(self.name), Told()
        if self.first:
            yield self.first
        claimed = yield from claim(process, self.sight or Sight(self.scene.row, 1), Order(self.want, LEASE, ATTEMPTS))
        for taken in claimed.claims:
            told.handed += [(held.entry.id, held.entry.spent) for held in taken.held]
            if self.outcome is not None:
                yield from _settled(process, taken, self.outcome, told)
        return told


def _settled(process: Process, taken: Claim, outcome: Settling, told: Told) -> Steps[None]:
    outcomes = {held.entry.id: acking(held) if outcome is ACK else outcome for held in taken.held}
    settled = yield from settle(process, taken.row, Settlement(taken.timer, outcomes))
    told.settled(outcomes, settled)


def settler(scene: Scene, name: str, taken: Claim, *stages: Mapping[Id, Settling]) -> Actor:
    """Settles what it holds, in stages, always from the claim as it was handed out."""

    def act() -> Work:
        process, told = scene.process(name), Told()
        for outcomes in stages:
            settled = yield from settle(process, taken.row, Settlement(taken.timer, outcomes))
            told.settled(outcomes, settled)
        return told

    return act


def joiner(scene: Scene, name: str, settling: list[Settlement], *, sight: Sight | None = None) -> Actor:
    """Settles together with its next claim, and acks what that brought."""

    def act() -> Work:
        process, told = scene.process(name), Told()
        claimed = yield from claim(process, sight or Sight(ROW, 1), Order(10, LEASE, ATTEMPTS, 1), settling=settling)
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


def warm(scene: Scene, name: str) -> Sight:
    """The sight of somebody who looked at the row a moment ago and took nothing."""
    sight = Sight(ROW, 1)
    scene.do(name, sight=sight, want=0)
    return sight
