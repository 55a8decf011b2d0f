"""Looks: each id is read a fixed number of times, what lands late is found, and an idle row costs next to nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from astyqueue.ids import Id
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import SCANS, STAMP_BACK, Header, State, Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.idempotent import idempotent_message, numbered_id, send_idempotent
from astyqueue.protocol.settling.outcomes import ACK, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Read, Request, run
from astyqueue.store import Batch, Put, Slice, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, Recording, TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import deterministic_client
from tests.unit.protocol.checked_store import ROW, picture
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at, warm


class Counting(Faulty):
    """Counts how often each message comes up in a slice."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.seen: Counter[Id] = Counter()
        self.slices = 0

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Read) and isinstance(answer, list):
            looks = [each for each in request.wanted if isinstance(each, Slice) and each.type == Type.MESSAGE]
            self.slices += len(looks)
            self.seen.update(column.name.id for columns in answer for column in columns if looks)
        return answer


def stream(count: int, clock: TimeMachine, store: Store) -> list[Id]:
    """Messages of the last ten seconds, evenly spread, in few batches."""
    puts = [put_at(clock.now() - 10 * SECOND + number * 10 * SECOND // count) for number in range(count)]
    for at in range(0, count, 500):
        store.send(Batch(ROW, tuple(puts[at : at + 500])))
    return [put.name.id for put in puts]


def stored_header(store: MemoryStore) -> Header:
    header = picture(store).header
    assert header is not None
    return header


def test_a_late_message_left_for_want_of_room_does_not_wait_for_the_next_late_scan() -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    late = put_at(scene.now - SECOND, 1), put_at(scene.now - SECOND, 2)
    scene.clock.advance(20)
    scene.send(1)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    scene.put(*late)  # behind the scans of half a second and of ten
    scene.clock.advance(650)
    found = []
    for _ in late:
        [taken] = scene.do("ann", snapshot=snapshot, want=1).claims
        found += [held.entry.id for held in taken.held]
        scene.acked(taken, snapshot=snapshot)
    assert found == [put.name.id for put in late]


@pytest.mark.full
def test_a_late_message_behind_thousands_that_are_hidden_does_not_wait_for_a_late_scan_for_each_page() -> None:
    scene, snapshot = Scene(), RowSnapshot(ROW, 1)
    puts = [put_at(scene.now - SECOND + number) for number in range(5_000)]
    for first in range(0, len(puts), 500):
        scene.put(*puts[first : first + 500])
    while claims := scene.do("ann", snapshot=snapshot, want=200).claims:
        resting = {held.entry.id: Release(scene.now + 3_600 * SECOND, 1) for held in claims[0].held}
        scene.settle(claims[0], resting, snapshot=snapshot)
    late = put_at(scene.now - SECOND + 4_000, 1)
    scene.put(late)
    scene.clock.advance(1)
    found = [held.entry.id for _ in range(10) for one in scene.do("ann", snapshot=snapshot).claims for held in one.held]
    assert found == [late.name.id]


def test_each_of_ten_thousand_ids_is_read_a_fixed_number_of_times() -> None:
    clock = TimeMachine()
    store = Counting(MemoryStore(clock))
    sent = stream(10_000, clock, store)
    process, snapshot = deterministic_client("ann", clock), RowSnapshot(ROW, 1)
    claimed = [
        one
        for _ in range(50)
        for one in run(claim(process, snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), store).claims
    ]
    assert [held.entry.id for one in claimed for held in one.held] == sent
    for one in claimed:
        parked = {held.entry.id: Release(clock.now() + 86_400 * SECOND, 0, State.PARKED) for held in one.held}
        for settle_plan in run(settle(process, ROW, SettleRequest(one.timer, parked)), store).done:
            snapshot.settled(settle_plan.timer_change)
    for _ in range(100):
        clock.advance("30s")
        run(claim(process, snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), store)
    assert set(store.seen) == set(sent)
    assert max(store.seen.values()) <= SCANS + 1
    assert sum(store.seen.values()) <= len(sent) * SCANS + 200


def test_what_was_passed_is_not_scanned_again_by_a_new_process() -> None:
    clock = TimeMachine()
    store = Counting(MemoryStore(clock))
    stream(2_000, clock, store)
    process, snapshot = deterministic_client("ann", clock), RowSnapshot(ROW, 1)
    for _ in range(11):
        run(claim(process, snapshot, ClaimRequest(200, 12 * 3_600 * SECOND, ATTEMPTS)), store)
    for _ in range(12):
        clock.advance("2m")
        run(claim(process, snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), store)
    store.seen.clear()
    run(claim(deterministic_client("bob", clock), RowSnapshot(ROW, 1), ClaimRequest(200, LEASE, ATTEMPTS)), store)
    assert sum(store.seen.values()) < 1_000


def test_an_idle_row_is_read_once_a_scan_and_its_old_ids_no_more() -> None:
    scene = Scene(messages=5)
    snapshot = RowSnapshot(ROW, 1)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    for _ in range(4):
        scene.clock.advance("11m")
        scene.do("ann", snapshot=snapshot)
    seen = Recording(scene.store)
    for _ in range(10):
        scene.clock.advance("5m")
        run(claim(scene.process("ann"), snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), seen)
    reads = [each for request in seen.requests if isinstance(request, Read) for each in request.wanted]
    assert [(each.type, each.after) for each in reads if isinstance(each, Slice)] == [
        (Type.MESSAGE, scene.sent[-1])
    ] * 10
    assert snapshot.next_scan(scene.now) is None


@pytest.mark.parametrize("levels", [1, 2])
def test_what_came_from_timers_one_by_one_is_not_in_the_way_of_each_poll(levels: int) -> None:
    scene = Scene()
    snapshot = RowSnapshot(ROW, levels)
    wanted = [
        idempotent_message(encode_plain(scene.now, b"%d" % number), 0, numbered_id("source", number, scene.now))
        for number in range(5)
    ]
    run(send_idempotent(scene.process("ann"), ROW, wanted), scene.store)
    for _ in wanted:
        (claimed,) = run(claim(scene.process("ann"), snapshot, ClaimRequest(1, LEASE, ATTEMPTS)), scene.store).claims
        scene.acked(claimed, snapshot=snapshot)
    seen = Recording(scene.store)
    for _ in range(2):
        run(claim(scene.process("ann"), snapshot, ClaimRequest(1, LEASE, ATTEMPTS)), seen)
    heads = [
        each.after
        for request in seen.requests
        if isinstance(request, Read)
        for each in request.wanted
        if isinstance(each, Slice)
    ]
    assert heads[-1] == max(each.id for each in wanted)


@pytest.mark.parametrize(("late", "found_after"), [(0.3, 0.6), (0.3, 11), (5, 11), (55, 601), (300, 602)])
@pytest.mark.parametrize("newcomer", [False, True])
def test_what_lands_behind_the_head_is_found_by_a_later_scan(
    late: float, found_after: float, *, newcomer: bool
) -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    scene.clock.advance(0.01)
    old = put_at(scene.now, 1)
    scene.clock.advance(0.01)
    scene.send(1)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    for _ in range(5):
        scene.clock.advance(late / 5)
        scene.do("ann", snapshot=snapshot)
    scene.put(old)
    scene.clock.advance(found_after)
    claims = scene.do("bob", snapshot=RowSnapshot(ROW, 1) if newcomer else snapshot).claims
    assert [held.entry.id for one in claims for held in one.held] == [old.name.id]
    scene.store.require_lawful()


def test_a_scan_of_a_thousand_ids_without_a_claim_is_stored_for_others() -> None:
    scene = Scene()
    clock, store = scene.clock, MemoryStore(scene.clock)
    sent = stream(1_500, clock, store)
    process, snapshot = deterministic_client("ann", clock), RowSnapshot(ROW, 1)
    claimed = [
        one
        for _ in range(8)
        for one in run(claim(process, snapshot, ClaimRequest(200, 86_400 * SECOND, ATTEMPTS)), store).claims
    ]
    assert sum(len(one.held) for one in claimed) == len(sent)
    before = stored_header(store)
    clock.advance("11m")
    run(claim(process, snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), store)
    after = stored_header(store)
    assert after.version == before.version + 1
    assert after.cursors[0][-1] > before.cursors[0][-1]
    assert after.floor == min(one.timer.due for one in claimed)


def test_a_scan_of_the_tombstones_of_a_thousand_is_stored_for_others_once() -> None:
    scene = Scene()
    clock, store = scene.clock, MemoryStore(scene.clock)
    sent = stream(1_500, clock, store)
    process, snapshot = deterministic_client("ann", clock), RowSnapshot(ROW, 1)
    for _ in range(8):
        [taken] = run(claim(process, snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), store).claims
        outcomes = {held.entry.id: ACK for held in taken.held}
        [settle_plan] = run(settle(process, ROW, SettleRequest(taken.timer, outcomes)), store).done
        snapshot.settled(settle_plan.timer_change)
    before = stored_header(store)
    for _ in range(3):
        clock.advance("11m")
        run(claim(process, snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), store)
    after = stored_header(store)
    assert after.version == before.version + 1
    assert after.cursors[0][-1] == sent[-1]


def test_a_message_that_is_not_due_is_not_taken_and_hides_nothing() -> None:
    scene = Scene()
    later, now = put_at(scene.now + 10 * SECOND), put_at(scene.now, 1)
    scene.put(later, now)
    snapshot = RowSnapshot(ROW, 1)
    assert [held.entry.id for held in scene.do("ann", snapshot=snapshot).claims[0].held] == [now.name.id]
    scene.clock.advance("9s")
    scene.put(put_at(scene.now, 2))
    assert len(scene.do("ann", snapshot=snapshot).claims[0].held) == 1
    scene.clock.advance("1s")
    assert [held.entry.id for held in scene.do("ann", snapshot=snapshot).claims[0].held] == [later.name.id]


@pytest.mark.parametrize("want", [1, 2, 200])
def test_what_others_hold_ahead_of_the_head_is_passed(want: int) -> None:
    scene = Scene(messages=20)
    scene.do("bob", want=19)
    snapshot = warm(scene, "ann")
    snapshot.scans.cursors = [[bytes(16)] * SCANS]
    found = [
        held.entry.id
        for _ in range(21)
        for one in scene.do("ann", snapshot=snapshot, want=want).claims
        for held in one.held
    ]
    assert found == [scene.sent[-1]]


def test_a_stamp_decides_nothing_about_order() -> None:
    scene = Scene()
    first, second = put_at(scene.now), put_at(scene.now, 1)
    scene.put(Put(second.name, second.value, scene.now - 5 * STAMP_BACK), first)
    taken = scene.do("ann").claims[0]
    assert [held.entry.id for held in taken.held] == [first.name.id, second.name.id]
    assert not scene.settle(taken, dict.fromkeys((first.name.id, second.name.id), ACK)).lost


def test_a_priority_that_is_full_of_what_is_due_again_is_not_read_from_its_head_on() -> None:
    scene = Scene()
    scene.put(*[put_at(scene.now, number, priority=1) for number in range(4)])
    snapshot = RowSnapshot(ROW, 3)
    taken = scene.do("ann", snapshot=snapshot, want=4).claims[0]
    scene.settle(taken, {held.entry.id: Release(scene.now, 1) for held in taken.held}, snapshot=snapshot)
    store = Recording(scene.store)
    claimed = run(claim(scene.process("ann"), snapshot, ClaimRequest(3, LEASE, ATTEMPTS)), store)
    asked = [one for request in store.requests if isinstance(request, Read) for one in request.wanted]
    assert [
        one.priority for one in asked if isinstance(one, Slice) and one.type == Type.MESSAGE and one.limit == 1
    ] == [2]
    assert sum(len(one.held) for one in claimed.claims) == 3
