"""Every way in which claims and settles of one row can meet, a crash, an unknown outcome or a late answer included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.protocol.layout.columns import SCANS, Type
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest
from astyqueue.protocol.steps import run
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import replay
from tests.modelcheck.schedule import Advance, Work, advancing
from tests.unit.protocol.checked_store import ROW
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, PLAIN, UNKNOWN, Faults, named, played
from tests.unit.protocol.worlds import LEASE, Scene, Taking, begin, joiner, put_at, sender, settler, warm


def well_known(scene: Scene) -> RowSnapshot:
    """A row well known: header, timers, and nothing left for the late looks."""
    snapshot = RowSnapshot(ROW, 1)
    run(load_snapshot(snapshot, scene.now), scene.store)
    snapshot.scans.scanned_at = [scene.now] * SCANS
    snapshot.scans.cursors = [[cursors[0]] * SCANS for cursors in snapshot.scans.cursors]
    return snapshot


def two_cold(unguarded: tuple[int, ...] = ()) -> Scenario:
    scene = Scene(messages=2, unguarded=unguarded)
    return scene.world(ann=Taking(scene, "ann"), bob=Taking(scene, "bob"))


def warm_and_cold(unguarded: tuple[int, ...] = ()) -> Scenario:
    scene = Scene(messages=1, unguarded=unguarded)
    scene.acked(scene.do("eve").claims[0])
    snapshot = warm(scene, "ann")
    scene.clock.advance("20s")
    scene.sent += scene.send(2)
    return scene.world(ann=Taking(scene, "ann", snapshot=snapshot), bob=Taking(scene, "bob"))


def three_warm(unguarded: tuple[int, ...] = ()) -> Scenario:
    scene = Scene(messages=1, unguarded=unguarded)
    scene.acked(scene.do("eve").claims[0])
    snapshots = {name: warm(scene, name) for name in ("ann", "bob", "cyd")}
    scene.clock.advance(0.1)
    scene.sent += scene.send(2)
    return scene.world(
        **{name: Taking(scene, name, snapshot=snapshot, outcome=None, want=1) for name, snapshot in snapshots.items()}
    )


def three_cold(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Three who know nothing of a row, and one message for all of them."""
    scene = Scene(messages=1, unguarded=unguarded)
    return scene.world(**{name: Taking(scene, name, outcome=None, want=1) for name in ("ann", "bob", "cyd")})


def expiring(unguarded: tuple[int, ...] = ()) -> Scenario:
    """A lease that ends at some moment, and two claimers who both saw it begin; one of them looks at any time."""
    scene = Scene(messages=1, unguarded=unguarded)
    scene.do("eve")
    snapshots = [warm(scene, "ann"), warm(scene, "bob")]
    ann, bob = (
        Taking(scene, "ann", snapshots[0], first=begin),
        Taking(scene, "bob", snapshots[1], first=Advance(scene.clock, LEASE // SECOND)),
    )
    return scene.world(ann=ann, bob=bob)


def ending(unguarded: tuple[int, ...] = ()) -> Scenario:
    """A lease that ends at any moment of a claimer's look."""
    scene = Scene(messages=1, unguarded=unguarded)
    scene.do("eve")
    scene.clock.advance(0.1)
    scene.sent += scene.send(1)
    return scene.world(ann=Taking(scene, "ann", first=begin), time=advancing(scene.clock, LEASE // SECOND))


def against_reclaim(*outcomes: Outcome, unguarded: tuple[int, ...] = ()) -> Scenario:
    """Eve settles her message in these stages; at any moment her lease runs out, and bob, who saw it, claims again."""
    scene = Scene(messages=1, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    bob = Taking(scene, "bob", well_known(scene), first=Advance(scene.clock, LEASE // SECOND))
    eve = settler(scene, "eve", taken, *[{taken.held[0].entry.id: outcome} for outcome in outcomes])
    return scene.world(eve=eve, bob=bob)


NOW = TimeMachine().now()


def ack(unguarded: tuple[int, ...] = ()) -> Scenario:
    return against_reclaim(ACK, unguarded=unguarded)


def release(unguarded: tuple[int, ...] = ()) -> Scenario:
    return against_reclaim(Release(NOW + SECOND, 0), unguarded=unguarded)


def release_later(unguarded: tuple[int, ...] = ()) -> Scenario:
    return against_reclaim(Release(NOW + 2 * LEASE, 0), ACK, unguarded=unguarded)


def extend(unguarded: tuple[int, ...] = ()) -> Scenario:
    return against_reclaim(Extend(NOW + 2 * LEASE), ACK, unguarded=unguarded)


def extend_only(unguarded: tuple[int, ...] = ()) -> Scenario:
    return against_reclaim(Extend(NOW + 2 * LEASE), unguarded=unguarded)


def reject(unguarded: tuple[int, ...] = ()) -> Scenario:
    return against_reclaim(Reject("rejected", "of no use", 1), unguarded=unguarded)


def partly(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Eve acks one of two messages while bob claims them again."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    bob = Taking(scene, "bob", well_known(scene), first=Advance(scene.clock, LEASE // SECOND))
    eve = settler(scene, "eve", taken, *[{held.entry.id: ACK} for held in taken.held])
    return scene.world(eve=eve, bob=bob)


def joined(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Ann acks with her next claim, while bob claims too."""
    scene = Scene(messages=1, unguarded=unguarded)
    taken = scene.do("ann").claims[0]
    scene.clock.advance(0.1)
    scene.sent += scene.send(1)
    settling = [SettleRequest(taken.timer, {taken.held[0].entry.id: ACK})]
    return scene.world(ann=joiner(scene, "ann", settling), bob=Taking(scene, "bob"))


def joined_pair(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Ann acks two claims, one of them past its lease, with her next claim; bob takes what he can and acks it."""
    scene = Scene(messages=2, unguarded=unguarded)
    early = scene.do("ann", want=1, lease=LEASE // 2).claims[0]
    late = scene.do("ann", want=1, leased_count=1).claims[0]
    scene.clock.advance(LEASE // 2 // SECOND)
    settling = [SettleRequest(one.timer, {one.held[0].entry.id: ACK}) for one in (early, late)]
    scene.sent += scene.send(1)
    snapshots = well_known(scene), well_known(scene)
    return scene.world(
        ann=joiner(scene, "ann", settling, snapshot=snapshots[0]), bob=Taking(scene, "bob", snapshot=snapshots[1])
    )


def two_settle(unguarded: tuple[int, ...] = ()) -> Scenario:
    """Two processes settle one claim of two messages by receipt."""
    scene = Scene(messages=2, unguarded=unguarded)
    taken = scene.do("eve").claims[0]
    first, second = (held.entry.id for held in taken.held)
    ann = settler(scene, "ann", taken, {first: Extend(scene.now + 2 * LEASE), second: ACK})
    bob = settler(scene, "bob", taken, {first: ACK}, {second: ACK})
    return scene.world(ann=ann, bob=bob)


def late_sender(unguarded: tuple[int, ...] = ()) -> Scenario:
    """A message lands behind the head, at any point of a claimer's looks."""
    scene = Scene(messages=2, unguarded=unguarded)
    old = put_at(scene.now - 20 * SECOND, 7)

    def ann() -> Work:
        snapshot = warm(scene, "ann")
        for wait in (11, 601):
            yield from Taking(scene, "ann", snapshot=snapshot)()
            yield Advance(scene.clock, wait)
        return (yield from Taking(scene, "ann", snapshot=snapshot)())

    return scene.world(ann=ann, pat=sender(scene, "pat", old))


Making = Callable[..., Scenario]
#: Each scenario, its faults, and how many schedules there are at least.
WORLDS: list[tuple[Making, Faults, int]] = [
    (two_cold, PLAIN, 18),
    (two_cold, CRASH, 110),
    (two_cold, UNKNOWN, 125),
    (warm_and_cold, CRASH, 80),
    (warm_and_cold, UNKNOWN, 95),
    (warm_and_cold, PAUSE, 90),
    (three_warm, PLAIN, 10),
    (three_warm, CRASH, 110),
    (three_cold, CRASH, 700),
    (ending, CRASH, 90),
    (expiring, CRASH, 530),
    (expiring, PAUSE, 510),
    (expiring, UNKNOWN, 660),
    (ack, CRASH, 45),
    (ack, UNKNOWN, 65),
    (ack, PAUSE, 18),
    (release, CRASH, 80),
    (release, UNKNOWN, 115),
    (release_later, CRASH, 160),
    (extend, CRASH, 390),
    (extend, UNKNOWN, 780),
    (extend, PAUSE, 400),
    (reject, CRASH, 35),
    (reject, UNKNOWN, 45),
    (partly, PLAIN, 250),
    (joined, CRASH, 135),
    (joined, UNKNOWN, 190),
    (joined_pair, PLAIN, 25),
    (joined_pair, UNKNOWN, 480),
    (two_settle, CRASH, 95),
    (two_settle, UNKNOWN, 320),
    (two_settle, PAUSE, 95),
    (late_sender, PLAIN, 17),
    (late_sender, CRASH, 290),
]


@pytest.mark.parametrize(
    ("make", "faults", "least"), WORLDS, ids=[f"{make.__name__}-{named(faults)}" for make, faults, _ in WORLDS]
)
def test_no_order_of_events_breaks_a_promise(make: Making, faults: Faults, least: int) -> None:
    explored = played(make, faults).require_none()
    assert explored.complete
    assert explored.schedules >= least


@pytest.mark.parametrize("make", [two_cold, warm_and_cold, joined])
def test_without_the_guard_on_the_header_promises_break(make: Making) -> None:
    assert played(partial(make, (Type.LOCK,)), PLAIN).violations


@pytest.mark.parametrize("make", [partly, extend_only])
def test_without_the_guard_on_a_replaced_timer_promises_break(make: Making) -> None:
    assert played(partial(make, (Type.TIMER,)), PLAIN).violations


def test_the_shortest_way_to_two_holders_is_reported_as_a_story() -> None:
    found = played(partial(two_cold, (Type.LOCK,)), PLAIN).shortest
    assert found is not None
    assert replay(partial(two_cold, (Type.LOCK,)), str(found.schedule)) is not None
