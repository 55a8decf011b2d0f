"""Every way in which two commits meet at the key of a message that comes again, a crash or an unknown outcome included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations_with_replacement
from typing import Final

import pytest

from astyqueue.model.outgoing import Unique
from astyqueue.protocol.columns import Type
from astyqueue.testing import World
from astyqueue.testing.schedule import Actor
from tests.unit.protocol.befalling import CRASH, UNKNOWN, Befalls, named, played
from tests.unit.protocol.keyed import clears, rejecting, sends
from tests.unit.protocol.repeating import (
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

_ALL: Final = (FREE, ONCE, TO_COME, DUE, LAST_DUE, WAITS, HELD)
_REPEATED: Final = _ALL[2:]


def _acks(scene: RepeatScene, _: str) -> Actor:
    return settler(scene, "eve", scene.taken, {held.entry.id: acking(held) for held in scene.taken.held})


def _rejects(scene: RepeatScene, _: str) -> Actor:
    return settler(scene, "eve", scene.taken, {held.entry.id: rejecting(held) for held in scene.taken.held})


#: Each kind of commit, and in which states of the key it has something to do.
KINDS: Final[dict[str, tuple[tuple[str, ...], Callable[[RepeatScene, str], Actor]]]] = {
    "send": (_ALL, sends),
    "replace": (_ALL, partial(sends, replaces=True)),
    "repeat": (_ALL, partial(repeats, unique=Unique.REJECT)),
    "repeat instead": (_ALL, partial(repeats, unique=Unique.REPLACE)),
    "fire": ((DUE, LAST_DUE, HELD), fires),
    "work": ((ONCE, DUE, LAST_DUE, WAITS), works),
    "ack": ((HELD,), _acks),
    "reject": ((HELD,), _rejects),
    "stop": (_REPEATED, stops),
    "delete": ((WAITS, HELD), deletes),
    "clear": ((ONCE, LAST_DUE, WAITS, HELD), clears),
}
#: These take the key, or say why not.
_TAKE: Final = {"send", "replace", "repeat", "repeat instead"}
#: These are played with each other elsewhere, and say nothing of who takes a key.
_PLAYED: Final = {"send", "replace", "work", "clear"}


def meeting(first: str, second: str, state: str, careless: tuple[int, ...] = ()) -> World:
    """Two commits meet at a key in this state."""
    scene = RepeatScene(state, careless=careless)
    return scene.world(ann=KINDS[first][1](scene, "ann"), bob=KINDS[second][1](scene, "bob"))


def pairs() -> Iterator[tuple[str, str, str, Befalls]]:
    """Each pair in each state in which both have something to do, with a crash; where the key is taken, with an unknown outcome too."""
    for first, second in combinations_with_replacement(KINDS, 2):
        for state in (state for state in _ALL if state in KINDS[first][0] and state in KINDS[second][0]):
            if {first, second} <= _PLAYED and state in (FREE, ONCE):
                continue
            yield first, second, state, CRASH
            if {first, second} & _TAKE and "clear" not in (first, second):
                yield first, second, state, UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "state", "befalls"), list(pairs()), ids=lambda one: one if isinstance(one, str) else named(one)
)
def test_no_order_of_two_commits_breaks_the_promise_of_the_key(first: str, second: str, state: str, befalls: Befalls) -> None:
    world = partial(meeting, first, second, state)
    world.__dict__["__name__"] = f"{first} and {second}, the key {state}"
    explored = played(world, befalls).require_none()
    assert explored.complete
    assert explored.schedules > 1


@pytest.mark.parametrize(
    ("first", "second", "state"), [("send", "repeat", FREE), ("repeat", "repeat instead", ONCE), ("ack", "replace", HELD)]
)
def test_without_expectations_on_keys_and_headers_promises_break(first: str, second: str, state: str) -> None:
    assert played(partial(meeting, first, second, state, (Type.KEY, Type.LOCK, Type.TIMER, Type.TRIGGER)), {}).violations
