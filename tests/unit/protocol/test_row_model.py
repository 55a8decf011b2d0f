"""What model checking of one row found, each as the shortest story in which it went wrong."""

from __future__ import annotations

from functools import partial
from itertools import takewhile

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.protocol.admin.delete import clear
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, STAMP_BACK, State, Type
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.sending.insert import send
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, Commit, Read, run
from astyqueue.protocol.steps import Send as SendRequest
from astyqueue.store import Batch, Named, Slice
from astyqueue.testing import Failing, Recording
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at, warm

# Write times, removals and reads half-way: each store has code of its own for these.
pytestmark = pytest.mark.every_store

HOUR = 3_600 * SECOND
FAR = 1 << 52


def skewed(scene: Scene, name: str, by: int) -> Client:
    return Client(name, lambda: scene.clock.now() + by)


@pytest.mark.parametrize("newcomer", [True, False])
def test_a_message_that_landed_behind_the_head_is_found_also_after_everybody_was_away(*, newcomer: bool) -> None:
    scene = Scene()
    early = put_at(scene.now)
    scene.put(put_at(scene.now + 19 * SECOND // 10, 1))
    scene.clock.advance(1.9)
    snapshot = RowSnapshot(ROW, 1)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    scene.clock.advance(1)
    scene.put(early)
    scene.clock.advance("15m")
    claimed = scene.do("ann", snapshot=RowSnapshot(ROW, 1) if newcomer else snapshot)
    assert [held.entry.id for held in claimed.claims[0].held] == [early.name.id]


@pytest.mark.stores("memory", "sqlite")  # it is about write times, which elsewhere are not those of this clock
@pytest.mark.parametrize("knew_the_row", [False, True])
def test_a_reader_an_hour_ahead_hides_nothing_that_is_sent_in_that_hour(*, knew_the_row: bool) -> None:
    scene = Scene(messages=1)
    scene.acked(scene.do("ann").claims[0])
    snapshot = warm(scene, "ann")
    scene.put(put_at(scene.now + HOUR, 1))
    scene.clock.advance("1m")
    fast = claim(skewed(scene, "fred", HOUR), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS))
    scene.acked(run(fast, scene.store).claims[0])
    sent = []
    for _ in range(5):
        scene.clock.advance("6m")
        sent += scene.send(1)
    claimed = scene.do("ann", snapshot=snapshot if knew_the_row else RowSnapshot(ROW, 1))
    assert [held.entry.id for held in claimed.claims[0].held] == sent


def test_a_lease_extended_under_another_name_is_not_claimed_by_who_remembers_the_old_one() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    snapshot = warm(scene, "bob")
    id_ = taken.held[0].entry.id
    scene.settle(taken, {id_: Extend(scene.now + 2 * LEASE)})
    scene.clock.advance(LEASE // SECOND)
    assert not scene.do("bob", snapshot=snapshot).claims
    assert not scene.acked(taken).lost
    assert id_ in scene.store.gone


def test_a_scan_reads_the_header_exactly_then_timers_then_messages_then_dead_letters() -> None:
    scene = Scene(messages=1)
    seen = Recording(scene.store)
    run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS)), seen)
    reads = [request for request in seen.requests if isinstance(request, Read)]
    assert reads[0] == Read((Named(ROW, (HEADER,)),), exact=True)
    asked = [each.type for request in reads[1:] for each in request.wanted if isinstance(each, Slice)]
    assert asked == [Type.TIMER, Type.MESSAGE, Type.DEAD]
    assert isinstance(seen.requests[-1], Commit)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_message_that_dies_between_two_reads_of_a_claim_is_not_delivered(at: int) -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    rejecting = settle(
        scene.process("ann"), ROW, SettleRequest(taken.timer, {taken.held[0].entry.id: Reject("rejected", "no", 1)})
    )
    store = Meanwhile(scene.store, partial(run, rejecting, scene.store), at=at)
    claimed = run(claim(scene.process("bob"), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS)), store)
    assert not claimed.claims
    scene.store.require_lawful()


@pytest.mark.parametrize("outcome", [ACK, Reject("rejected", "no", 1), Extend(FAR), Release(FAR, 0)])
def test_an_owner_who_commits_all_the_time_does_not_starve_a_settle(outcome: Outcome) -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    snapshot, before = RowSnapshot(ROW, 1), scene.store.raised

    def owner() -> None:
        scene.clock.advance(0.005)
        scene.send(1)
        assert scene.do("bob", snapshot=snapshot).claims

    store = Meanwhile(scene.store, owner)
    request = SettleRequest(taken.timer, {taken.held[0].entry.id: outcome})
    settled = run(settle(scene.process("ann"), ROW, request), store)
    assert not settled.lost
    assert len(store.requests) == 1
    assert scene.store.raised == before + 1, "only the owner raised the header"


def test_a_release_that_an_owner_outruns_is_marked_and_counts_as_no_expiry() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    snapshot = RowSnapshot(ROW, 1)

    def owner() -> None:
        scene.clock.advance(0.005)
        scene.send(1)
        assert scene.do("bob", snapshot=snapshot).claims

    store = Meanwhile(scene.store, owner)
    id_ = taken.held[0].entry.id
    due = scene.now + 5 * SECOND
    assert not run(settle(scene.process("ann"), ROW, SettleRequest(taken.timer, {id_: Release(due, 1)})), store).lost
    assert [mark.due for timer in picture(scene.store).timers for mark in timer.marks] == [due]
    assert scene.acked(taken).lost == [id_], "the receipt ended with the mark"
    scene.clock.advance(5)
    again = scene.do("cyd").claims[0]
    assert [held.entry for held in again.held] == [taken.held[0].entry._replace(spent=1)]


def test_a_send_repeated_after_its_message_was_acked_stays_deleted_although_the_producer_is_ahead() -> None:
    scene = Scene(graves=True)
    put = put_at(scene.now, sent=scene.now + 3 * SECOND)
    pat = skewed(scene, "pat", 3 * SECOND)

    def others() -> None:
        for taken in scene.do("ann").claims:
            scene.acked(taken)

    lost = Failing(scene.store, OutcomeUnknown("the answer was lost"), of=(SendRequest,), applied=True)
    written = scene.now
    run(send(pat, Batch(ROW, (put,))), Meanwhile(lost, others))
    assert scene.store.gone == {put.name.id}
    assert not scene.everything_again()
    assert put.stamp == written + 3 * SECOND - STAMP_BACK


@pytest.mark.parametrize(("ahead", "handed_out"), [(50 * 60 * SECOND, 1), (50 * 60 * SECOND + 1, 0)])
def test_a_send_from_more_than_fifty_minutes_ahead_is_not_claimed_yet(ahead: int, handed_out: int) -> None:
    scene = Scene()
    scene.put(put_at(scene.now, sent=scene.now + ahead))
    assert len(scene.do("ann").claims) == handed_out
    scene.clock.advance("1s")
    assert len(scene.do("ann").claims) == 1 - handed_out


@pytest.mark.parametrize("newcomer", [False, True])
def test_a_send_from_far_ahead_holds_nothing_up_that_lies_behind_it(*, newcomer: bool) -> None:
    scene = Scene()
    scene.put(put_at(scene.now, sent=scene.now + 100 * 365 * 24 * 3_600 * SECOND))
    scene.clock.advance(1)
    sent = scene.send(3)
    snapshot = RowSnapshot(ROW, 1)
    assert [held.entry.id for held in scene.do("ann", snapshot=snapshot).claims[0].held] == sent
    assert not scene.do("bob").claims, "it lies under a timer, and is not looked at again before its time"
    scene.clock.advance("36500d")
    assert len(scene.do("ann", snapshot=RowSnapshot(ROW, 1) if newcomer else snapshot).claims) >= 1


@pytest.mark.parametrize("knew_the_row", [True, False])
def test_what_is_released_at_once_behind_the_head_comes_again_through_a_timer(*, knew_the_row: bool) -> None:
    scene = Scene(messages=3)
    snapshot = RowSnapshot(ROW, 1)
    taken = scene.do("ann", snapshot=snapshot).claims[0]
    first = taken.held[0].entry.id
    scene.settle(taken, {first: Release(scene.now, 0)})
    assert not picture(scene.store).waiting
    if knew_the_row:
        scene.survey(snapshot)
    again = scene.do("bob", snapshot=snapshot if knew_the_row else None).claims
    assert [[held.entry.id for held in one.held] for one in again] == [[first]]
    scene.store.require_lawful()


def test_a_settler_ten_minutes_slow_lowers_the_floor_so_that_nobody_misses_its_timer() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.clock.advance(1)
    scene.send(1)
    scene.do("bob")
    slow = skewed(scene, "ann", -600 * SECOND)
    outcome = Release(slow.now() + SECOND, 1)
    run(settle(slow, ROW, SettleRequest(taken.timer, {taken.held[0].entry.id: outcome})), scene.store)
    now = picture(scene.store)
    assert now.header is not None
    assert now.header.floor == outcome.due
    again = scene.do("cyd").claims[0]
    assert [held.entry.id for held in again.held] == [taken.held[0].entry.id]
    scene.store.require_lawful()


@pytest.mark.parametrize("at", range(1, 7))
def test_a_row_cleared_between_two_reads_of_a_claim_delivers_nothing(at: int) -> None:
    scene = Scene(messages=2)
    scene.do("eve", want=1)
    clearing = clear(scene.process("cleo"), ROW, 1)
    store = Meanwhile(scene.store, partial(run, clearing, scene.store), at=at)
    claimed = run(claim(scene.process("bob"), RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS)), store)
    assert len(store.requests) >= at or claimed.claims
    assert not claimed.claims or len(store.requests) < at
    scene.store.require_lawful()


def test_a_row_that_was_cleared_keeps_its_header_so_that_nobody_commits_on_its_absence() -> None:
    scene = Scene()
    snapshot = RowSnapshot(ROW, 1)
    run(load_snapshot(snapshot, scene.now), scene.store)
    scene.send(2)
    scene.do("bob", want=1)
    run(clear(scene.process("cleo"), ROW, 1), scene.store)
    left = picture(scene.store)
    assert left.header is not None
    assert not left.messages
    scene.clock.advance(1)
    scene.send(1)
    assert scene.do("ann", snapshot=snapshot).refused == 1
    after = picture(scene.store).header
    assert after is not None
    assert after.version == left.header.version + 1


def test_a_claimer_an_hour_behind_loses_its_lease_at_once_and_nothing_worse() -> None:
    scene = Scene(messages=1)
    scene.clock.advance("2h")
    slow = skewed(scene, "sam", -HOUR)
    taken = run(claim(slow, RowSnapshot(ROW, 1), ClaimRequest(10, LEASE, ATTEMPTS)), scene.store).claims[0]
    again = scene.do("bob").claims[0]
    assert scene.acked(taken).lost == [taken.held[0].entry.id]
    assert not scene.acked(again).lost
    scene.store.require_lawful()


def test_more_outcomes_than_a_commit_should_hold_go_before_the_claim() -> None:
    scene = Scene(messages=200)
    first = scene.do("ann", want=200).claims[0]
    scene.clock.advance(1)
    scene.send(100)
    second = scene.do("ann", want=100, leased_count=200).claims[0]
    scene.clock.advance(1)
    scene.send(5)
    settling = [
        SettleRequest(taken.timer, {held.entry.id: Reject("failed", "x" * 5_000, 1) for held in taken.held})
        for taken in (first, second)
    ]
    seen = Recording(scene.store)
    run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(200, LEASE, ATTEMPTS), settling=settling), seen)
    batches = [request.batch for request in seen.requests if isinstance(request, Commit)]
    assert [len(batch.puts) + len(batch.deletes) for batch in batches] == [201, 101, 2]
    assert all(sum(len(put.value) for put in batch.puts) < 512 * 1024 for batch in batches)


def test_a_message_that_kills_its_worker_buries_no_neighbour() -> None:
    scene = Scene(messages=200)
    poison, deaths = scene.sent[2], 0
    for number in range(100):
        deaths += _a_worker_dies(scene, f"worker-{number}", poison)
        scene.clock.advance("31s")
    assert picture(scene.store).dead == {poison}
    assert scene.store.gone == set(scene.sent) - {poison}
    assert deaths <= ATTEMPTS + 4
    scene.store.require_lawful()


def _a_worker_dies(scene: Scene, name: str, poison: ids.Id) -> bool:
    """It takes what it gets one after the other and acks each; whether it met the poison and died."""
    snapshot = RowSnapshot(ROW, 1)
    while claims := scene.do(name, snapshot=snapshot, want=200).claims:
        work = [(taken, held.entry) for taken in claims for held in taken.held]
        for taken, entry in takewhile(lambda one: one[1].id != poison, work):
            assert entry.spent == 0, "an innocent was counted"
            scene.settle(taken, {entry.id: ACK}, name=name)
        if any(entry.id == poison for _, entry in work):
            return True
    return False


def test_a_released_message_is_waiting_nowhere_but_in_its_timer() -> None:
    scene = Scene(messages=1)
    taken = scene.do("ann").claims[0]
    scene.settle(taken, {taken.held[0].entry.id: Release(scene.now + LEASE * 2, 1, State.SNOOZED)})
    assert [timer.state for timer in picture(scene.store).timers] == [State.SNOOZED]
    assert not scene.do("bob").claims
