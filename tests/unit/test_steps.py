"""Carrying out steps, for threads and for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from astyqueue.errors import BadInput, OutcomeUnknown, StoreUnavailable
from astyqueue.ids import LEAST
from astyqueue.protocol.steps import Commit, Read, Send, Steps, arun, commit, read, read_column, read_one, run
from astyqueue.store import (
    Batch,
    Column,
    Committed,
    Expectation,
    Name,
    Named,
    Outcome,
    Put,
    Refused,
    Slice,
    Store,
    Wanted,
)
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.waiting import Rest, Wakeup

T = TypeVar("T")
NAME = Name(0, 0, LEAST, 0)
OTHER = Name(1, 0, LEAST, 0)


class Awaited:
    """A store with its verbs awaited."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        return self._store.read(wanted, exact=exact)

    async def send(self, batch: Batch, *more: Batch) -> None:
        self._store.send(batch, *more)

    async def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        return self._store.commit(batch, expects)

    async def close(self) -> None:
        self._store.close()


def awaiting(steps: Steps[T], store: Store) -> T:
    return asyncio.run(arun(steps, Awaited(store)))


@pytest.fixture(params=[run, awaiting], ids=["thread", "task"])
def runner(request: pytest.FixtureRequest) -> Callable[[Steps[object], Store], object]:
    chosen: Callable[[Steps[object], Store], object] = request.param
    return chosen


Runner = Callable[[Steps[object], Store], object]


def put(value: bytes, name: Name = NAME) -> Batch:
    return Batch("r", (Put(name, value),))


def test_each_request_is_done_in_turn_and_its_answer_handed_in(runner: Runner, clock: TimeMachine) -> None:
    def steps() -> Steps[object]:
        yield Send(put(b"sent", OTHER))
        first = yield from commit(put(b"one"), (Expectation(NAME, None),))
        second = yield from commit(put(b"two"), (Expectation(NAME, None),))
        found = yield from read(Slice("r", 0), Named("r", (OTHER,)), exact=True)
        return first, second, [[column.value for column in part] for part in found]

    store = Recording(MemoryStore(clock))
    assert runner(steps(), store) == (Committed(), Refused({NAME: b"one"}), [[b"one"], [b"sent"]])
    assert [type(request) for request in store.requests] == [Send, Commit, Commit, Read]
    assert store.requests[-1] == Read((Slice("r", 0), Named("r", (OTHER,))), exact=True)


def test_one_slice_and_one_column_are_read_by_themselves(runner: Runner, clock: TimeMachine) -> None:
    def steps() -> Steps[object]:
        yield Send(put(b"value"))
        column = yield from read_column("r", NAME)
        missing = yield from read_column("r", OTHER)
        part = yield from read_one(Slice("r", 0))
        return column and column.value, missing, [each.name for each in part]

    assert runner(steps(), MemoryStore(clock)) == (b"value", None, [NAME])


def test_steps_without_a_request_just_return(runner: Runner, clock: TimeMachine) -> None:
    def steps() -> Steps[object]:
        return 7
        yield Send(put(b"never"))

    assert runner(steps(), MemoryStore(clock)) == 7


def test_a_store_error_is_raised_at_the_request_that_met_it(runner: Runner, clock: TimeMachine) -> None:
    def steps() -> Steps[object]:
        try:
            yield Send(put(b"maybe"))
        except OutcomeUnknown as error:
            column = yield from read_column("r", NAME)
            return str(error), column and column.value
        return "no error"

    lost = OutcomeUnknown("the answer was lost")
    assert runner(steps(), Failing(MemoryStore(clock), lost, applied=True)) == ("the answer was lost", b"maybe")
    assert runner(steps(), Failing(MemoryStore(clock), lost)) == ("the answer was lost", None)


def test_a_store_error_that_steps_do_not_catch_reaches_the_caller(runner: Runner, clock: TimeMachine) -> None:
    store = Recording(Failing(MemoryStore(clock), StoreUnavailable("away"), at=2, of=(Send,)))

    def steps() -> Steps[object]:
        for number in range(3):
            yield Read((Slice("r", 0),))
            yield Send(put(b"%d" % number))
        return "never"

    with pytest.raises(StoreUnavailable, match="away"):
        runner(steps(), store)
    assert len(store.requests) == 4


def test_steps_are_closed_when_the_store_raises_what_they_cannot_know(runner: Runner, clock: TimeMachine) -> None:
    ended: list[str] = []

    def steps() -> Steps[object]:
        try:
            yield Read((Slice("r", 0, table="no such table"),))
        finally:
            ended.append("closed")
        return "never"

    with pytest.raises(BadInput):
        runner(steps(), MemoryStore(clock))
    assert ended == ["closed"]


def test_an_error_of_the_steps_reaches_the_caller(runner: Runner, clock: TimeMachine) -> None:
    def steps() -> Steps[object]:
        yield Read((Slice("r", 0),))
        raise KeyError(NAME)

    with pytest.raises(KeyError):
        runner(steps(), MemoryStore(clock))


def test_a_rest_ends_with_its_signal(runner: Runner, clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)

    def steps() -> Steps[object]:
        wakeup.set()
        answer = yield Rest(wakeup, None)
        return answer

    assert runner(steps(), MemoryStore(clock)) is None


def test_a_rest_ends_when_its_time_has_come(runner: Runner, clock: TimeMachine) -> None:
    def steps() -> Steps[object]:
        yield Rest(Wakeup(clock), clock.monotonic())
        return "rested"

    assert runner(steps(), MemoryStore(clock)) == "rested"
