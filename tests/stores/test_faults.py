"""Stores that misbehave on purpose, and processes that do the same every time."""

from __future__ import annotations

import uuid

import pytest

from astyqueue import ids
from astyqueue.errors import Closed, OutcomeUnknown, StoreUnavailable
from astyqueue.ids import LEAST
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put, Refused, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, Faulty, Recording, TimeMachine
from tests.modelcheck.executor import deterministic_client
from tests.stores.conformance.defective_stores import Unguarded

HEADER = Name(0, 0, LEAST, 0)
TIMER = Name(3, 0, LEAST, 2)
ALL = (Named("r", (HEADER, TIMER)),)


def put(value: bytes, name: Name = HEADER) -> Batch:
    return Batch("r", (Put(name, value),))


def values(store: Store) -> list[bytes]:
    return [column.value for column in store.read(ALL)[0]]


def test_a_faulty_store_that_spoils_nothing_is_as_the_one_below(clock: TimeMachine) -> None:
    below = MemoryStore(clock)
    store = Faulty(below)
    store.send(put(b"timer", TIMER))
    assert store.commit(put(b"header"), (Expectation(HEADER, None),)) == Committed()
    assert store.commit(put(b"again"), (Expectation(HEADER, None),)) == Refused({HEADER: b"header"})
    assert values(store) == values(below) == [b"header", b"timer"]
    store.close()
    with pytest.raises(Closed):
        below.read(ALL)


def test_an_unguarded_store_drops_expectations_on_headers_and_keeps_the_others(clock: TimeMachine) -> None:
    store = Unguarded(MemoryStore(clock))
    store.send(put(b"header"))
    assert store.commit(put(b"wrong"), (Expectation(HEADER, None),)) == Committed()
    assert store.commit(put(b"wrong"), (Expectation(HEADER, None), Expectation(TIMER, b"t"))) == Refused({TIMER: None})


def test_which_expectations_are_dropped_is_reported_by_type(clock: TimeMachine) -> None:
    store = Unguarded(MemoryStore(clock), types={3})
    assert store.commit(put(b"x"), (Expectation(TIMER, b"t"),)) == Committed()
    assert store.commit(put(b"x"), (Expectation(HEADER, b"y"),)) == Refused({HEADER: b"x"})


def test_a_recording_store_lists_requests_in_their_order(clock: TimeMachine) -> None:
    store = Recording(MemoryStore(clock))
    store.send(put(b"a"))
    store.commit(put(b"b"), (Expectation(HEADER, b"a"),))
    store.read(ALL, exact=True)
    assert store.requests == [Send(put(b"a")), Commit(put(b"b"), (Expectation(HEADER, b"a"),)), Read(ALL, exact=True)]


def test_a_failing_store_fails_once_before_it_did_anything(clock: TimeMachine) -> None:
    store = Failing(MemoryStore(clock), StoreUnavailable("away"), at=2)
    store.send(put(b"one"))
    with pytest.raises(StoreUnavailable, match="away"):
        store.send(put(b"two"))
    assert values(store) == [b"one"]
    store.send(put(b"three"))
    assert values(store) == [b"three"]


def test_a_failing_store_may_lose_the_answer_only(clock: TimeMachine) -> None:
    store = Failing(MemoryStore(clock), OutcomeUnknown("lost"), applied=True)
    with pytest.raises(OutcomeUnknown):
        store.commit(put(b"one"), (Expectation(HEADER, None),))
    assert values(store) == [b"one"]


def test_a_failing_store_counts_requests_of_the_kinds_it_is_told(clock: TimeMachine) -> None:
    store = Failing(MemoryStore(clock), StoreUnavailable("away"), at=2, of=(Commit,))
    for _ in range(3):
        store.send(put(b"sent"))
    store.commit(put(b"one"), (Expectation(HEADER, b"sent"),))
    with pytest.raises(StoreUnavailable):
        store.commit(put(b"two"), (Expectation(HEADER, b"one"),))
    assert values(store) == [b"one"]


def test_a_repeatable_process_draws_the_same_ids_and_nonces_every_time(clock: TimeMachine) -> None:
    first, again, other = (deterministic_client(name, clock) for name in ("ann", "ann", "bob"))
    drawn = [
        [process.id_at(clock.now()), process.nonce(), process.id_at(7), process.nonce()]
        for process in (first, again, other)
    ]
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 8
    assert [ids.moment(drawn[0][0]), ids.moment(drawn[0][2])] == [clock.now(), 7]
    assert ids.as_uuid(drawn[0][0]).variant == uuid.RFC_4122
    assert len(drawn[0][1]) == 8
    assert first.now() == clock.now()
