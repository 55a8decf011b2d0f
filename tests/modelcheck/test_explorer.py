"""Exploring every interleaving, with crashes, unknown outcomes and late answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import comb

import pytest

from astyqueue.errors import NotFound, OutcomeUnknown
from astyqueue.ids import LEAST
from astyqueue.protocol.steps import Read, Steps, commit, read_column
from astyqueue.protocol.steps import Send as SendRequest
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.explorer import explore, replay
from tests.modelcheck.schedule import Actor, Mode, Schedule, Work, advancing
from tests.stores.conformance.defective_stores import Unguarded

COUNTER = Name(0, 0, LEAST, 0)
ROW = "counts:0:0"


def counted(history: History) -> int:
    column = history.store.read((Named(ROW, (COUNTER,)),))[0]
    return int(column[0].value) if column else 0


def increment() -> Steps[bool]:
    """Read, add one, write if no other actor has written; once more if refused."""
    for _ in range(3):
        column = yield from read_column(ROW, COUNTER)
        known = column.value if column else None
        outcome = yield from commit(
            Batch(ROW, (Put(COUNTER, b"%d" % (int(known or 0) + 1)),)), (Expectation(COUNTER, known),)
        )
        if isinstance(outcome, Committed):
            return True
    return False


def every_increment_counts(history: History) -> str | None:
    done = list(history.results.values()).count(True)
    return None if counted(history) == done else f"{done} were done and the counter says {counted(history)}"


def counting(actors: int = 2, *, guarded: bool = True) -> Scenario:
    store = MemoryStore(TimeMachine())
    names = ["ann", "bob", "cyd"][:actors]
    return Scenario(store if guarded else Unguarded(store), dict.fromkeys(names, increment), every_increment_counts)


def reading(count: int) -> Work:
    for _ in range(count):
        yield Read((Named(ROW, (COUNTER,)),))


def writing(row: str, count: int) -> Work:
    for number in range(count):
        yield SendRequest(Batch(row, (Put(COUNTER, b"%d" % number),)))


def busy(**actors: Actor) -> Callable[[], Scenario]:
    return lambda: Scenario(MemoryStore(TimeMachine()), actors, lambda _: None)


def test_a_guarded_counter_loses_no_update_in_any_order() -> None:
    explored = explore(counting).require_none()
    assert explored.complete
    # In four of the six orders one actor's commit is refused, and it tries again.
    assert (explored.schedules, explored.steps) == (6, 2 * 4 + 4 * 6)


def test_an_update_is_lost_without_the_guard() -> None:
    explored = explore(partial(counting, guarded=False))
    assert explored.schedules == comb(4, 2)
    assert len(explored.violations) == 4
    assert explored.shortest is not None
    assert str(explored.shortest.schedule) in {"ann bob bob ann", "ann bob ann bob"}


def test_a_violation_prints_what_each_actor_did() -> None:
    with pytest.raises(AssertionError) as raised:
        explore(partial(counting, guarded=False)).require_none()
    texts = str(raised.value).splitlines()
    assert texts[0] == "4 of 6 schedules end badly, the shortest so: 2 were done and the counter says 1"
    assert texts[1:3] == [
        "   1  ann: read header of counts:0:0 -> nothing",
        "   2  bob: read header of counts:0:0 -> nothing",
    ]
    assert texts[3].endswith(": commit to counts:0:0: put header = b'1', if header is absent -> applied")
    assert texts[-1].startswith("To see it again: replay(make_scenario, 'ann bob ")


def test_a_printed_schedule_replays_to_the_same_violation() -> None:
    found = explore(partial(counting, guarded=False)).shortest
    assert found is not None
    assert replay(partial(counting, guarded=False), str(found.schedule)) == found
    assert replay(partial(counting, guarded=False), Schedule.parse("ann ann bob bob")) is None


def test_a_schedule_of_another_scenario_is_not_replayed() -> None:
    with pytest.raises(ValueError, match="bob cannot come after ann ann: the scenario is another one"):
        replay(partial(counting, actors=1), "ann ann bob")


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 4), (6, 5)])
def test_two_independent_actors_meet_in_as_many_ways_as_the_binomial_says(first: int, second: int) -> None:
    explored = explore(busy(a=partial(reading, first), b=partial(writing, ROW, second)))
    assert explored.schedules == comb(first + second, first)
    assert explored.steps == explored.schedules * (first + second)


def test_three_actors_meet_in_as_many_ways_as_the_multinomial_says() -> None:
    explored = explore(busy(a=partial(writing, ROW, 2), b=partial(writing, ROW, 3), c=partial(writing, ROW, 2)))
    assert explored.schedules == comb(7, 2) * comb(5, 3)


def test_a_crash_of_a_reader_ends_it_at_each_of_its_requests() -> None:
    explored = explore(busy(a=partial(reading, 3), b=partial(reading, 2)), crashes=1)
    whole = comb(5, 2)
    a_stops = sum(comb(done + 2, 2) for done in range(3))
    b_stops = sum(comb(3 + done, 3) for done in range(2))
    assert explored.schedules == whole + a_stops + b_stops


def test_a_writer_also_crashes_after_a_write_that_it_never_hears_of() -> None:
    explored = explore(busy(a=partial(writing, ROW, 3)), crashes=1)
    assert explored.schedules == 1 + 3 + 3


def test_both_actors_may_crash() -> None:
    explored = explore(busy(a=partial(reading, 2), b=partial(reading, 2)), crashes=2)
    assert explored.schedules == sum(comb(a + b, a) for a in range(3) for b in range(3))


def test_a_crash_between_two_writes_is_found() -> None:
    def check(history: History) -> None:
        assert len(history.store.read((Named("x", (COUNTER,)), Named("y", (COUNTER,))))[1]) == 1, "y was not written"

    def both() -> Work:
        yield from writing("x", 1)
        yield from writing("y", 1)

    def make_scenario() -> Scenario:
        return Scenario(MemoryStore(TimeMachine()), {"a": both}, check)

    explore(make_scenario).require_none()
    explored = explore(make_scenario, crashes=1)
    assert sorted(str(found.schedule) for found in explored.violations) == [".", "a .", "a!"]
    assert "each unfinished actor stops for ever" in str(replay(make_scenario, "a ."))
    assert "stops for ever before it hears so" in str(replay(make_scenario, "a!"))


def blind() -> Steps[bool]:
    """Treats an unknown outcome as a failure, and repeats the request."""
    for _ in range(2):
        column = yield from read_column(ROW, COUNTER)
        known = column.value if column else None
        try:
            yield from commit(
                Batch(ROW, (Put(COUNTER, b"%d" % (int(known or 0) + 1)),)), (Expectation(COUNTER, known),)
            )
        except OutcomeUnknown:
            continue
        return True
    return False


def blindly() -> Scenario:
    return Scenario(MemoryStore(TimeMachine()), {"ann": blind}, every_increment_counts)


def test_an_unknown_outcome_comes_with_and_without_the_change() -> None:
    explore(blindly).require_none()
    explored = explore(blindly, unknowns=1)
    assert explored.schedules == 3
    assert [str(found.schedule) for found in explored.violations] == ["ann ann+? ann ann"]
    assert replay(blindly, "ann ann-? ann ann") is None
    assert "and hears that the outcome is unknown" in str(explored.violations[0])


def test_as_many_outcomes_are_unknown_as_allowed() -> None:
    explored = explore(blindly, unknowns=2)
    assert explored.schedules == 1 + 2 * (1 + 2)


def test_an_actor_may_hear_an_answer_late_and_look_at_a_later_clock() -> None:
    def scenario(machine: TimeMachine) -> Scenario:
        def look() -> Work:
            yield Read((Named(ROW, (COUNTER,)),))
            return machine.now() - began

        began = machine.now()
        actors: dict[str, Actor] = {"ann": look, "time": advancing(machine, "10s")}
        return Scenario(MemoryStore(machine), actors, lambda history: f"{history.results['ann']} us later")

    seen = explore(lambda: scenario(TimeMachine()), pauses=1)
    texts = {str(found.schedule): found.reason for found in seen.violations}
    late, at_once = "10000000 us later", "0 us later"
    assert texts == {"ann time": at_once, "time ann": late, "ann~ time ann": late, "time~ ann time": late}
    assert "10s pass -> done" in str(seen.violations[0])


def test_what_an_actor_asks_by_a_callable_is_called_when_its_turn_comes() -> None:
    def make_scenario() -> Scenario:
        turns: list[str] = []

        def taking(name: str) -> Work:
            for _ in range(2):
                yield partial(turns.append, name)

        actors: dict[str, Actor] = {"a": partial(taking, "a"), "b": partial(taking, "b")}
        return Scenario(MemoryStore(TimeMachine()), actors, lambda _: "".join(turns))

    assert {found.reason for found in explore(make_scenario).violations} == {
        "aabb",
        "abab",
        "abba",
        "baab",
        "baba",
        "bbaa",
    }


def test_an_error_of_our_own_is_left_to_the_judge() -> None:
    def missing() -> Work:
        yield from reading(1)
        message = "no such message"
        raise NotFound(message)

    def check(history: History) -> None:
        assert isinstance(history.errors["a"], NotFound)

    explore(lambda: Scenario(MemoryStore(TimeMachine()), {"a": missing}, check)).require_none()


def test_any_other_error_is_a_violation() -> None:
    def broken() -> Work:
        yield from reading(1)
        raise KeyError(ROW)

    explored = explore(busy(a=broken, b=partial(reading, 1)))
    assert {found.reason for found in explored.violations} == {f"a failed: KeyError({ROW!r})"}
    assert len(explored.violations) == explored.schedules == 2


def test_actors_without_end_are_told_of() -> None:
    def endless() -> Work:
        while True:
            yield from reading(1)

    explored = explore(busy(a=endless), limit=1)
    assert explored.violations[0].reason.startswith("it goes on after 300 steps")


def test_a_limit_ends_the_exploration_early_and_says_so() -> None:
    explored = explore(busy(a=partial(reading, 6), b=partial(reading, 6)), limit=10)
    assert (explored.schedules, explored.complete) == (10, False)
    assert str(explored) == "the first 10 schedules, 120 steps, 0 violations"


def test_a_limit_that_is_not_reached_leaves_the_exploration_complete() -> None:
    assert explore(busy(a=partial(reading, 1), b=partial(reading, 1)), limit=3).complete


def test_two_actors_of_six_requests_with_a_crash_anywhere_are_all_explored() -> None:
    explored = explore(busy(a=partial(writing, ROW, 6), b=partial(writing, ROW, 6)), crashes=1)
    before_a_write = 2 * sum(comb(done + 6, 6) for done in range(6))
    after_a_write = 2 * sum(comb(done + 6, 6) for done in range(1, 7))
    assert explored.schedules == comb(12, 6) + before_a_write + after_a_write


def test_schedules_read_as_they_print() -> None:
    line = "ann bob-1 ann+? bob-1-? ann~ ann! ."
    schedule = Schedule.parse(line)
    assert str(schedule) == line
    assert [choice.mode for choice in schedule] == [
        Mode.GO,
        Mode.GO,
        Mode.APPLIED,
        Mode.LOST,
        Mode.HELD,
        Mode.UNANSWERED,
        Mode.END,
    ]
    assert schedule[3].actor == "bob-1"
