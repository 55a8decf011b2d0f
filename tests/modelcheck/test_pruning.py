"""Pruning leaves out orders that no actor can distinguish from another, and no others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import comb

import pytest

from astyqueue.errors import OutcomeUnknown
from astyqueue.ids import LEAST, after
from astyqueue.protocol.steps import Commit, Read, read_column
from astyqueue.protocol.steps import Send as SendRequest
from astyqueue.store import Batch, Expectation, Name, Named, Put, Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.waiting import Rest, Wakeup
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.explorer import Exploration, explore
from tests.modelcheck.independence import effects_of
from tests.modelcheck.schedule import Action, Actor, Work, advancing
from tests.unit.protocol.fault_budgets import Faults

COUNTER = Name(0, 0, LEAST, 0)


def reading(count: int) -> Work:
    for _ in range(count):
        yield Read((Named("x", (COUNTER,)),))


def writing(row: str, count: int, name: Name = COUNTER) -> Work:
    for number in range(count):
        yield SendRequest(Batch(row, (Put(name, b"%d" % number),)))


def busy(**actors: Actor) -> Callable[[], Scenario]:
    return lambda: Scenario(MemoryStore(TimeMachine()), actors, lambda _: None)


def test_of_orders_that_isolated_actors_cannot_tell_apart_one_is_played() -> None:
    readers = busy(a=partial(reading, 4), b=partial(reading, 4))
    assert explore(readers, isolated=True).schedules == 1
    rows = busy(a=partial(writing, "x", 4), b=partial(writing, "y", 4))
    assert explore(rows, isolated=True).schedules == 1
    columns = busy(a=partial(writing, "x", 4), b=partial(writing, "x", 4, COUNTER._replace(state=1)))
    assert explore(columns, isolated=True).schedules == 1
    same = busy(a=partial(writing, "x", 3), b=partial(writing, "x", 3))
    assert explore(same, isolated=True).schedules == comb(6, 3)


def outcomes(explored: Exploration) -> set[str]:
    return {found.reason for found in explored.violations}


@pytest.mark.parametrize("faults", [{}, {"crashes": 1}, {"crashes": 2}, {"unknowns": 1}, {"pauses": 1}])
def test_pruning_misses_no_outcome(faults: Faults) -> None:
    def make_scenario() -> Scenario:
        """A scenario whose check reports the whole outcome, so that each outcome is a violation of its own."""
        machine = TimeMachine()

        def mixed(row: str, mark: bytes) -> Work:
            found = yield Read((Named("x", (COUNTER,)), Named("y", (COUNTER,))))
            seen = b"".join(column.value for part in found for column in part) + b"%d" % (machine.now() % 7)
            try:
                yield SendRequest(Batch(row, (Put(COUNTER, mark + seen),)))
            except OutcomeUnknown:
                left = yield from read_column(row, COUNTER)
                seen += b" then " + (left.value if left else b"")
            return seen

        def texts(history: History) -> str:
            left = [
                [column.value for column in part]
                for part in history.store.read((Named("x", (COUNTER,)), Named("y", (COUNTER,))))
            ]
            errors = sorted(map(str, history.errors.items()))
            return f"{left} {sorted(history.results.items())} {errors} {sorted(history.stopped)}"

        actors: dict[str, Actor] = {
            "a": partial(mixed, "x", b"a"),
            "b": partial(mixed, "y", b"b"),
            "time": advancing(machine, 1),
            "c": partial(writing, "x", 1),
        }
        return Scenario(MemoryStore(machine), actors, texts)

    pruned = explore(make_scenario, isolated=True, **faults)
    everything = explore(make_scenario, **faults)
    assert outcomes(pruned) == outcomes(everything)
    assert len(outcomes(everything)) > 40
    assert pruned.schedules < everything.schedules * 2 / 3


ID = LEAST[:-1] + b"\x05"
PUT = SendRequest(Batch("r", (Put(Name(2, 1, ID, 1), b""),)))


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        (Read((Slice("r", 2),)), False),
        (Read((Slice("r", 2, priority=1, after=ID),)), False),
        (Read((Slice("r", 2, limit=1),)), False),
        (Read((Named("r", (Name(2, 1, ID, 1),)),)), False),
        (Read((Slice("r", 3), Slice("r", 2))), False),
        (Read((Slice("s", 2), Slice("r", 3), Slice("r", 2, priority=0), Slice("r", 2, until=ID))), True),
        (Read((Slice("r", 2, after=after(ID)), Named("r", (COUNTER,)), Slice("r", 2, table="history"))), True),
        (SendRequest(Batch("r", (), (Name(2, 1, ID, 1),))), False),
        (SendRequest(Batch("r", (), (Name(2, 1, ID, 0),))), True),
        (Commit(Batch("r", (Put(COUNTER, b""),)), (Expectation(Name(2, 1, ID, 1), None),)), False),
        (Commit(Batch("r", (Put(COUNTER, b""),)), (Expectation(COUNTER, None),)), True),
        (Rest(Wakeup(TimeMachine()), None), True),
        (print, False),
        (None, True),
    ],
)
def test_requests_are_apart_when_neither_touches_what_the_other_does(other: Action | None, *, apart: bool) -> None:
    assert effects_of(PUT).independent_of(effects_of(other)) is apart
    assert effects_of(other).independent_of(effects_of(PUT)) is apart
