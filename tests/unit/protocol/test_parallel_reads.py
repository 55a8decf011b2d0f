"""Reading operations side by side."""

from __future__ import annotations

import pytest

from astyqueue.errors import SliceTooLong, StoreUnavailable
from astyqueue.ids import LEAST
from astyqueue.protocol.parallel_reads import in_parallel
from astyqueue.protocol.steps import Read, Request, Send, Steps, read_column, read_one, run
from astyqueue.store import Batch, Name, Put, Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, Faulty, Recording, TimeMachine

NAME = Name(0, 0, LEAST, 0)


def reading(row: str, times: int) -> Steps[list[bytes]]:
    """The value of a row, read `times` times one after the other."""
    found: list[bytes] = []
    for _ in range(times):
        column = yield from read_column(row, NAME, exact=bool(times % 2))
        found += [column.value] if column else []
    return found


@pytest.fixture
def store(clock: TimeMachine) -> Recording:
    made = Recording(MemoryStore(clock))
    for number in range(50):
        made.send(Batch(f"row {number}", (Put(NAME, b"%d" % number),)))
    made.requests.clear()
    return made


def test_each_has_its_own_answers_in_order_however_long_it_takes(store: Recording) -> None:
    found = run(in_parallel(reading(f"row {number}", number % 4) for number in range(50)), store)
    assert found == [[b"%d" % number] * (number % 4) for number in range(50)]


def test_what_is_asked_for_at_the_same_time_is_read_in_one_request(store: Recording) -> None:
    run(in_parallel(reading(f"row {number}", 2) for number in range(10)), store)
    assert [len(request.wanted) for request in store.requests if isinstance(request, Read)] == [8, 8, 2, 2]


def test_exact_reads_stay_exact(store: Recording) -> None:
    run(in_parallel([reading("row 1", 1), reading("row 2", 2)]), store)
    assert sorted((request.exact, len(request.wanted)) for request in store.requests if isinstance(request, Read)) == [
        (False, 1),
        (False, 1),
        (True, 1),
    ]


def test_nothing_to_do_asks_for_nothing(store: Recording) -> None:
    assert run(in_parallel([]), store) == []
    assert store.requests == []


def test_a_store_that_fails_fails_them_all(store: Recording) -> None:
    with pytest.raises(StoreUnavailable):
        run(in_parallel([reading("row 1", 1)]), Failing(store, StoreUnavailable("away")))


class TooLong(Faulty):
    """A store that reads no request with a slice of this row."""

    def perform(self, request: Request) -> object:
        if isinstance(request, Read) and "row 3" in {wanted.row for wanted in request.wanted}:
            message = "too many tombstones"
            raise SliceTooLong(message)
        return super().perform(request)


@pytest.mark.parametrize("times", [1, 2], ids=["exact", "not exact"])
def test_a_slice_that_is_too_long_fails_only_the_operation_that_requested_it(store: Recording, times: int) -> None:
    def shorter(row: str) -> Steps[list[bytes]]:
        try:
            return (yield from reading(row, times))
        except SliceTooLong:
            return (yield from reading("row 49", times))

    found = run(in_parallel(shorter(f"row {number}") for number in range(10)), TooLong(store))
    assert found == [[b"49" if number == 3 else b"%d" % number] * times for number in range(10)]
    with pytest.raises(SliceTooLong):
        run(in_parallel(reading(f"row {number}", times) for number in range(10)), TooLong(store))


def test_whoever_would_change_something_has_no_place_here(store: Recording) -> None:
    def resting() -> Steps[None]:
        yield from read_one(Slice("row 1", 0))
        yield Send(Batch("row 1"))

    with pytest.raises(TypeError):
        run(in_parallel([resting()]), store)
    assert all(isinstance(request, Read) for request in store.requests)
