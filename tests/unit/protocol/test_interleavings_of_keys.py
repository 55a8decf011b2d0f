"""Every way in which two commits on one unique key can meet, with a crash, an unknown outcome or a late answer too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations_with_replacement
from typing import Final

import pytest

from astyqueue.protocol.claiming.claim import Claim
from astyqueue.protocol.claiming.selection import DueMessages
from astyqueue.protocol.layout.columns import Entry, Type, message_name
from astyqueue.protocol.settling.outcomes import Ack, SettlePlan
from tests.modelcheck.executor import Scenario
from tests.modelcheck.schedule import Actor
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, UNKNOWN, Faults, named, played
from tests.unit.protocol.key_worlds import (
    SHELF,
    KeyScene,
    clears,
    given_back,
    purges,
    redrives,
    rejecting,
    removes,
    sends,
    takes_late,
)
from tests.unit.protocol.worlds import LEASE, Taking, acking, begin, settler

#: What an actor does, given the scene, its name, the message that has the key and the claim that holds it, if any does.
Does = Callable[[KeyScene, str, Claim | None], Actor]
FREE, WAITING, HELD, DEAD = "free", "waiting", "held", "dead"


def _settles(outcome: Callable[[KeyScene, Claim], Actor]) -> Does:
    return lambda scene, _, taken: outcome(scene, taken)  # type: ignore[arg-type]  # only where it is leased


def _id(scene: KeyScene) -> bytes:
    return scene.sent[-1]


def _acks(scene: KeyScene, taken: Claim) -> Actor:
    return settler(scene, "eve", taken, {held.entry.id: acking(held) for held in taken.held})


def _rejects(scene: KeyScene, taken: Claim) -> Actor:
    return settler(scene, "eve", taken, {held.entry.id: rejecting(held) for held in taken.held})


def _releases(scene: KeyScene, taken: Claim) -> Actor:
    return settler(scene, "eve", taken, given_back(scene, taken))


#: Each kind of commit, and in which states of the key it has something to do.
KINDS: Final[dict[str, tuple[str, Does]]] = {
    "send": (f"{FREE} {WAITING} {HELD} {DEAD}", lambda scene, name, _: sends(scene, name)),
    "replace": (f"{FREE} {WAITING} {HELD} {DEAD}", lambda scene, name, _: sends(scene, name, replaces=True)),
    # where no message with the key is leased, it is the same commit as a replacement
    "supersede": (HELD, lambda scene, name, _: sends(scene, name, replaces=True, supersedes=True)),
    "claim": (f"{FREE} {WAITING}", lambda scene, name, _: Taking(scene, name, first=begin)),
    "reclaim": (HELD, lambda scene, name, _: takes_late(scene, name)),
    "expiry": (WAITING, lambda scene, name, _: takes_late(scene, name, after=SHELF)),
    "ack": (HELD, _settles(_acks)),
    "reject": (HELD, _settles(_rejects)),
    "release": (HELD, _settles(_releases)),
    "delete": (f"{WAITING} {HELD} {DEAD}", lambda scene, name, _: removes(scene, name, _id(scene))),
    "clear": (f"{WAITING} {HELD} {DEAD}", lambda scene, name, _: clears(scene, name)),
    "redrive": (DEAD, lambda scene, name, _: redrives(scene, name, scene.letter)),
    "purge": (DEAD, lambda scene, name, _: purges(scene, name, scene.letter)),
}
_NAMES: Final = ("ann", "bob")


def meeting(first: str, second: str, state: str, careless: tuple[int, ...] = ()) -> Scenario:
    """Two commits meet at a key in this state."""
    scene = KeyScene(careless=careless)
    scene.clock.advance(1)
    taken: Claim | None = None
    if state == DEAD:
        scene.letter = scene.buried()
    elif state == HELD:
        taken = scene.held()
    elif state == WAITING:
        expiring = "expiry" in (first, second)
        scene.has(expires=scene.now + SHELF * 1_000_000 if expiring else None)
    scene.clock.advance(1)
    return scene.world(
        **{name: KINDS[kind][1](scene, name, taken) for name, kind in zip(_NAMES, (first, second), strict=True)}
    )


#: These leave keys as they are; how they meet is played elsewhere.
_INDIFFERENT: Final = {"claim", "reclaim", "release"}


def pairs() -> Iterator[tuple[str, str, str, Faults]]:
    """Each pair in each state in which both have something to do.

    To keep this short, late answers are left to those who read most before they commit, and a clear, which is many
    deletes, meets nothing but crashes. All that is left out was played too when it was written, and nothing was found.
    """
    for first, second in combinations_with_replacement(KINDS, 2):
        met = {first, second}
        befall = (
            [CRASH] if "clear" in met else [CRASH, UNKNOWN, PAUSE] if met & {"send", "redrive"} else [CRASH, UNKNOWN]
        )
        states = [
            state for state in (FREE, WAITING, HELD, DEAD) if all(state in KINDS[kind][0].split() for kind in met)
        ]
        if not met <= _INDIFFERENT:
            yield from ((first, second, state, faults) for state in states for faults in befall)
    yield from (("supersede", "claim", WAITING, faults) for faults in (CRASH, UNKNOWN))


#: These pairs have thousands of orders in each world; each of their kinds meets others in `make test`.
_LONG: Final = ({"replace", "reclaim"}, {"supersede", "reclaim"}, {"supersede", "claim"}, {"reclaim", "delete"})


@pytest.mark.timeout(300)  # the longest take 22 s of processor time, beside three other processes
@pytest.mark.parametrize(
    ("first", "second", "state", "faults"),
    [pytest.param(*pair, marks=[pytest.mark.full] if {*pair[:2]} in _LONG else []) for pair in pairs()],
    ids=lambda one: one if isinstance(one, str) else named(one),
)
def test_no_order_of_two_commits_breaks_the_promise_of_a_key(
    first: str, second: str, state: str, faults: Faults
) -> None:
    world = partial(meeting, first, second, state)
    world.__dict__["__name__"] = f"{first} and {second}, the key {state}"
    explored = played(world, faults).require_none()
    assert explored.complete
    assert explored.schedules > 1


@pytest.mark.parametrize(("first", "second", "state"), [("send", "send", FREE), ("send", "redrive", DEAD)])
def test_without_the_expectation_on_the_key_promises_break(first: str, second: str, state: str) -> None:
    assert played(partial(meeting, first, second, state, (Type.KEY,)), {}).violations


def test_without_the_guard_on_the_header_a_leased_message_is_replaced() -> None:
    assert played(partial(meeting, "replace", "claim", WAITING, (Type.LOCK,)), {}).violations


def superseded_as_it_backs_off(careless: tuple[int, ...] = ()) -> Scenario:
    """A message is superseded as its consumer gives it back for a time after its lease, which leaves the header."""
    scene = KeyScene(careless=careless)
    scene.clock.advance(1)
    taken = scene.held()
    scene.clock.advance(1)
    return scene.world(
        ann=sends(scene, "ann", replaces=True, supersedes=True),
        bob=settler(scene, "eve", taken, given_back(scene, taken, later=2 * LEASE)),
    )


@pytest.mark.parametrize("faults", [CRASH, UNKNOWN, PAUSE], ids=named)
def test_a_message_that_backs_off_is_superseded_or_released_and_cancelled(faults: Faults) -> None:
    assert played(superseded_as_it_backs_off, faults).require_none().complete


def test_without_the_expectation_on_its_timer_a_superseded_message_is_in_two_places() -> None:
    assert played(partial(superseded_as_it_backs_off, (Type.TIMER,)), {}).violations


def _frees_whatever_has_the_key(plan: SettlePlan, entry: Entry, outcome: Ack) -> None:
    plan.acked.append(message_name(entry.priority, entry.id))
    plan.freed += [outcome.effects.frees] if outcome.effects.frees else []


def test_an_ack_that_frees_the_key_of_a_newer_message_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SettlePlan, "ack", _frees_whatever_has_the_key)
    assert played(partial(meeting, "supersede", "ack", HELD), {}).violations


@pytest.mark.full
def test_a_claim_that_delivers_a_superseded_message_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DueMessages, "add", lambda due, again: due.by_level.setdefault(0, []).append(again))
    assert played(partial(meeting, "supersede", "reclaim", HELD), {}).violations
