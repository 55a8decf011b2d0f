from __future__ import annotations

from astyqueue.durations import as_microseconds
from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.columns import Entry, State, Timer, Type, encoded
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import run
from astyqueue.queue.rows.row_scheduler import RowScheduler
from astyqueue.store import Name
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.deterministic_ids import repeatable_process


def test_the_row_that_waited_longest_comes_first_so_none_starves(clock: TimeMachine) -> None:
    scheduler = RowScheduler(Ring("emails", Layout(concurrency_shards=3)), clock, "ann")
    for row in scheduler.row_states.of:
        scheduler.row_states.look_at(scheduler.row_states.of[row], clock.now())
    visited = []
    for _ in range(12):
        visit = scheduler.choose(clock.now())
        assert visit is not None
        visited.append(visit.snapshot.row)
        scheduler.visited(visit, clock.now(), more=True)
    assert sorted(visited[:6]) == sorted(visited[6:]) == sorted(scheduler.row_states.of)
    assert {"emails:0:0", "emails:0:1", "emails:0:2"} < set(visited)


def test_what_is_due_and_was_not_taken_is_looked_at_again_after_a_while_and_not_without_pause(
    clock: TimeMachine,
) -> None:
    scheduler = RowScheduler(Ring("emails", Layout()), clock, "ann")
    visit = scheduler.row_states.of["emails:0:0"]
    process = repeatable_process("ann", clock)
    name = Name(Type.TIMER, 0, process.id_at(clock.now() - SECOND), State.LEASED)
    visit.snapshot.learn(None, clock.now())
    visit.snapshot.remember([encoded(Timer(name, (Entry(name.id, 0, 0),), bytes(8), "bob", 1))])
    scheduler.visited(visit, clock.now(), more=False)
    assert scheduler.choose(clock.now()) is None
    clock.advance("50ms")
    assert scheduler.choose(clock.now()) is visit


def test_a_row_is_left_alone_longer_after_each_error_and_no_longer_than_at_first_once_it_went_well(
    clock: TimeMachine,
) -> None:
    scheduler = RowScheduler(Ring("emails", Layout()), clock, "ann")
    visit = scheduler.row_states.of["emails:0:0"]
    pauses = ["50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s"]
    for pause in pauses:
        scheduler.postpone(visit, clock.now())
        clock.advance((as_microseconds(pause) - 1) / SECOND)
        assert scheduler.choose(clock.now()) is None
        clock.advance(1e-6)
        assert scheduler.choose(clock.now()) is visit
    scheduler.visited(visit, clock.now(), more=False)
    scheduler.postpone(visit, clock.now())
    clock.advance("50ms")
    assert scheduler.choose(clock.now()) is visit


def test_a_claim_that_is_acked_one_by_one_leaves_no_trail_in_memory(clock: TimeMachine) -> None:
    process = repeatable_process("ann", clock)
    snapshot = RowSnapshot("emails:0:0", 1)
    snapshot.learn(None, clock.now())
    snapshot.remember([])
    name = Name(Type.TIMER, 0, process.id_at(clock.now() + SECOND), State.LEASED)
    timer = encoded(Timer(name, (Entry(name.id, 0, 0),), bytes(8), "ann", 1))
    for _ in range(20_000):
        snapshot.replace(name, [timer])
    assert len(snapshot.upcoming._claimable) < 10_000  # noqa: SLF001 - what it keeps is what this is about
    assert snapshot.next_due() == timer.due


def test_who_asks_finds_what_is_due_although_it_was_passed_over_a_moment_ago(clock: TimeMachine) -> None:
    scheduler, store = RowScheduler(Ring("emails", Layout()), clock, "ann"), MemoryStore(clock)
    run(scheduler.look_around(clock.now()), store)
    visit = scheduler.row_states.of["emails:0:0"]
    name = Name(Type.TIMER, 0, repeatable_process("ann", clock).id_at(clock.now()), State.LEASED)
    visit.snapshot.learn(None, clock.now())
    visit.snapshot.remember([encoded(Timer(name, (Entry(name.id, 0, 0),), bytes(8), "bob", 1))])
    scheduler.visited(visit, clock.now(), more=False)
    assert scheduler.choose(clock.now()) is None
    scheduler.row_states.ask(clock.now(), insist=True)
    run(scheduler.idle(clock.now()), store)
    run(scheduler.look_around(clock.now()), store)
    assert scheduler.choose(clock.now()) is visit
