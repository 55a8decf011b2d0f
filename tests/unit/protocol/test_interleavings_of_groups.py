"""Every way in which claims, settles and expiries meet in a group: never two of it are under way, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.protocol.layout.columns import Type, message_name
from astyqueue.protocol.row.rescan import list_stranded
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest
from astyqueue.protocol.steps import run
from astyqueue.units import SECOND
from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import explore
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, PLAIN, UNKNOWN, Faults, named, played
from tests.unit.protocol.worlds import LEASE, Scene, Taking, joiner, put_at, sender, settler, warm

Unguarded = tuple[int, ...]


def one_group(messages: int = 3, unguarded: Unguarded = ()) -> Scene:
    scene = Scene(unguarded=unguarded)
    scene.sent = scene.send(messages, group="a")
    return scene


def claim_and_claim(unguarded: Unguarded = ()) -> Scenario:
    scene = one_group(unguarded=unguarded)
    return scene.world(ann=Taking(scene, "ann", want=1), bob=Taking(scene, "bob", want=1))


def claim_and_settle(outcome: Callable[[int], Outcome], unguarded: Unguarded = ()) -> Scenario:
    """One process knows that a message is blocked, and claims while another settles the message before it."""
    scene = one_group(unguarded=unguarded)
    taken = scene.do("ann").claims[0]
    snapshot = warm(scene, "bob")
    outcomes = {taken.held[0].entry.id: outcome(scene.now)}
    return scene.world(
        ann=settler(scene, "ann", taken, outcomes),
        bob=Taking(scene, "bob", snapshot=snapshot),
        cyd=Taking(scene, "cyd"),
    )


def claim_and_joined_settle(unguarded: Unguarded = ()) -> Scenario:
    """A process acks a message in one commit with the claim of the next, while another claims."""
    scene = one_group(unguarded=unguarded)
    snapshot = RowSnapshot(scene.row, 1)
    taken = scene.do("ann", snapshot=snapshot).claims[0]
    settling = [SettleRequest(taken.timer, {taken.held[0].entry.id: ACK})]
    return scene.world(ann=joiner(scene, "ann", settling, snapshot=snapshot), bob=Taking(scene, "bob"))


def claim_and_expiry(unguarded: Unguarded = ()) -> Scenario:
    """The lease is over: its holder acks late, and another claims."""
    scene = one_group(unguarded=unguarded)
    taken = scene.do("ann").claims[0]
    snapshot = warm(scene, "bob")
    scene.clock.advance(31)
    return scene.world(
        ann=settler(scene, "ann", taken, {taken.held[0].entry.id: ACK}),
        bob=Taking(scene, "bob", snapshot=snapshot),
    )


def claim_and_send(unguarded: Unguarded = ()) -> Scenario:
    scene = one_group(1, unguarded)
    return scene.world(
        ann=Taking(scene, "ann"), bob=Taking(scene, "bob"), cyd=sender(scene, "cyd", put_at(scene.now, 5, group="a"))
    )


def claim_and_listed(unguarded: Unguarded = ()) -> Scenario:
    """The second message is listed as due, and no scan has met either."""
    scene = one_group(2, unguarded)
    listed = [message_name(0, id_) for id_ in scene.sent[1:]]
    run(list_stranded(scene.process("cyd"), scene.row, listed), scene.store)
    return scene.world(ann=Taking(scene, "ann", want=1), bob=Taking(scene, "bob", want=1))


SETTLES: dict[str, Callable[[int], Outcome]] = {
    "ack": lambda _: ACK,
    "reject": lambda _: Reject("rejected", "of no use", 1),
    "extend": lambda now: Extend(now + 2 * LEASE),
    "release": lambda now: Release(now + 5 * SECOND, 1),
    "release later": lambda now: Release(now + 2 * LEASE, 1),
}


def settled_by(name: str) -> Callable[..., Scenario]:
    """A world of this settle, with a name for the numbers that a run prints."""
    make = partial(claim_and_settle, SETTLES[name])
    make.__dict__["__name__"] = f"claim_and_{name.replace(' ', '_')}"
    return make


WORLDS: dict[str, Callable[..., Scenario]] = {
    "claim": claim_and_claim,
    "joined settle": claim_and_joined_settle,
    "expiry": claim_and_expiry,
    "send": claim_and_send,
    "listed": claim_and_listed,
    **{name: settled_by(name) for name in SETTLES},
}


@pytest.mark.parametrize("faults", [PLAIN, CRASH, UNKNOWN, PAUSE], ids=named)
@pytest.mark.parametrize("kind", WORLDS)
def test_no_order_of_events_has_two_of_a_group_under_way_or_loses_one(kind: str, faults: Faults) -> None:
    assert played(WORLDS[kind], faults).require_none().schedules > 1


@pytest.mark.parametrize("kind", ["claim", "expiry"])
def test_without_what_claims_expect_two_of_a_group_are_under_way(kind: str) -> None:
    assert explore(partial(WORLDS[kind], unguarded=tuple(Type)), isolated=True, limit=200).violations
