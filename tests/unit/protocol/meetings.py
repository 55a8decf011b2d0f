"""Every pair of kinds of commits in one row: a world for each, with as little else in it as can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations_with_replacement
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.model.message import MessageId, encode_plain
from astyqueue.model.schedules import Policies, Schedule, Template
from astyqueue.protocol.claim import Claim
from astyqueue.protocol.editing import Kept
from astyqueue.protocol.fire import Fired, Schedules
from astyqueue.protocol.outcomes import Extend, Release, Settling
from astyqueue.protocol.picking import Held
from astyqueue.protocol.repeatable import id_of, repeated, send_repeatable
from astyqueue.protocol.schedules import Wanted, save, schedules_in
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.slots import due_slots
from astyqueue.protocol.steps import Steps, run
from astyqueue.protocol.triggercolumn import run_of
from astyqueue.store import Store
from astyqueue.testing import History, Unguarded, World
from astyqueue.testing.schedule import Actor, Work
from astyqueue.triggers import Every, Triggers
from tests.unit.protocol.keyed import KeyScene, KeyWatch, redrives, rejecting, sends, takes_late
from tests.unit.protocol.worlds import LEASE, Taking, acking, begin, put_at, settler

KINDS: Final = ("claim", "ack", "release", "extend", "reject", "redrive", "cancel", "unique send", "repeatable send", "fire", "expiry")
PAIRS: Final = tuple(combinations_with_replacement(KINDS, 2))
#: These are about a message that somebody holds.
_OF_A_HOLDER: Final = frozenset({"ack", "release", "extend", "reject", "expiry"})
_MINUTE: Final = 60 * SECOND


class Meeting(KeyScene):
    """A home row with what two kinds of commits are about.

    A message in hand, or dead, is a run of the schedule if one of the two fires, the record if one sends that again, and
    otherwise the message that has the key.
    """

    taken: Claim

    def __init__(self, first: str, second: str, *, unguarded: tuple[int, ...] = ()) -> None:
        self._unguarded = unguarded
        super().__init__()
        self.kinds = {first, second}
        self.record = repeated(encode_plain(self.now, b"1"), 0, id_of("disk-7", 1, self.now))
        if "fire" in self.kinds:
            self._schedule()
        if "redrive" in self.kinds:
            self._bury()
        if self.kinds & _OF_A_HOLDER:
            self.taken = self._in_hand()
        elif self.kinds == {"claim"} or ("cancel" in self.kinds and "redrive" not in self.kinds):
            self.has()
        if "claim" in self.kinds and self.kinds & _OF_A_HOLDER - {"expiry"}:
            self._wait()
        self.clock.advance(61 if "fire" in self.kinds else 1)

    def watched(self, store: Store) -> KeyWatch:
        return KeyWatch(self, Unguarded(store, types=self._unguarded))

    def _schedule(self) -> None:
        wanted = Wanted(Every("1m", delay="1m"), Template(b"1"), Policies.read(misfire="all", overlap="skip", after_failure="go on"))
        run(save(Kept(self.process("maker"), self.row, "digest"), wanted, replaces=True), self.store)

    def firing(self, name: str) -> Steps[list[Fired]]:
        """One round of firing by a process that knows nothing."""
        return Schedules(self.process(name), Triggers()).fire(Sight(self.row, 1))

    def _in_hand(self) -> Claim:
        """What the two are about, in Eve's hand."""
        self.clock.advance(1)
        self._come()
        return self.do("eve", lease=LEASE + (_MINUTE if "fire" in self.kinds else 0)).claims[0]

    def _bury(self) -> None:
        taken = self._in_hand()
        self.settle(taken, {held.entry.id: rejecting(held) for held in taken.held})
        self.letter = MessageId(self.row, 0, taken.held[0].entry.id)

    def _come(self) -> None:
        if "fire" in self.kinds:
            self.clock.advance("1m")
            self.sent += [fired.run.id for fired in run(self.firing("maker"), self.store)]
        elif "repeatable send" in self.kinds:
            run(send_repeatable(self.process("maker"), self.row, [self.record]), self.store)
            self.sent.append(self.record.id)
        else:
            self.has()

    def _wait(self) -> None:
        put = put_at(self.now, 9)
        self.put(put)
        self.sent.append(put.name.id)

    def world(self, **actors: Actor) -> World:
        """As of all that have a key; and each slot has had its message, or was skipped."""
        judged = super().world(**actors).judge

        def also_fired(history: History) -> str | None:
            while "fire" in self.kinds and run(self.firing("last"), self.store):
                pass
            for schedule in run(schedules_in([self.row]), self.store):
                self._each_slot_once(schedule)
            return judged(history)

        return World(self.store, actors, also_fired)

    def _each_slot_once(self, schedule: Schedule) -> None:
        due = due_slots(Triggers().read(schedule.anchored), schedule.created, self.now)
        assert due, "there is a slot to fire in each of these worlds"
        skipped = {firing.slot for firing in schedule.history if firing.run is None}
        born = {slot for slot in due.latest if run_of(schedule, slot).id in self.store.ever}  # type: ignore[attr-defined]  # it is a watch over keys
        assert not born & skipped, "a slot was fired and skipped"
        assert born | skipped == set(due.latest), "a slot has no message"
        assert schedule.fired == len(born), f"{schedule.fired} are counted, {len(born)} were fired"


def _fires(scene: Meeting, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from scene.firing(name)

    return act


def _repeats(scene: Meeting, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from send_repeatable(scene.process(name), scene.row, [scene.record])
        scene.sent.append(scene.record.id)

    return act


def _settles(outcome: Callable[[Meeting, Held], Settling]) -> Callable[[Meeting, str], Actor]:
    def does(scene: Meeting, name: str) -> Actor:
        return settler(scene, name, scene.taken, {held.entry.id: outcome(scene, held) for held in scene.taken.held})

    return does


#: What an actor does who is about to make a commit of this kind.
DOES: Final[dict[str, Callable[[Meeting, str], Actor]]] = {
    "claim": lambda scene, name: Taking(scene, name, outcome=None, first=begin),
    "ack": _settles(lambda _, held: acking(held)),
    "release": _settles(lambda scene, _: Release(scene.now + SECOND, 0)),
    "extend": _settles(lambda scene, _: Extend(scene.now + 2 * LEASE)),
    "reject": _settles(lambda _, held: rejecting(held)),
    "redrive": lambda scene, name: redrives(scene, name, scene.letter),
    "cancel": lambda scene, name: sends(scene, name, replaces=True),
    "unique send": sends,
    "repeatable send": _repeats,
    "fire": _fires,
    "expiry": partial(takes_late, acks=False),
}


def meeting(first: str, second: str, unguarded: tuple[int, ...] = ()) -> World:
    """Two commits of these kinds meet."""
    scene = Meeting(first, second, unguarded=unguarded)
    return scene.world(ann=DOES[first](scene, "ann"), bob=DOES[second](scene, "bob"))
