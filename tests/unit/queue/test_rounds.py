from __future__ import annotations

from astyqueue.clock import SECOND
from astyqueue.durations import as_microseconds
from astyqueue.model.settings import Layout
from astyqueue.protocol.columns import Entry, State, Timer, Type
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import run
from astyqueue.queue.rounds import Rounds
from astyqueue.store import Name
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.processes import repeatable_process


def test_the_row_that_waited_longest_comes_first_so_none_starves(clock: TimeMachine) -> None:
    rounds = Rounds(Ring("emails", Layout(concurrency_shards=3)), clock, "ann")
    for row in rounds.visits.of:
        rounds.visits.look_at(rounds.visits.of[row], clock.now())
    visited = []
    for _ in range(12):
        visit = rounds.choose(clock.now())
        assert visit is not None
        visited.append(visit.sight.row)
        rounds.visited(visit, clock.now(), more=True)
    assert sorted(visited[:6]) == sorted(visited[6:]) == sorted(rounds.visits.of)
    assert {"emails:0:0", "emails:0:1", "emails:0:2"} < set(visited)


def test_what_is_due_and_was_not_taken_is_looked_at_again_after_a_while_and_not_without_pause(clock: TimeMachine) -> None:
    rounds = Rounds(Ring("emails", Layout()), clock, "ann")
    visit = rounds.visits.of["emails:0:0"]
    process = repeatable_process("ann", clock)
    name = Name(Type.TIMER, 0, process.id_at(clock.now() - SECOND), State.LEASED)
    visit.sight.learn(None, clock.now())
    visit.sight.remember([with_value(Timer(name, (Entry(name.id, 0, 0),), bytes(8), "bob", 1))])
    rounds.visited(visit, clock.now(), more=False)
    assert rounds.choose(clock.now()) is None
    clock.advance("50ms")
    assert rounds.choose(clock.now()) is visit


def test_a_row_is_left_alone_longer_after_each_error_and_no_longer_than_at_first_once_it_went_well(clock: TimeMachine) -> None:
    rounds = Rounds(Ring("emails", Layout()), clock, "ann")
    visit = rounds.visits.of["emails:0:0"]
    pauses = ["50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s"]
    for pause in pauses:
        rounds.postpone(visit, clock.now())
        clock.advance((as_microseconds(pause) - 1) / SECOND)
        assert rounds.choose(clock.now()) is None
        clock.advance(1e-6)
        assert rounds.choose(clock.now()) is visit
    rounds.visited(visit, clock.now(), more=False)
    rounds.postpone(visit, clock.now())
    clock.advance("50ms")
    assert rounds.choose(clock.now()) is visit


def test_a_claim_that_is_acked_one_by_one_leaves_no_trail_in_memory(clock: TimeMachine) -> None:
    process = repeatable_process("ann", clock)
    sight = Sight("emails:0:0", 1)
    sight.learn(None, clock.now())
    sight.remember([])
    name = Name(Type.TIMER, 0, process.id_at(clock.now() + SECOND), State.LEASED)
    timer = with_value(Timer(name, (Entry(name.id, 0, 0),), bytes(8), "ann", 1))
    for _ in range(20_000):
        sight.replace(name, [timer])
    assert len(sight.upcoming._claimable) < 10_000  # noqa: SLF001 - what it keeps is what this is about
    assert sight.next_due() == timer.due


def test_who_asks_finds_what_is_due_although_it_was_passed_over_a_moment_ago(clock: TimeMachine) -> None:
    rounds, store = Rounds(Ring("emails", Layout()), clock, "ann"), MemoryStore(clock)
    run(rounds.look_around(clock.now()), store)
    visit = rounds.visits.of["emails:0:0"]
    name = Name(Type.TIMER, 0, repeatable_process("ann", clock).id_at(clock.now()), State.LEASED)
    visit.sight.learn(None, clock.now())
    visit.sight.remember([with_value(Timer(name, (Entry(name.id, 0, 0),), bytes(8), "bob", 1))])
    rounds.visited(visit, clock.now(), more=False)
    assert rounds.choose(clock.now()) is None
    rounds.visits.ask(clock.now(), insist=True)
    run(rounds.idle(clock.now()), store)
    run(rounds.look_around(clock.now()), store)
    assert rounds.choose(clock.now()) is visit
