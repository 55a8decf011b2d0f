"""What the simulation found in the protocol, each reduced to a few steps."""

from __future__ import annotations

import pytest

from astyqueue.errors import OutcomeUnknown, SliceTooLong, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.model.envelope import encode_plain
from astyqueue.model.settings import Layout
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Entry, Mark, State, Timer, Type, encoded
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.sending.unique import UniqueMessage, send_replacing, send_unique
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Release, SettlePlan, plan_settle
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Client, Commit, Read, Steps, perform, run
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease, after_settling
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.store import Batch, Column, Name, Named
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, TimeMachine
from astyqueue.units import SECOND

ROW = "mail:0:0"
HOME = "mail:home:0"


@pytest.fixture
def clock() -> TimeMachine:
    return TimeMachine()


def test_of_a_timer_that_shrinks_in_place_the_later_value_is_the_greater(clock: TimeMachine) -> None:
    """Cassandra keeps the greater of two values with one stamp, so the later value must be the greater one.

    Otherwise, if two commits ever had one stamp, a released message would be listed in its old timer and in the new
    one, and have two current receipts.
    """
    process = Client("ann", clock.now)
    name = Name(Type.TIMER, 0, process.id_at(clock.now() + SECOND), State.LEASED)
    entries = tuple(Entry(process.id_at(clock.now()), 0, 0) for _ in range(3))
    full = encoded(Timer(name, entries, process.nonce(), "ann", 3))
    one_less = plan_settle(process, full, {entries[0].id: ACK}).left
    marked = encoded(Timer(name, entries[1:], full.nonce, "ann", 3, marks=(Mark(entries[0].id, 0, 0, clock.now()),)))
    assert one_less is not None
    assert full.value < marked.value < one_less.value


def test_a_settle_that_the_store_leaves_half_way_is_reported_as_done_when_it_is_tried_again(clock: TimeMachine) -> None:
    """One message was extended since; after the ack of the other, the store fails when its receipt is looked for."""
    store, process = MemoryStore(clock), Client("ann", clock.now)
    drawn = [process.id_at(clock.now()) for _ in range(2)]
    puts = tuple(message_put(0, id_, encode_plain(clock.now(), b"1"), sent=clock.now()) for id_ in drawn)
    run(send(process, Batch(ROW, puts)), store)
    clock.advance("1s")
    [held] = run(claim(process, RowSnapshot(ROW, 1), ClaimRequest(2, 60 * SECOND, 5)), store).claims
    run(settle(process, ROW, SettleRequest(held.timer, {drawn[0]: Extend(clock.now() + 90 * SECOND)})), store)
    both = SettleRequest(held.timer, dict.fromkeys(drawn, ACK))
    failing = Failing(store, StoreUnavailable("away for a moment"), at=2, of=(Read,))
    with pytest.raises(OutcomeUnknown):
        run(settle(process, ROW, both), failing)
    assert store.read((Named(ROW, (puts[1].name,)),)) == [[]]
    assert run(settle(process, ROW, both), store).lost == []


def _going_on(steps: Steps[SettleResult], answer: object) -> Steps[SettleResult]:
    """The rest of steps that have begun, from this answer on."""
    while True:
        try:
            answer = yield steps.send(answer)
        except StopIteration as finished:
            settled: SettleResult = finished.value
            return settled


def test_an_ack_that_a_server_carries_out_late_is_reported_as_done_and_not_as_lost(clock: TimeMachine) -> None:
    """The read-back does not find it done, so it is repeated; but the first ack is carried out before the second."""
    store, process = MemoryStore(clock), Client("ann", clock.now)
    put = message_put(0, process.id_at(clock.now()), encode_plain(clock.now(), b"1"), sent=clock.now())
    run(send(process, Batch(ROW, (put,))), store)
    clock.advance("1s")
    [held] = run(claim(process, RowSnapshot(ROW, 1), ClaimRequest(1, 60 * SECOND, 5)), store).claims
    settling = settle(process, ROW, SettleRequest(held.timer, {put.name.id: ACK}))
    commit = next(settling)
    settling.throw(OutcomeUnknown("no answer"))
    again = settling.send([[Column(held.timer.name, held.timer.value, 0)]])
    assert again == commit
    perform(commit, store)
    answer = perform(again, store)
    assert run(_going_on(settling, answer), store).lost == []


def test_a_late_send_that_cannot_be_listed_was_sent_all_the_same(clock: TimeMachine) -> None:
    store, process = MemoryStore(clock), Client("ann", clock.now)
    long_ago = process.id_at(clock.now() - 120 * SECOND)
    put = message_put(0, long_ago, encode_plain(clock.now(), b"1"), sent=clock.now())
    failing = Failing(store, StoreUnavailable("away for a moment"), of=(Read,))
    run(send(process, Batch(ROW, (put,))), failing)
    assert store.read((Named(ROW, (put.name,)),)) != [[]]


def test_a_poll_of_headers_that_passes_too_many_tombstones_is_not_repeated_at_once(clock: TimeMachine) -> None:
    """Otherwise the process would do nothing but repeat that read, as fast as it can."""
    ring = Ring("mail", Layout())
    doorbell = PacedDoorbell(ring, clock)
    scheduler = RowScheduler(ring, clock, "ann", doorbell)
    scheduler.begin_round(clock.now(), working=True)
    listening = scheduler.poller.read_doorbell(clock.now())
    next(listening)
    with pytest.raises(StopIteration):
        listening.throw(SliceTooLong("too many tombstones"))
    assert doorbell.next_time > clock.monotonic()


def test_a_row_that_waits_for_its_scan_is_not_probed_at_each_read_of_the_doorbell(clock: TimeMachine) -> None:
    """While other rows had their turn, each of these probes passed the same tombstones, before the scan did."""
    ring = Ring("mail", Layout())
    scheduler = RowScheduler(ring, clock, "ann", PacedDoorbell(ring, clock))
    scheduler.begin_round(clock.now(), working=True)
    run(scheduler.poll(clock.now()), MemoryStore(clock))
    clock.advance("1s")
    scheduler.rows[ROW].scan_only_at(clock.now() + SECOND)
    scheduler.rows[HOME].scan_only_at(clock.now())
    asked = next(scheduler.poller.read_doorbell(clock.now()))
    assert isinstance(asked, Read)
    probed = {wanted.row for wanted in asked.wanted}
    assert ROW in probed
    assert HOME not in probed


def test_work_now_and_then_does_not_put_off_the_next_read_of_the_doorbell(clock: TimeMachine) -> None:
    """A process was suspended during the last read, so that the next one comes two seconds later."""
    doorbell = PacedDoorbell(Ring("mail", Layout(concurrency_shards=2)), clock)
    reading = doorbell.read()
    next(reading)
    clock.advance("90s")
    with pytest.raises(StopIteration):
        reading.send([[]])
    doorbell.set_pace(0, has_work=False)
    due = doorbell.next_time
    assert due == clock.monotonic() + 2 * SECOND
    for _ in range(4):
        clock.advance("900ms")
        doorbell.set_pace(0, has_work=False)
    assert doorbell.next_time == due


@pytest.mark.parametrize("replaces", [False, True])
def test_a_unique_send_of_unknown_outcome_that_cannot_be_looked_for_does_not_claim_that_nothing_was_sent(
    clock: TimeMachine, *, replaces: bool
) -> None:
    """Its commit is carried out without an answer, and then the store cannot be read."""
    store, process = MemoryStore(clock), Client("ann", clock.now)
    wanted = UniqueMessage("welcome:ada", 0, process.id_at(clock.now()), encode_plain(clock.now(), b"1"))
    sending = (
        send_replacing(process, HOME, wanted, keeps_due=False) if replaces else send_unique(process, HOME, [wanted])
    )
    asked = next(sending)
    while not isinstance(asked, Commit):
        asked = sending.send(perform(asked, store))
    perform(asked, store)
    assert isinstance(sending.throw(OutcomeUnknown("no answer")), Read)
    with pytest.raises(OutcomeUnknown):
        sending.throw(StoreUnavailable("away for a moment"))
    assert store.read((Named(HOME, (wanted.put.name,)),)) != [[]]


def test_what_an_unknown_settle_moved_is_not_taken_once_the_next_one_settles_what_it_left(clock: TimeMachine) -> None:
    """The next settle finds a timer other than the remembered one, so the snapshot of the row is of no use any more."""
    store, process, snapshot = MemoryStore(clock), Client("ann", clock.now), RowSnapshot(ROW, 1)
    drawn = sorted(process.id_at(clock.now()) for _ in range(2))
    puts = tuple(message_put(0, id_, encode_plain(clock.now(), b"1"), sent=clock.now()) for id_ in drawn)
    run(send(process, Batch(ROW, puts)), store)
    clock.advance("1s")
    [held] = run(claim(process, snapshot, ClaimRequest(2, 60 * SECOND, 5)), store).claims
    unanswered: list[SettlePlan] = []
    snoozing = settle(
        process,
        ROW,
        SettleRequest(held.timer, {drawn[0]: Release(clock.now() + 90 * SECOND, 0, State.SNOOZED)}, unanswered),
    )
    perform(next(snoozing), store)
    snoozing.throw(OutcomeUnknown("no answer"))
    with pytest.raises(OutcomeUnknown):
        snoozing.throw(StoreUnavailable("away for a moment"))
    for settle_plan in run(
        settle(process, ROW, SettleRequest(held.timer, {drawn[1]: Extend(clock.now() + 70 * SECOND)}, unanswered)),
        store,
    ).done:
        snapshot.settled(settle_plan.timer_change)
    clock.advance("2s")  # now the first late scan is due
    assert run(claim(process, snapshot, ClaimRequest(2, 60 * SECOND, 5)), store).claims == []


def test_a_late_unique_send_that_cannot_be_listed_was_sent_all_the_same(clock: TimeMachine) -> None:
    store, process = MemoryStore(clock), Client("ann", clock.now)
    wanted = UniqueMessage("welcome:ada", 0, process.id_at(clock.now() - 120 * SECOND), encode_plain(clock.now(), b"1"))
    sending = send_unique(process, HOME, [wanted])
    asked = next(sending)
    while not isinstance(asked, Commit):
        asked = sending.send(perform(asked, store))
    assert isinstance(sending.send(perform(asked, store)), Read)
    with pytest.raises(StopIteration) as finished:
        sending.throw(StoreUnavailable("away for a moment"))
    assert finished.value.value["welcome:ada"].sent


def test_what_is_acked_is_not_leased_any_more_although_its_extension_turns_out_only_now(clock: TimeMachine) -> None:
    """Of three messages, a commit of unknown outcome extended one and acked another; then all are acked."""
    store, process = MemoryStore(clock), Client("ann", clock.now)
    drawn = sorted(process.id_at(clock.now()) for _ in range(3))
    puts = tuple(message_put(0, id_, encode_plain(clock.now(), b"1"), sent=clock.now()) for id_ in drawn)
    run(send(process, Batch(ROW, puts)), store)
    clock.advance("1s")
    [taken] = run(claim(process, RowSnapshot(ROW, 1), ClaimRequest(3, 60 * SECOND, 5)), store).claims
    lease = Lease(ROW, taken.timer, 60 * SECOND)
    lease.deliveries.update((one.entry.id, BaseDelivery(ROW, one, lease)) for one in taken.held)
    outcomes: dict[Id, Outcome] = {drawn[0]: Extend(clock.now() + 90 * SECOND), drawn[1]: ACK}
    extending = settle(process, ROW, SettleRequest(lease.timer, outcomes, lease.unanswered))
    perform(next(extending), store)
    extending.throw(OutcomeUnknown("no answer"))
    with pytest.raises(OutcomeUnknown):
        extending.throw(StoreUnavailable("away for a moment"))
    acks: dict[Id, Outcome] = dict.fromkeys(drawn, ACK)
    lost, partitioned = after_settling(
        lease, acks, run(settle(process, ROW, SettleRequest(lease.timer, acks, lease.unanswered)), store)
    )
    assert (lost, partitioned) == ([], [])
    assert not lease.deliveries
