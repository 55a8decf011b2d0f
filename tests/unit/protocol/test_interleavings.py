"""Every way in which claims and settles of one row can meet, a crash, an unknown outcome or a late answer included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.clock import SECOND
from astyqueue.protocol.claim import Settlement
from astyqueue.protocol.columns import LOOKS, Type
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import run
from astyqueue.protocol.settle import ACK, Extend, Reject, Release, Settling
from astyqueue.testing import Explored, Tick, TimeMachine, World, explore, replay, ticking
from astyqueue.testing.schedule import Work
from tests.unit.protocol.watched import ROW
from tests.unit.protocol.worlds import LEASE, Scene, joiner, put_at, sender, settler, taker, warm

Befalls = dict[str, int]
PLAIN: Befalls = {}
CRASH: Befalls = {"crashes": 1}
UNKNOWN: Befalls = {"unknowns": 1}
PAUSE: Befalls = {"pauses": 1}


def settled_sight(scene: Scene) -> Sight:
    """A row well known: header, timers, and nothing left for the late looks."""
    sight = Sight(ROW, 1)
    run(know(sight, scene.now), scene.store)
    sight.looked = [scene.now] * LOOKS
    return sight


def two_cold(unguarded: tuple[int, ...] = ()) -> World:
    scene = Scene(messages=2, unguarded=unguarded)
    return scene.world(ann=taker(scene, "ann"), bob=taker(scene, "bob"))


def warm_and_cold(unguarded: tuple[int, ...] = ()) -> World:
    scene = Scene(messages=1, unguarded=unguarded)
    scene.acked(scene.do("eve").claims[0])
    sight = warm(scene, "ann")
    scene.clock.advance("20s")
    scene.sent += scene.send(2)
    return scene.world(ann=taker(scene, "ann", sight=sight), bob=taker(scene, "bob"))


def three_warm(unguarded: tuple[int, ...] = ()) -> World:
    scene = Scene(messages=1, unguarded=unguarded)
    scene.acked(scene.do("eve").claims[0])
    sights = {name: warm(scene, name) for name in ("ann", "bob", "cyd")}
    scene.clock.advance(0.1)
    scene.sent += scene.send(2)
    return scene.world(**{name: taker(scene, name, sight=sight, outcome=None, want=1) for name, sight in sights.items()})


def expiring(unguarded: tuple[int, ...] = ()) -> World:
    """A lease that ends somewhere in the middle, between two claimers who both saw it begin."""
    scene = Scene(messages=1, unguarded=unguarded)
    scene.do("eve")
    sights = [warm(scene, "ann"), warm(scene, "bob")]
    ann, bob = taker(scene, "ann", sight=sights[0]), taker(scene, "bob", sight=sights[1])
    return scene.world(ann=ann, bob=bob, time=ticking(scene.clock, LEASE // SECOND))


def against_reclaim(outcome: Settling, unguarded: tuple[int, ...] = ()) -> World:
    """Eve settles one of her two messages while her lease runs out and bob, who saw it, claims again."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    sight = warm(scene, "bob")
    first, second = (held.entry.id for held in taken.held)
    eve = settler(scene, "eve", taken, {first: outcome}, {first: ACK, second: ACK})
    return scene.world(eve=eve, bob=taker(scene, "bob", sight=sight), time=ticking(scene.clock, LEASE // SECOND))


def ack(unguarded: tuple[int, ...] = ()) -> World:
    return against_reclaim(ACK, unguarded)


def release(unguarded: tuple[int, ...] = ()) -> World:
    return against_reclaim(Release(TimeMachine().now() + SECOND, 0), unguarded)


def release_later(unguarded: tuple[int, ...] = ()) -> World:
    return against_reclaim(Release(TimeMachine().now() + 2 * LEASE, 0), unguarded)


def extend(unguarded: tuple[int, ...] = ()) -> World:
    return against_reclaim(Extend(TimeMachine().now() + 2 * LEASE), unguarded)


def extend_once(unguarded: tuple[int, ...] = ()) -> World:
    """Eve extends her lease of one message and acks nothing more, while it runs out for bob."""
    scene = Scene(messages=1, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    sight = warm(scene, "bob")
    eve = settler(scene, "eve", taken, {taken.held[0].entry.id: Extend(scene.now + 2 * LEASE)})
    return scene.world(eve=eve, bob=taker(scene, "bob", sight=sight), time=ticking(scene.clock, LEASE // SECOND))


def reject(unguarded: tuple[int, ...] = ()) -> World:
    return against_reclaim(Reject("rejected", "of no use", 1), unguarded)


def joined(unguarded: tuple[int, ...] = ()) -> World:
    """Ann acks with her next claim, while bob claims too."""
    scene = Scene(messages=1, unguarded=unguarded)
    taken = scene.do("ann").claims[0]
    scene.clock.advance(0.1)
    scene.sent += scene.send(1)
    settling = [Settlement(taken.timer, {taken.held[0].entry.id: ACK})]
    return scene.world(ann=joiner(scene, "ann", settling), bob=taker(scene, "bob"))


def joined_pair(unguarded: tuple[int, ...] = ()) -> World:
    """Ann acks two claims, one of them past its lease, with her next claim; bob takes what he can and acks it."""
    scene = Scene(messages=2, unguarded=unguarded)
    early = scene.do("ann", want=1, lease=LEASE // 2).claims[0]
    late = scene.do("ann", want=1, in_hand=1).claims[0]
    scene.clock.advance(LEASE // 2 // SECOND)
    settling = [Settlement(one.timer, {one.held[0].entry.id: ACK}) for one in (early, late)]
    scene.sent += scene.send(1)
    sights = settled_sight(scene), settled_sight(scene)
    return scene.world(ann=joiner(scene, "ann", settling, sight=sights[0]), bob=taker(scene, "bob", sight=sights[1]))


def two_settle(unguarded: tuple[int, ...] = ()) -> World:
    """Two processes settle one claim of two messages by receipt."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    first, second = (held.entry.id for held in taken.held)
    ann = settler(scene, "ann", taken, {first: Extend(scene.now + 2 * LEASE), second: ACK})
    bob = settler(scene, "bob", taken, {first: ACK}, {second: ACK})
    return scene.world(ann=ann, bob=bob)


def late_sender(unguarded: tuple[int, ...] = ()) -> World:
    """A message lands behind the head, at any point of a claimer's looks."""
    scene = Scene(messages=2, unguarded=unguarded)
    old = put_at(scene.now - 20 * SECOND, 7)

    def ann() -> Work:
        sight = warm(scene, "ann")
        for wait in (11, 601):
            yield from taker(scene, "ann", sight=sight)()
            yield Tick(scene.clock, wait)
        return (yield from taker(scene, "ann", sight=sight)())

    return scene.world(ann=ann, pat=sender(scene, "pat", old))


Making = Callable[..., World]
#: Each world, what befalls it, and how many schedules there are at least.
WORLDS: list[tuple[Making, Befalls, int]] = [
    (two_cold, PLAIN, 0),
    (two_cold, CRASH, 0),
    (two_cold, UNKNOWN, 0),
    (warm_and_cold, CRASH, 0),
    (warm_and_cold, UNKNOWN, 0),
    (warm_and_cold, PAUSE, 0),
    (three_warm, PLAIN, 0),
    (three_warm, CRASH, 0),
    (expiring, CRASH, 0),
    (expiring, PAUSE, 0),
    (expiring, UNKNOWN, 0),
    (ack, CRASH, 0),
    (ack, UNKNOWN, 0),
    (ack, PAUSE, 0),
    (release, CRASH, 0),
    (release, UNKNOWN, 0),
    (release_later, CRASH, 0),
    (extend, CRASH, 0),
    (extend, UNKNOWN, 0),
    (extend, PAUSE, 0),
    (reject, CRASH, 0),
    (joined, CRASH, 0),
    (joined, UNKNOWN, 0),
    (joined_pair, PLAIN, 0),
    (joined_pair, UNKNOWN, 0),
    (two_settle, CRASH, 0),
    (two_settle, UNKNOWN, 0),
    (two_settle, PAUSE, 0),
    (late_sender, PLAIN, 0),
    (late_sender, CRASH, 0),
]


def named(befalls: Befalls) -> str:
    return next(iter(befalls), "nothing")


def played(make: Callable[[], World], befalls: Befalls) -> Explored:
    explored = explore(make, isolated=True, limit=20_000, **befalls)  # type: ignore[arg-type]  # the counts are all ints
    print(f"{getattr(make, '__name__', 'unguarded')}, {named(befalls)} befalls: {explored}")  # noqa: T201 - how much was explored is part of the proof
    return explored


@pytest.mark.parametrize(("make", "befalls", "least"), WORLDS, ids=[f"{make.__name__}-{named(befalls)}" for make, befalls, _ in WORLDS])
def test_no_order_of_events_breaks_a_promise(make: Making, befalls: Befalls, least: int) -> None:
    explored = played(make, befalls).require_none()
    assert explored.complete
    assert explored.schedules >= least


@pytest.mark.parametrize("make", [two_cold, warm_and_cold, joined])
def test_without_the_guard_on_the_header_promises_break(make: Making) -> None:
    assert played(partial(make, (Type.LOCK,)), PLAIN).violations


@pytest.mark.parametrize("make", [ack, extend_once, two_settle])
def test_without_the_guard_on_a_replaced_timer_promises_break(make: Making) -> None:
    explored = played(partial(make, (Type.TIMER,)), PLAIN)
    assert 0 < len(explored.violations) < explored.schedules, "in some orders nobody comes in between"


def test_the_shortest_way_to_two_holders_is_told_as_a_story() -> None:
    found = played(partial(two_cold, (Type.LOCK,)), PLAIN).shortest
    assert found is not None
    assert replay(partial(two_cold, (Type.LOCK,)), str(found.schedule)) is not None
