"""Scenes around one unique key: a row in which messages may have it, a check of its keys, and what actors do."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreCorrupt
from astyqueue.ids import Id
from astyqueue.model.envelope import Envelope, MessageId, decode, encode
from astyqueue.model.schedule import Origin
from astyqueue.protocol.admin.dead_letters import purge, redrive
from astyqueue.protocol.admin.delete import clear, delete
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimedMessage, ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.schedule_column import decode_schedule
from astyqueue.protocol.layout.unique_key import KeyOwner, KeyOwningSchedule, decode_owner, settle_effects
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.key_state import next_run_of
from astyqueue.protocol.sending.unique import UniqueMessage, send_replacing, send_unique
from astyqueue.protocol.settling.outcomes import Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, Commit, Request, Send, Steps, run
from astyqueue.store import Column, Slice, Store
from astyqueue.testing import Faulty
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.schedule import Actor, Advance, Work
from tests.unit.protocol.checked_store import Watched
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, acking, begin

HOME: Final = "tasks:home:0"
KEY: Final = "welcome:ada"
#: How long a message of a scene in which one expires may wait.
SHELF: Final = 10


@dataclass(frozen=True)
class Sending:
    """What became of a unique send: its own id, and that of the message that has the key then; None if unknown."""

    own: Id
    holder: Id | None
    sent: bool = False


class KeyWatch(Watched):
    """Watches the keys of a row too.

    `ever` are messages that were there at some time, `promised` the next runs that schedules had.
    """

    def __init__(self, scene: KeyScene, store: Store) -> None:
        super().__init__(store, scene.clock, scene.row)
        self.ever: set[Id] = set()
        self.promised: set[Id] = set()

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if not isinstance(request, Commit | Send):
            return answer
        self.ever |= self._last.messages
        if back := self._last.messages & self.gone:
            self.wrong.append(f"{len(back)} messages came back after they were gone")
        self.wrong += self.wrong_keys()
        return answer

    def wrong_keys(self) -> Iterator[str]:
        """What no keys may look like: what lives and has a key is named by that, and each key names what lives."""
        messages, keys, triggers = self._store.read(
            tuple(Slice(self._row, kind) for kind in (Type.MESSAGE, Type.KEY, Type.TRIGGER))
        )
        elsewhere = self._last.dead | self._last.superseded
        living = {column.name.id: decode(column.value) for column in messages if column.name.id not in elsewhere}
        schedules = [decode_schedule(self._row, column.value) for column in triggers]
        self.promised |= {next_run_of(schedule).id for schedule in schedules}
        owners = list(_readable(self._row, keys))
        singles: list[KeyOwner | KeyOwningSchedule] = [
            KeyOwner(envelope.key, 0, id_) for id_, envelope in living.items() if envelope.unique and envelope.key
        ]
        repeated: list[KeyOwner | KeyOwningSchedule] = [
            KeyOwningSchedule(one.name, one.creation_nonce) for one in schedules if one.origin is Origin.MESSAGE
        ]
        if missing := Counter([*singles, *repeated]) - Counter(owners):
            yield f"{missing.total()} living messages do not have their keys"
        if any(
            owner not in repeated if isinstance(owner, KeyOwningSchedule) else owner.id not in living
            for owner in owners
        ):
            yield "a key names a message that is gone or dead"
        if any(times > 1 for times in Counter(one.key for one in [*singles, *repeated]).values()):
            yield "two living messages have one key"


def _readable(row: str, keys: list[Column]) -> Iterator[KeyOwner | KeyOwningSchedule]:
    for column in keys:
        with contextlib.suppress(StoreCorrupt):
            yield decode_owner(row, column.value)


class Careless(Faulty):
    """Commits that take or free keys, without their expectations on columns of these types."""

    def __init__(self, store: Store, types: tuple[int, ...]) -> None:
        super().__init__(store)
        self._types = types

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and any(expected.name.type == Type.KEY for expected in request.expects):
            left = tuple(expected for expected in request.expects if expected.name.type not in self._types)
            request = Commit(request.batch, left)
        return super().perform(request)


class KeyScene(Scene):
    """A home row, and one key; `letter` is the dead letter of a scene that has one."""

    letter: MessageId

    def __init__(self, *, careless: tuple[int, ...] = (), unguarded: tuple[int, ...] = ()) -> None:
        self._careless = careless
        super().__init__(row=HOME, unguarded=unguarded)

    def watched(self, store: Store) -> Watched:
        return KeyWatch(self, Careless(store, self._careless))

    def keyed(self, name: str, *, key: str = KEY, due: int = 0, **options: object) -> UniqueMessage:
        """A message with a key, as this process would send it now; it sends one at each moment."""
        plain = {"sent": self.now, "due": due, "headers": None, "expires": None, "lease": None, "attempts": None}
        envelope = Envelope(**(plain | options), key=key, body=None, unique=True)  # type: ignore[arg-type]  # an example's options are what the example says
        id_ = ids.first_at(max(due, self.now))[:8] + name.encode().ljust(8, b"-")[:8]
        return UniqueMessage(key, 0, id_, encode(envelope, b'"%b"' % name.encode()))

    def has(self, name: str = "pat", *, key: str = KEY, **options: object) -> Id:
        """A message that has the key, sent at once."""
        wanted = self.keyed(name, key=key, **options)  # type: ignore[arg-type]  # as in keyed
        assert run(send_unique(self.process(name), self.row, [wanted]), self.store)[key].sent
        self.sent.append(wanted.id)
        return wanted.id

    def held(self, **options: object) -> Claim:
        """A message that has the key, in Eve's hand."""
        self.has(**options)  # type: ignore[arg-type]  # as in keyed
        return self.do("eve").claims[0]

    def buried(self, **options: object) -> MessageId:
        """A dead letter that once had the key."""
        taken = self.held(**options)
        id_ = taken.held[0].entry.id
        self.settle(taken, {id_: rejecting(taken.held[0])})
        return MessageId(self.row, 0, id_)

    def columns(self, kind: Type) -> list[Column]:
        return self.store.read((Slice(self.row, kind),))[0]

    def owner(self, key: str = KEY) -> Id | None:
        """The message that has the key, as its column says."""
        owners = _readable(self.row, self.columns(Type.KEY))
        return next((owner.id for owner in owners if isinstance(owner, KeyOwner) and owner.key == key), None)

    def world(self, **actors: Actor) -> Scenario:
        """As of every scene; and what sends returned is true, and in the end the key is free."""

        def judged(history: History) -> str | None:
            sendings = [result for result in history.results.values() if isinstance(result, Sending)]
            watch = cast("KeyWatch", self.store)
            ever = watch.ever | watch.promised
            assert all(one.own in ever for one in sendings if one.sent), "a send was reported that was not done"
            assert not any(one.own in ever for one in sendings if one.holder and not one.sent), (
                "a refused send was done"
            )
            assert all(one.holder in ever for one in sendings if one.holder), "a message that never was has the key"
            self.sent += [one.own for one in sendings if one.sent]
            self.nothing_lost(history)
            run(purge(self.process("sweeper"), self._dead()), self.store)
            assert not self.columns(Type.KEY), "the key is taken for ever"
            self.store.require_lawful()
            return None

        return Scenario(self.store, actors, judged)

    def _dead(self) -> list[MessageId]:
        return [MessageId(self.row, 0, column.name.id) for column in self.columns(Type.DEAD)]


def rejecting(held: ClaimedMessage) -> Outcome:
    return Reject(
        "rejected", "of no use", held.entry.spent + 1, settle_effects(held.entry.priority, held.entry.id, held.envelope)
    )


def sends(scene: KeyScene, name: str, *, replaces: bool = False, supersedes: bool = False, **options: object) -> Actor:
    """Sends a message with the key, made when its turn comes."""

    def act() -> Work:
        yield begin
        wanted = scene.keyed(name, **options)  # type: ignore[arg-type]  # as in keyed
        try:
            if replaces:
                result = yield from send_replacing(
                    scene.process(name), scene.row, wanted, keeps_due=False, supersedes=supersedes
                )
            else:
                result = (yield from send_unique(scene.process(name), scene.row, [wanted]))[wanted.key]
        except OutcomeUnknown:
            return Sending(wanted.id, None)
        return Sending(result.id.id if result.sent else wanted.id, result.id.id, result.sent)

    return act


def removes(scene: KeyScene, name: str, message: Id) -> Actor:
    def act() -> Work:
        yield from delete(scene.process(name), MessageId(scene.row, 0, message))

    return act


def clears(scene: KeyScene, name: str) -> Actor:
    def act() -> Work:
        yield from clear(scene.process(name), scene.row, 1)

    return act


def redrives(scene: KeyScene, name: str, *messages: MessageId) -> Actor:
    def act() -> Work:
        yield from redrive(scene.process(name), messages)

    return act


def purges(scene: KeyScene, name: str, *messages: MessageId) -> Actor:
    def act() -> Work:
        yield from purge(scene.process(name), messages)

    return act


def takes_late(scene: KeyScene, name: str, *, after: int = LEASE // SECOND, acks: bool = True) -> Actor:
    """Claims when `after` seconds have passed, and acks what it got."""

    def act() -> Work:
        yield Advance(scene.clock, after)
        process = scene.process(name)
        claimed = yield from claim(process, RowSnapshot(scene.row, 1), ClaimRequest(10, LEASE, ATTEMPTS))
        for taken in claimed.claims if acks else ():
            yield from _settled(process, taken, {held.entry.id: acking(held) for held in taken.held})

    return act


def _settled(process: Client, taken: Claim, outcomes: Mapping[Id, Outcome]) -> Steps[None]:
    yield from settle(process, taken.row, SettleRequest(taken.timer, outcomes))


def given_back(scene: KeyScene, taken: Claim, *, later: int = 0) -> dict[Id, Outcome]:
    """The release of what was taken: at once, or after its lease would have ended."""
    return {held.entry.id: Release(scene.now + SECOND + later, 0) for held in taken.held}
