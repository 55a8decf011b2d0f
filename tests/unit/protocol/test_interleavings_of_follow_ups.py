"""Acks with follow-ups in every order of events: a message is gone if, and only if, one follow-up is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.settling.outcomes import Ack, Extend, Release
from astyqueue.protocol.settling.settle import SettleRequest
from astyqueue.store import Put
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.schedule import Actor, Advance
from tests.unit.protocol.checked_store import picture
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, PLAIN, UNKNOWN, Faults, named, played
from tests.unit.protocol.test_interleavings import well_known
from tests.unit.protocol.worlds import LEASE, Scene, Taking, Told, joiner, put_at, settler

#: Follow-ups that are due so much later are not claimed meanwhile.
HOUR = 3_600 * SECOND
#: What each of two processes sends after a message, by the message.
FollowUps = Mapping[Id, tuple[Put, ...]]


def world(scene: Scene, follow_ups: FollowUps, **actors: Actor) -> Scenario:
    """Besides what any world promises: a message that was acked has one follow-up, any other has none."""

    def judged(history: History) -> str | None:
        stored = picture(scene.store, scene.row).messages | scene.store.gone
        for message, puts in follow_ups.items():
            sent = [put.name.id for put in puts if put.name.id in stored]
            assert len(sent) == (message in scene.store.gone), f"{len(sent)} follow-ups of one message"
        eve = history.results.get("eve")
        lost = [follow_ups[id_][0] for id_ in eve.lost if id_ in follow_ups] if isinstance(eve, Told) else []
        assert not any(put.name.id in stored for put in lost), "eve's lease was lost, and her follow-up was sent"
        scene.nothing_lost(history)
        return None

    return Scenario(scene.store, actors, judged)


def after(scene: Scene, number: int, *, delay: int = 0) -> Put:
    """A follow-up as a commit writes it: without a time, which the commit sets."""
    return put_at(scene.now + delay, number)._replace(stamp=None)


def against_reclaim(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Eve acks at any moment; her lease runs out, and bob, who saw it, does the work again."""
    scene = Scene(messages=1, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    [message] = [held.entry.id for held in taken.held]
    eves, bobs = after(scene, 7, delay=HOUR), after(scene, 8, delay=HOUR)
    bob = Taking(
        scene, "bob", well_known(scene), outcome=Ack(follow_ups=(bobs,)), first=Advance(scene.clock, LEASE // SECOND)
    )
    eve = settler(scene, "eve", taken, {message: Ack(follow_ups=(eves,))})
    return world(scene, {message: (eves, bobs)}, eve=eve, bob=bob)


def with_an_extension(unguarded: tuple[int, ...] = ()) -> Scenario:
    """One of two messages is acked with a follow-up while the other's lease is extended, and bob claims again."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    first, second = (held.entry.id for held in taken.held)
    sent = after(scene, 7, delay=HOUR)
    eve = settler(scene, "eve", taken, {first: Ack(follow_ups=(sent,)), second: Extend(scene.now + 2 * LEASE)})
    bob = Taking(scene, "bob", well_known(scene), outcome=None, first=Advance(scene.clock, LEASE // SECOND))
    return world(scene, {first: (sent,)}, eve=eve, bob=bob)


def with_a_release(unguarded: tuple[int, ...] = ()) -> Scenario:
    """One message is acked with a follow-up in a commit that also lowers the header's floor for another."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    first, second = (held.entry.id for held in taken.held)
    sent = after(scene, 7, delay=HOUR)
    eve = settler(scene, "eve", taken, {first: Ack(follow_ups=(sent,)), second: Release(scene.now + SECOND, 0)})
    return world(scene, {first: (sent,)}, eve=eve, bob=Taking(scene, "bob", outcome=None))


def in_two_commits(unguarded: tuple[int, ...] = ()) -> Scenario:
    """The follow-ups of two messages are too large for one commit."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    large = [after(scene, number, delay=HOUR) for number in (7, 8)]
    large = [put._replace(value=put.value + b" " * 300_000) for put in large]
    acks = {held.entry.id: Ack(follow_ups=(put,)) for held, put in zip(taken.held, large, strict=True)}
    bob = Taking(scene, "bob", well_known(scene), outcome=None, first=Advance(scene.clock, LEASE // SECOND))
    follow_ups = {message: ack.follow_ups for message, ack in acks.items()}
    return world(scene, follow_ups, eve=settler(scene, "eve", taken, acks), bob=bob)


def with_a_claim(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Ann acks with her next claim, while bob claims too."""
    scene = Scene(messages=1, unguarded=unguarded)
    taken = scene.do("ann").claims[0]
    [message] = [held.entry.id for held in taken.held]
    scene.clock.advance(0.1)
    scene.sent += scene.send(1)
    sent = after(scene, 7)
    settling = [SettleRequest(taken.timer, {message: Ack(follow_ups=(sent,))})]
    return world(scene, {message: (sent,)}, ann=joiner(scene, "ann", settling), bob=Taking(scene, "bob"))


Making = Callable[..., Scenario]
#: Each scenario, its faults, and how many schedules there are at least.
WORLDS: list[tuple[Making, Faults, int]] = [
    (against_reclaim, CRASH, 50),
    (against_reclaim, UNKNOWN, 75),
    (against_reclaim, PAUSE, 18),
    (with_an_extension, CRASH, 35),
    (with_an_extension, UNKNOWN, 38),
    (with_a_release, CRASH, 24),
    (with_a_release, UNKNOWN, 10),
    (in_two_commits, CRASH, 380),
    (in_two_commits, UNKNOWN, 700),
    (with_a_claim, CRASH, 240),
    (with_a_claim, UNKNOWN, 310),
]


@pytest.mark.parametrize(
    ("make", "faults", "least"), WORLDS, ids=[f"{make.__name__}-{named(faults)}" for make, faults, _ in WORLDS]
)
def test_a_message_is_gone_if_and_only_if_its_follow_up_is_there(make: Making, faults: Faults, least: int) -> None:
    explored = played(make, faults).require_none()
    assert explored.complete
    assert explored.schedules >= least


@pytest.mark.parametrize("make", [against_reclaim, with_an_extension])
def test_without_the_guard_on_the_timer_a_message_has_two_follow_ups_or_none(make: Making) -> None:
    assert played(partial(make, (Type.TIMER,)), PLAIN).violations
