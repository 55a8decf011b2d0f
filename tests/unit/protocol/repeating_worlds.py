"""Scenes around a unique key that a repeating message may have.

It comes twice; after the actors a last process fires and handles what is left of it.
"""

from __future__ import annotations

from typing import Final, cast

from astyqueue.errors import OutcomeUnknown
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Unique
from astyqueue.model.schedule import Misfire, Origin, Overlap, Policies, Template
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import RowSchedules
from astyqueue.protocol.scheduling.schedule_commands import remove
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle
from astyqueue.protocol.scheduling.schedule_definition import RepeatingSend, RequestedSchedule
from astyqueue.protocol.sending.unique import UniqueSendResult
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, Steps, run
from astyqueue.triggers import Every, Triggers
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.schedule import Actor, Work
from tests.unit.protocol.key_worlds import KEY, KeyScene, KeyWatch
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, acking, begin

MINUTE: Final = 60 * SECOND
#: How a key may stand: free, taken by a single message, or by one that comes again of which no run is there, an
#: occurrence is due, the last occurrence is due, a run waits, or a run is leased while the last occurrence is due.
FREE, ONCE, TO_COME, DUE, LAST_DUE, WAITS, HELD = "free", "once", "to come", "due", "last due", "waits", "held"
_OWN: Final = Policies(Misfire.read("all"), Overlap.QUEUE_ALL)


class RepeatScene(KeyScene):
    """A home row and one key in one of these states."""

    taken: Claim

    def __init__(self, state: str, *, careless: tuple[int, ...] = (), unguarded: tuple[int, ...] = ()) -> None:
        super().__init__(careless=careless, unguarded=unguarded)
        self.clock.advance(1)
        if state == ONCE:
            self.has()
        elif state != FREE:
            count, delay = (1 if state == LAST_DUE else 2), (0 if state in (WAITS, HELD) else MINUTE // SECOND)
            result = run(self.repeating("pat", Unique.REJECT, count=count, delay=delay), self.store)
            self.first = result.id
        if state == HELD:
            self.clock.advance(1)
            self.taken = self.do("eve", lease=LEASE + 2 * MINUTE).claims[0]
        self.clock.advance(61 if state in (DUE, LAST_DUE, HELD) else 1)

    def handle(self, name: str) -> ScheduleHandle:
        return ScheduleHandle(self.process(name), self.row, KEY)

    def repeating(self, name: str, unique: Unique, *, count: int = 2, delay: int = 0) -> Steps[UniqueSendResult]:
        """Has a message come again under the key."""
        wanted = RequestedSchedule(
            Every(MINUTE // SECOND, count=count, delay=delay), Template(b"1", key=KEY), _OWN, Origin.MESSAGE
        )
        return RepeatingSend(self.handle(name), wanted, unique).carry_out()

    def world(self, **actors: Actor) -> Scenario:
        """As of all that have a key, when all that comes again has come to its end."""
        judged = super().world(**actors).check

        def also_to_the_end(history: History) -> str | None:
            told = [result for result in history.results.values() if isinstance(result, UniqueSendResult)]
            watch = cast("KeyWatch", self.store)
            ever = watch.ever | watch.promised
            assert all(one.id.id in ever for one in told), "a message that never was has the key"
            self._to_the_end()
            return judged(history)

        return Scenario(self.store, actors, also_to_the_end)

    def _to_the_end(self) -> None:
        for _ in range(12):
            if not self.columns(Type.TRIGGER):
                return
            self.clock.advance(MINUTE // SECOND)
            run(working(self.process("last")), self.store)
        message = "what comes again has no end"
        raise AssertionError(message)


def working(process: Client) -> Steps[None]:
    """Fires what is due, takes what is due, and acks it."""
    snapshot = RowSnapshot(KeyScene().row, 1)
    yield from RowSchedules(process, Triggers()).fire(snapshot)
    claimed = yield from claim(process, snapshot, ClaimRequest(10, LEASE, ATTEMPTS))
    for taken in claimed.claims:
        yield from settle(
            process, taken.row, SettleRequest(taken.timer, {held.entry.id: acking(held) for held in taken.held})
        )


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
        yield from RowSchedules(scene.process(name), Triggers()).fire(RowSnapshot(scene.row, 1))

    return act


def works(scene: RepeatScene, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from working(scene.process(name))

    return act


def stops(scene: RepeatScene, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from remove(scene.handle(name), with_run=True)

    return act


def deletes(scene: RepeatScene, name: str) -> Actor:
    """Removes the first run, and nothing else."""

    def act() -> Work:
        yield begin
        yield from delete(scene.process(name), MessageId(scene.row, 0, scene.first.id))

    return act
