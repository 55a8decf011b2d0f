"""Scenes around a unique key that a message may have which comes again: it comes twice, and whoever comes last plays it to its end."""

from __future__ import annotations

from typing import Final, cast

from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown
from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import Unique
from astyqueue.model.schedules import Misfire, Origin, Overlap, Policies, Template
from astyqueue.protocol.claim import Claim, claim
from astyqueue.protocol.columns import Type
from astyqueue.protocol.editing import Kept
from astyqueue.protocol.fire import Schedules
from astyqueue.protocol.picking import Order
from astyqueue.protocol.process import Process
from astyqueue.protocol.remove import delete
from astyqueue.protocol.schedules import Repeating, Wanted, remove
from astyqueue.protocol.settle import Settlement, settle
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, run
from astyqueue.protocol.unique import Holder
from astyqueue.testing import History, World
from astyqueue.testing.schedule import Actor, Work
from astyqueue.triggers import Every, Triggers
from tests.unit.protocol.keyed import KEY, KeyScene, KeyWatch
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, acking, begin

MINUTE: Final = 60 * SECOND
#: How a key may stand: free, taken by a single message, or by one that comes again of which no run is there, a slot is due, the
#: last slot is due, a run waits, or a run is in hand while the last slot is due.
FREE, ONCE, TO_COME, DUE, LAST_DUE, WAITS, HELD = "free", "once", "to come", "due", "last due", "waits", "held"
_OWN: Final = Policies(Misfire.read("all"), Overlap.QUEUE_ALL)


class RepeatScene(KeyScene):
    """A home row and one key in one of these states."""

    taken: Claim

    def __init__(self, state: str, *, careless: tuple[int, ...] = ()) -> None:
        super().__init__(careless=careless)
        self.clock.advance(1)
        if state == ONCE:
            self.has()
        elif state != FREE:
            count, delay = (1 if state == LAST_DUE else 2), (0 if state in (WAITS, HELD) else MINUTE // SECOND)
            holder = run(self.repeating("pat", Unique.REJECT, count=count, delay=delay), self.store)
            self.first = holder.id
        if state == HELD:
            self.clock.advance(1)
            self.taken = self.do("eve", lease=LEASE + 2 * MINUTE).claims[0]
        self.clock.advance(61 if state in (DUE, LAST_DUE, HELD) else 1)

    def kept(self, name: str) -> Kept:
        return Kept(self.process(name), self.row, KEY)

    def repeating(self, name: str, unique: Unique, *, count: int = 2, delay: int = 0) -> Steps[Holder]:
        """Has a message come again under the key."""
        wanted = Wanted(Every(MINUTE // SECOND, count=count, delay=delay), Template(b"1", key=KEY), _OWN, Origin.MESSAGE)
        return Repeating(self.kept(name), wanted, unique).carry_out()

    def world(self, **actors: Actor) -> World:
        """As of all that have a key, when all that comes again has come to its end."""
        judged = super().world(**actors).judge

        def also_to_the_end(history: History) -> str | None:
            told = [result for result in history.results.values() if isinstance(result, Holder)]
            watch = cast("KeyWatch", self.store)
            ever = watch.ever | watch.promised
            assert all(one.id.id in ever for one in told), "a message that never was has the key"
            self._to_the_end()
            return judged(history)

        return World(self.store, actors, also_to_the_end)

    def _to_the_end(self) -> None:
        for _ in range(12):
            if not self.columns(Type.TRIGGER):
                return
            self.clock.advance(MINUTE // SECOND)
            run(working(self.process("last")), self.store)
        message = "what comes again has no end"
        raise AssertionError(message)


def working(process: Process) -> Steps[None]:
    """Fires what is due, takes what is due, and acks it."""
    sight = Sight(KeyScene().row, 1)
    yield from Schedules(process, Triggers()).fire(sight)
    claimed = yield from claim(process, sight, Order(10, LEASE, ATTEMPTS))
    for taken in claimed.claims:
        yield from settle(process, taken.row, Settlement(taken.timer, {held.entry.id: acking(held) for held in taken.held}))


def repeats(scene: RepeatScene, name: str, unique: Unique) -> Actor:
    """Has a message come again under the key, made when its turn comes."""

    def act() -> Work:
        yield begin
        try:
            return (yield from scene.repeating(name, unique))
        except OutcomeUnknown:
            return None

    return act


def fires(scene: RepeatScene, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from Schedules(scene.process(name), Triggers()).fire(Sight(scene.row, 1))

    return act


def works(scene: RepeatScene, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from working(scene.process(name))

    return act


def stops(scene: RepeatScene, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from remove(scene.kept(name), with_run=True)

    return act


def deletes(scene: RepeatScene, name: str) -> Actor:
    """Removes the first run, and nothing else."""

    def act() -> Work:
        yield begin
        yield from delete(scene.process(name), MessageId(scene.row, 0, scene.first.id))

    return act
