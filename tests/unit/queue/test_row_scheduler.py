from __future__ import annotations

import contextlib

import pytest

from astyqueue.durations import as_microseconds
from astyqueue.errors import StoreUnavailable
from astyqueue.ids import Nonce
from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.columns import Entry, State, Timer, Type, encoded
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.row.timer_index import TimerIndex
from astyqueue.protocol.steps import Read, Steps, perform, run
from astyqueue.queue.row_sharing.idle_queues import WakeReason
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.store import Name, Named
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import deterministic_client

ROW = "emails:0:0"


def new_scheduler(clock: TimeMachine, shards: int = 1) -> RowScheduler:
    ring = Ring("emails", Layout(concurrency_shards=shards))
    return RowScheduler(ring, clock, "ann", PacedDoorbell(ring, clock))


@pytest.fixture
def scheduler(clock: TimeMachine) -> RowScheduler:
    return new_scheduler(clock)


def finish_visit(scheduler: RowScheduler, row: RowState, *, more: bool) -> None:
    with scheduler.visiting(row) as visit:
        visit.finished(more=more)


def fail_visit(scheduler: RowScheduler, row: RowState) -> None:
    message = "not now"
    with pytest.raises(StoreUnavailable), scheduler.visiting(row):
        raise StoreUnavailable(message)


def test_the_row_that_waited_longest_comes_first_so_none_starves(clock: TimeMachine) -> None:
    scheduler = new_scheduler(clock, shards=3)
    for row in scheduler.rows.values():
        row.scan_at(clock.now())
    visited = []
    for _ in range(12):
        chosen = scheduler.next_row(clock.now())
        assert chosen is not None
        visited.append(chosen.name)
        finish_visit(scheduler, chosen, more=True)
    assert sorted(visited[:6]) == sorted(visited[6:]) == sorted(scheduler.rows)
    assert {"emails:0:0", "emails:0:1", "emails:0:2"} < set(visited)


def test_nothing_is_due_in_an_idle_queue_before_the_moments_that_are_known(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    store = MemoryStore(clock)

    def go_on() -> bool:
        scheduler.begin_round(clock.now())
        run(scheduler.poll(clock.now()), store)
        while row := scheduler.next_row(clock.now()):
            row.snapshot.learn(None, clock.now())
            finish_visit(scheduler, row, more=False)
        return scheduler.has_nothing_due(clock.now())

    scheduler.begin_round(clock.now())
    assert not scheduler.has_nothing_due(clock.now()), "it may hold messages from before"
    clock.advance(10)
    assert go_on()
    scheduler.rows[ROW].scan_at(clock.now() + 30 * SECOND)
    assert scheduler.has_nothing_due(clock.now())
    clock.advance(30)
    assert not scheduler.has_nothing_due(clock.now())


def know_due_timer(row: RowState, clock: TimeMachine, due: int) -> None:
    """A lease of another process that ended at this moment."""
    name = Name(Type.TIMER, 0, deterministic_client("ann", clock).id_at(due), State.LEASED)
    row.snapshot.learn(None, clock.now())
    row.snapshot.timers = TimerIndex([encoded(Timer(name, (Entry(name.id, 0, 0),), Nonce(bytes(8)), "bob", 1))])


def test_what_is_due_and_was_not_taken_is_scanned_again_after_a_while_and_not_without_pause(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    row = scheduler.rows[ROW]
    know_due_timer(row, clock, clock.now() - SECOND)
    finish_visit(scheduler, row, more=False)
    assert scheduler.next_row(clock.now()) is None
    clock.advance("50ms")
    assert scheduler.next_row(clock.now()) is row


def test_a_row_is_left_alone_longer_after_each_error_and_no_longer_than_at_first_once_it_went_well(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    row = scheduler.rows[ROW]
    pauses = ["50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s"]
    for pause in pauses:
        fail_visit(scheduler, row)
        clock.advance((as_microseconds(pause) - 1) / SECOND)
        assert scheduler.next_row(clock.now()) is None
        clock.advance(1e-6)
        assert scheduler.next_row(clock.now()) is row
    finish_visit(scheduler, row, more=False)
    fail_visit(scheduler, row)
    clock.advance("50ms")
    assert scheduler.next_row(clock.now()) is row


def test_a_visit_that_took_long_to_fail_leaves_the_others_their_turn(clock: TimeMachine) -> None:
    scheduler = new_scheduler(clock, shards=2)
    failing, other = scheduler.rows["emails:0:0"], scheduler.rows["emails:0:1"]
    failing.scan_at(clock.now())
    assert scheduler.next_row(clock.now()) is failing
    message = "no answer within ten seconds"
    with contextlib.suppress(StoreUnavailable), scheduler.visiting(failing):
        clock.advance("5s")
        other.scan_at(clock.now())
        clock.advance("5s")
        raise StoreUnavailable(message)
    assert scheduler.next_row(clock.now()) is other
    assert scheduler.next_row(clock.now()) is None
    clock.advance("50ms")
    assert scheduler.next_row(clock.now()) is failing


def test_a_visit_that_is_cancelled_half_way_gives_the_row_back_at_once(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    def visit(row: RowState) -> Steps[None]:
        with scheduler.visiting(row) as visit:
            yield from scheduler.poller.read_headers(clock.now())
            visit.finished(more=False)

    scheduler.rows[ROW].scan_at(clock.now())
    row = scheduler.next_row(clock.now())
    assert row is scheduler.rows[ROW]
    assert scheduler.next_row(clock.now()) is None
    steps = visit(row)
    perform(next(steps), MemoryStore(clock))
    steps.close()
    assert scheduler.next_row(clock.now()) is row


def test_a_claim_that_is_acked_one_by_one_leaves_no_trail_in_memory(clock: TimeMachine) -> None:
    process = deterministic_client("ann", clock)
    snapshot = RowSnapshot("emails:0:0", 1)
    snapshot.learn(None, clock.now())
    snapshot.timers = timers = TimerIndex()
    name = Name(Type.TIMER, 0, process.id_at(clock.now() + SECOND), State.LEASED)
    timer = encoded(Timer(name, (Entry(name.id, 0, 0),), Nonce(bytes(8)), "ann", 1))
    for _ in range(20_000):
        timers.replace(timer, [timer])
    assert len(timers._claimable) < 10_000  # noqa: SLF001 - what it keeps is what this is about
    assert timers.next_due() == timer.due


def test_who_asks_finds_what_is_due_although_it_was_passed_over_a_moment_ago(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    store, row = MemoryStore(clock), scheduler.rows[ROW]
    run(scheduler.poll(clock.now()), store)
    know_due_timer(row, clock, clock.now())
    finish_visit(scheduler, row, more=False)
    assert scheduler.next_row(clock.now()) is None
    request = scheduler.request(ignoring_owners=True)
    scheduler.begin_round(clock.now())
    run(scheduler.when_out_of_work(clock.now(), has_credit=True), store)
    assert not scheduler.answered(request)
    run(scheduler.poll(clock.now()), store)
    assert scheduler.next_row(clock.now()) is row


@pytest.mark.parametrize("answers", [0, 1], ids=["while it reads headers", "while it probes"])
def test_rows_of_a_poll_that_is_cancelled_are_polled_at_once_by_the_next_consumer(
    scheduler: RowScheduler, clock: TimeMachine, answers: int
) -> None:
    store, poll = MemoryStore(clock), scheduler.poller.read_headers(clock.now())
    request = next(poll)
    for _ in range(answers):
        request = poll.send(perform(request, store))
    assert not scheduler.poller.plan.is_overdue(clock.now())
    poll.close()
    assert scheduler.poller.plan.is_overdue(clock.now())


@pytest.mark.parametrize("answers", [0, 1], ids=["while it reads headers", "while it probes"])
def test_rows_of_a_poll_that_fails_are_polled_again_five_seconds_later(
    scheduler: RowScheduler, clock: TimeMachine, answers: int
) -> None:
    """Also in an idle queue, in which the next poll of a row may be minutes ahead."""
    store, poll = MemoryStore(clock), scheduler.poll(clock.now())
    request = next(poll)
    for _ in range(answers):
        request = poll.send(perform(request, store))
    with pytest.raises(StoreUnavailable):
        poll.throw(StoreUnavailable(ROW))
    assert not scheduler.poller.plan.is_overdue(clock.now())
    clock.advance("5s")
    assert scheduler.poller.plan.is_overdue(clock.now())


@pytest.mark.parametrize("shards", [1, 8])
def test_a_new_process_probes_no_row_before_it_has_read_its_header(clock: TimeMachine, shards: int) -> None:
    """A probe from the beginning of a row would pass every tombstone that is not purged yet."""
    scheduler = new_scheduler(clock, shards)
    scheduler.activity.used()
    scheduler.begin_round(clock.now())
    poll, sliced = scheduler.poll(clock.now()), set()
    request = next(poll)
    while isinstance(request, Read) and not any(isinstance(one, Named) for one in request.wanted):
        sliced |= {one.row for one in request.wanted}
        request = poll.send(perform(request, MemoryStore(clock)))
    assert sliced == {"emails:bell"}


def test_a_queue_that_becomes_idle_before_all_its_rows_were_polled_polls_the_current_ones_first(
    clock: TimeMachine,
) -> None:
    scheduler = new_scheduler(clock, 100)
    run(scheduler.poll(clock.now()), MemoryStore(clock))
    scheduler.poller.plan.end_use(clock.now())
    assert not scheduler.poller.plan.complete


def test_what_a_cancelled_consumer_learned_of_an_idle_queue_counts_for_the_next_one_however_late_it_comes(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    scheduler.activity.wake(WakeReason.NOTICE)
    scheduler.activity.take_wake_reasons()
    clock.advance("61s")
    scheduler.begin_round(clock.now())
    assert not scheduler.activity.idle


def test_a_request_is_answered_when_every_current_row_was_polled_since(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    store = MemoryStore(clock)
    run(scheduler.poll(clock.now()), store)
    request = scheduler.request(ignoring_owners=False)
    for _ in range(2):
        scheduler.begin_round(clock.now())
        run(scheduler.poll(clock.now()), store)
        assert not scheduler.answered(request)
        run(scheduler.when_out_of_work(clock.now(), has_credit=True), store)
    assert scheduler.answered(request)


def test_without_credit_only_requests_of_rounds_before_are_answered(
    scheduler: RowScheduler, clock: TimeMachine
) -> None:
    store = MemoryStore(clock)
    before = scheduler.request(ignoring_owners=False)
    scheduler.begin_round(clock.now())
    later = scheduler.request(ignoring_owners=False)
    run(scheduler.when_out_of_work(clock.now(), has_credit=False), store)
    assert (scheduler.answered(before), scheduler.answered(later)) == (True, False)
