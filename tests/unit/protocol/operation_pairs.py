"""Every pair of kinds of commits in one row: a world for each, with as little else in it as can be.

Each is such that a promise breaks when commits expect nothing, so that a guard which is missing would be seen. Pairs of
which there is no such world are in `UNABLE`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import combinations_with_replacement
from typing import Final, NamedTuple

from astyqueue.model.envelope import MessageId, encode_plain
from astyqueue.model.schedule import Policies, Schedule, Template
from astyqueue.protocol.claiming.claim import Claim
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.schedule_column import run_of
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import FiredOccurrence, RowSchedules
from astyqueue.protocol.scheduling.policies import due_occurrences
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle, schedules_in
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, save
from astyqueue.protocol.sending.idempotent import idempotent_message, numbered_id, send_idempotent
from astyqueue.protocol.settling.outcomes import Extend, Outcome, Release
from astyqueue.protocol.steps import Steps, run
from astyqueue.triggers import Every, Triggers
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.schedule import Actor, Work
from tests.unit.protocol.key_worlds import KEY, KeyScene, redrives, rejecting, sends, takes_late
from tests.unit.protocol.repeating_worlds import LAST_DUE, RepeatScene, fires
from tests.unit.protocol.worlds import LEASE, Taking, acking, begin, put_at, settler

KINDS: Final = (
    "claim",
    "ack",
    "release",
    "extend",
    "reject",
    "redrive",
    "cancel",
    "unique send",
    "repeatable send",
    "fire",
    "expiry",
)
PAIRS: Final = tuple(combinations_with_replacement(KINDS, 2))
Pair = tuple[str, str]
#: These are about a leased message.
_OF_A_HOLDER: Final = frozenset({"ack", "release", "extend", "reject", "expiry"})
_MINUTE: Final = 60 * SECOND


class How(StrEnum):
    """What else is so as two meet."""

    PLAIN = "nothing else"
    OVER = "the lease is over"
    AGAIN = "the settle comes twice, as from a holder who did not hear the answer"
    OTHER = "they are about two messages, with other keys"
    BESIDE = "another message waits"
    CANCELS = "an occurrence that comes cancels the run before"
    LAST = "the key is that of a repeating message, and the last occurrence is due"
    EXPIRES = "the message becomes a dead letter as it is claimed"
    ONCE = "the message goes as it is claimed"


#: Pairs that do not need what they expect in a world of nothing else, but in such a one.
HOW: Final[dict[Pair, How]] = {
    **{("claim", kind): How.OVER for kind in ("ack", "extend", "reject")},
    **{(kind, "cancel"): How.OVER for kind in ("ack", "release", "extend", "reject")},
    **{(first, second): How.AGAIN for first in ("ack", "reject") for second in ("redrive", "unique send")},
    **{(kind, "fire"): How.CANCELS for kind in ("ack", "extend", "reject")},
    ("claim", "redrive"): How.BESIDE,
    ("release", "redrive"): How.OTHER,
    ("release", "repeatable send"): How.OTHER,
    ("redrive", "repeatable send"): How.OTHER,
    ("redrive", "expiry"): How.OTHER,
    ("repeatable send", "expiry"): How.OTHER,
    ("unique send", "fire"): How.LAST,
}


class Unable(NamedTuple):
    """Why two cannot fail each other whatever they expect, and the worlds in which that is shown."""

    why: str
    how: tuple[How, ...]


_KEEPS: Final = "the message keeps its key"
_ADDS: Final = "a unique send replaces nothing"
_APART: Final = "no column in common"
_MARKED: Final = "the record or its mark is there"
#: Pairs that need nothing of what they expect against each other.
UNABLE: Final[dict[Pair, Unable]] = {
    ("claim", "unique send"): Unable(_ADDS, (How.PLAIN, How.EXPIRES, How.ONCE)),
    ("ack", "repeatable send"): Unable(_MARKED, (How.PLAIN, How.OVER, How.AGAIN, How.OTHER)),
    ("release", "unique send"): Unable(_KEEPS, (How.PLAIN, How.OVER, How.OTHER)),
    ("extend", "redrive"): Unable(_APART, (How.PLAIN, How.OVER, How.OTHER)),
    ("extend", "unique send"): Unable(_KEEPS, (How.PLAIN, How.OVER, How.OTHER)),
    ("extend", "repeatable send"): Unable(_APART, (How.PLAIN, How.OVER, How.OTHER)),
    ("reject", "repeatable send"): Unable(_MARKED, (How.PLAIN, How.OVER, How.AGAIN, How.OTHER)),
    ("unique send", "repeatable send"): Unable(_ADDS, (How.PLAIN,)),
    ("unique send", "expiry"): Unable(_ADDS, (How.PLAIN, How.EXPIRES, How.OTHER)),
}
SHOWN: Final = tuple(pair for pair in PAIRS if pair not in UNABLE)


class Meeting(KeyScene):
    """A home row with what two kinds of commits are about.

    A leased or dead message is a run of the schedule if one of the two fires, the record if one sends that again,
    and otherwise the message that has the key; what is sent or put back is another one if they are about two.
    """

    taken: Claim

    def __init__(self, first: str, second: str, how: How, *, unguarded: tuple[int, ...] = ()) -> None:
        super().__init__(unguarded=unguarded)
        self.kinds, self.how = {first, second}, how
        self.record = idempotent_message(encode_plain(self.now, b"1"), 0, numbered_id("disk-7", 1, self.now))
        if "fire" in self.kinds:
            self._schedule()
        if "redrive" in self.kinds:
            self._bury()
        if self.kinds & _OF_A_HOLDER:
            self.taken = self._in_hand(key="another" if how is How.OTHER else KEY)
        elif self._begins_waiting:
            self.has(**self._passing)  # type: ignore[arg-type]  # it names neither the sender nor the key
        if how is How.BESIDE or (
            "claim" in self.kinds and how is not How.OVER and self.kinds & _OF_A_HOLDER - {"expiry"}
        ):
            self._wait()
        self.clock.advance(61 if "fire" in self.kinds else LEASE // SECOND + 1 if how is How.OVER else 1)

    @property
    def _begins_waiting(self) -> bool:
        return (
            self.kinds == {"claim"} or bool(self._passing) or ("cancel" in self.kinds and "redrive" not in self.kinds)
        )

    @property
    def _passing(self) -> dict[str, int]:
        """What sees to it that a message goes or dies when it is claimed in a second."""
        return {How.EXPIRES: {"expires": self.now + SECOND}, How.ONCE: {"lease": 0}}.get(self.how, {})

    def _schedule(self) -> None:
        overlap = "cancel running" if self.how is How.CANCELS else "skip"
        wanted = RequestedSchedule(
            Every("1m", delay="1m"),
            Template(b"1"),
            Policies.read(misfire="all", overlap=overlap, after_failure="go on"),
        )
        run(save(ScheduleHandle(self.process("maker"), self.row, "digest"), wanted, replaces=True), self.store)

    def firing(self, name: str) -> Steps[list[FiredOccurrence]]:
        """One round of firing by a process that knows nothing."""
        return RowSchedules(self.process(name), Triggers()).fire(RowSnapshot(self.row, 1))

    def _in_hand(self, key: str = KEY) -> Claim:
        """What the two are about, in Eve's hand."""
        self.clock.advance(1)
        self._come(key)
        return self.do("eve", lease=LEASE + (_MINUTE if "fire" in self.kinds else 0)).claims[0]

    def _bury(self) -> None:
        taken = self._in_hand()
        self.settle(taken, {held.entry.id: rejecting(held) for held in taken.held})
        self.letter = MessageId(self.row, 0, taken.held[0].entry.id)

    def _come(self, key: str) -> None:
        if "fire" in self.kinds:
            self.clock.advance("1m")
            self.sent += [fired.run.id for fired in run(self.firing("maker"), self.store)]
        elif "repeatable send" in self.kinds and self.how is not How.OTHER:
            run(send_idempotent(self.process("maker"), self.row, [self.record]), self.store)
            self.sent.append(self.record.id)
        else:
            self.has(key=key, **self._passing)  # type: ignore[arg-type]  # as above

    def _wait(self) -> None:
        put = put_at(self.now, 9)
        self.put(put)
        self.sent.append(put.name.id)

    def world(self, **actors: Actor) -> Scenario:
        """As of all that have a key; and each occurrence has had its message, or was skipped."""
        judged = super().world(**actors).check

        def also_fired(history: History) -> str | None:
            while "fire" in self.kinds and run(self.firing("last"), self.store):
                pass
            for schedule in run(schedules_in([self.row]), self.store):
                self._each_occurrence_once(schedule)
            return judged(history)

        return Scenario(self.store, actors, also_fired)

    def _each_occurrence_once(self, schedule: Schedule) -> None:
        due = due_occurrences(Triggers().read(schedule.anchored), schedule.created, self.now)
        assert due, "there is an occurrence to fire in each of these worlds"
        skipped = {firing.occurrence for firing in schedule.history if firing.run is None}
        born = {occurrence for occurrence in due.latest if run_of(schedule, occurrence).id in self.store.ever}  # type: ignore[attr-defined]  # it is a watch over keys
        assert not born & skipped, "an occurrence was fired and skipped"
        assert born | skipped == set(due.latest), "an occurrence has no message"
        assert schedule.fired == len(born), f"{schedule.fired} are counted, {len(born)} were fired"


def _fires(scene: Meeting, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from scene.firing(name)

    return act


def _repeats(scene: Meeting, name: str) -> Actor:
    def act() -> Work:
        yield begin
        yield from send_idempotent(scene.process(name), scene.row, [scene.record])
        scene.sent.append(scene.record.id)

    return act


def _settles(outcome: Callable[[Meeting, ClaimedMessage], Outcome]) -> Callable[[Meeting, str], Actor]:
    def does(scene: Meeting, name: str) -> Actor:
        outcomes = {held.entry.id: outcome(scene, held) for held in scene.taken.held}
        return settler(scene, name, scene.taken, *[outcomes] * (2 if scene.how is How.AGAIN else 1))

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


def meeting(first: str, second: str, unguarded: tuple[int, ...] = (), how: How | None = None) -> Scenario:
    """Two commits of these kinds meet: in the world of this pair, unless another is named."""
    how = how or HOW.get((first, second), How.PLAIN)
    if how is How.LAST:
        coming = RepeatScene(LAST_DUE, unguarded=unguarded)
        return coming.world(ann=sends(coming, "ann"), bob=fires(coming, "bob"))
    scene = Meeting(first, second, how, unguarded=unguarded)
    return scene.world(ann=DOES[first](scene, "ann"), bob=DOES[second](scene, "bob"))


def alone(name: str, first: str, second: str, unguarded: tuple[int, ...]) -> Scenario:
    """The same, with one of the two only: ann or bob."""
    world = meeting(first, second, unguarded)
    return replace(world, actors={name: world.actors[name]})
