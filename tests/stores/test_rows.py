"""Rows of the stores on this machine: expired columns go, long rows stay quick, and names of columns are sorted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue import ids
from astyqueue.store import Batch, Column, Name, Put, Slice, Store
from astyqueue.stores import open_store
from astyqueue.stores.sorted_keys import SortedNames
from astyqueue.testing import TimeMachine

ROW = "emails:0:0"
SORTED = st.integers(0, 50).map(lambda number: b"%03d" % number)


def name(order: int) -> Name:
    return Name(2, 0, ids.first_at(order), 1)


@pytest.fixture(params=["memory://", "sqlite:///{directory}/mail.db"])
def store(request: pytest.FixtureRequest, clock: TimeMachine, tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(request.param.format(directory=tmp_path), clock=clock)) as store:
        yield store


def columns(store: Store) -> list[Column]:
    return store.read((Slice(ROW, 2),))[0]


@pytest.mark.parametrize("ttl", [None, 1000])
def test_a_column_that_was_written_again_to_last_is_not_cleared_away_with_those_that_expired(
    store: Store, clock: TimeMachine, ttl: int | None
) -> None:
    store.send(Batch(ROW, puts=(Put(name(0), b"short", ttl=10), Put(name(1), b"short", ttl=10))))
    store.send(Batch(ROW, puts=(Put(name(0), b"lasting", ttl=ttl),)))
    clock.advance("2m")
    store.send(Batch("another", puts=(Put(name(2), b"short", ttl=10),)))
    assert [column.value for column in columns(store)] == [b"lasting"]


def test_a_row_of_a_hundred_thousand_columns_is_sent_read_and_emptied(store: Store) -> None:
    every = [name(order) for order in range(100_000)]
    for start in range(0, len(every), 500):
        store.send(Batch(ROW, puts=tuple(Put(each, b"", stamp=1) for each in every[start : start + 500])))
    for start in range(0, len(every), 500):
        (first,) = store.read((Slice(ROW, 2, 0, limit=500),))
        assert [column.name for column in first] == every[start : start + 500]
        store.commit(Batch(ROW, deletes=tuple(column.name for column in first)), ())
    assert columns(store) == []


@given(st.lists(st.tuples(st.booleans(), SORTED)), SORTED, SORTED)
def test_sorted_names_hold_what_a_set_would_hold(changes: list[tuple[bool, bytes]], low: bytes, high: bytes) -> None:
    names, plain = SortedNames(), set[bytes]()
    for adding, name in changes:
        if adding and name not in plain:
            names.add(name)
            plain.add(name)
        elif not adding and name in plain:
            names.remove(name)
            plain.remove(name)
    assert list(names.between(b"", b"9")) == sorted(plain)
    assert list(names.between(low, high)) == sorted(name for name in plain if low <= name < high)


def test_twenty_thousand_names_are_added_and_removed_in_any_order_and_stay_sorted() -> None:
    chance = random.Random(7)
    every = [b"%05d" % number for number in range(20_000)]
    for order in (every, every[::-1], chance.sample(every, len(every))):
        names = SortedNames()
        for name in order:
            names.add(name)
        assert list(names.between(b"", b"~")) == every
        assert list(names.between(every[1500], every[9000])) == every[1500:9000]
        for name in chance.sample(every, len(every)):
            names.remove(name)
        assert list(names.between(b"", b"~")) == []
