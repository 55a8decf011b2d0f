"""Every way in which two commits meet at the key of a repeating message, with a crash or an unknown outcome too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations_with_replacement
from typing import Final

import pytest

from astyqueue.model.message import Unique
from astyqueue.protocol.layout.columns import Type
from tests.modelcheck.executor import Scenario
from tests.modelcheck.schedule import Actor
from tests.unit.protocol.fault_budgets import CRASH, UNKNOWN, Faults, named, played
from tests.unit.protocol.key_worlds import clears, rejecting, sends
from tests.unit.protocol.repeating_worlds import (
    DUE,
    FREE,
    HELD,
    LAST_DUE,
    ONCE,
    TO_COME,
    WAITS,
    RepeatScene,
    deletes,
    fires,
    repeats,
    stops,
    works,
)
from tests.unit.protocol.worlds import acking, settler


def _acks(scene: RepeatScene, _: str) -> Actor:
    return settler(scene, "eve", scene.taken, {held.entry.id: acking(held) for held in scene.taken.held})


def _rejects(scene: RepeatScene, _: str) -> Actor:
    return settler(scene, "eve", scene.taken, {held.entry.id: rejecting(held) for held in scene.taken.held})


#: Each kind of commit, and in which states of the key it is played.
KINDS: Final[dict[str, tuple[tuple[str, ...], Callable[[RepeatScene, str], Actor]]]] = {
    "send": ((FREE, TO_COME, LAST_DUE, HELD), sends),
    "replace": ((FREE, TO_COME, LAST_DUE, HELD), partial(sends, replaces=True)),
    "repeat": ((FREE, ONCE, TO_COME, LAST_DUE, HELD), partial(repeats, unique=Unique.REJECT)),
    "repeat instead": ((FREE, TO_COME, LAST_DUE, WAITS, HELD), partial(repeats, unique=Unique.REPLACE)),
    "fire": ((DUE, LAST_DUE, HELD), fires),
    "work": ((LAST_DUE,), works),
    "ack": ((HELD,), _acks),
    "reject": ((HELD,), _rejects),
    "stop": ((TO_COME, DUE, LAST_DUE, HELD), stops),
    "delete": ((HELD,), deletes),
    "clear": ((WAITS,), clears),
}
#: These take the key, or say why not.
_TAKE: Final = {"send", "replace", "repeat", "repeat instead"}
#: To these an occurrence that is due is as one that is to come.
_FIRE_NOTHING: Final = {*_TAKE, "stop"}
#: Long, and made of what the shorter ones show: they are left out but in the states that show most.
_LONG: Final = {
    ("replace", "replace"): (),
    ("replace", "repeat instead"): (FREE, HELD),
    ("repeat instead", "repeat instead"): (TO_COME,),
    ("replace", "work"): (),
    ("repeat instead", "work"): (),
    ("clear", "clear"): (),
    ("work", "work"): (),
    ("delete", "delete"): (),
}


def meeting(first: str, second: str, state: str, careless: tuple[int, ...] = ()) -> Scenario:
    """Two commits meet at a key in this state."""
    scene = RepeatScene(state, careless=careless)
    return scene.world(ann=KINDS[first][1](scene, "ann"), bob=KINDS[second][1](scene, "bob"))


def pairs() -> Iterator[tuple[str, str, str, Faults]]:
    """Each pair in each state in which both are played, with a crash.

    If both would have the key, it is played with an unknown outcome too.
    """
    for first, second in combinations_with_replacement(KINDS, 2):
        states = [state for state in KINDS[first][0] if state in _LONG.get((first, second), KINDS[second][0])]
        if {first, second} <= _FIRE_NOTHING:
            states = [state for state in states if state not in (DUE, LAST_DUE)]
        for state in states:
            yield first, second, state, CRASH
            if {first, second} <= _TAKE or (first in _TAKE and second == "fire" and state == LAST_DUE):
                yield first, second, state, UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "state", "faults"), list(pairs()), ids=lambda one: one if isinstance(one, str) else named(one)
)
def test_no_order_of_two_commits_breaks_the_promise_of_the_key(
    first: str, second: str, state: str, faults: Faults
) -> None:
    world = partial(meeting, first, second, state)
    world.__dict__["__name__"] = f"{first} and {second}, the key {state}"
    explored = played(world, faults).require_none()
    assert explored.complete
    assert explored.schedules > 1


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [("send", "repeat", FREE), ("repeat", "repeat instead", FREE), ("replace", "stop", HELD), ("fire", "stop", DUE)],
)
def test_without_expectations_on_keys_and_headers_promises_break(first: str, second: str, state: str) -> None:
    assert played(
        partial(meeting, first, second, state, (Type.KEY, Type.LOCK, Type.TIMER, Type.TRIGGER)), {}
    ).violations
