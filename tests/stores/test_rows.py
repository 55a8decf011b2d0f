"""What becomes of rows in the stores that live on this machine: what expired goes, and long ones stay quick."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue import ids
from astyqueue.store import Batch, Column, Name, Put, Slice, Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine

ROW = "emails:0:0"


def name(order: int) -> Name:
    return Name(2, 0, ids.first_at(order), 1)


@pytest.fixture(params=["memory://", "sqlite:///{directory}/mail.db"])
def store(request: pytest.FixtureRequest, clock: TimeMachine, tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(request.param.format(directory=tmp_path), clock=clock)) as store:
        yield store


def columns(store: Store) -> list[Column]:
    return store.read((Slice(ROW, 2),))[0]


@pytest.mark.parametrize("ttl", [None, 1000])
def test_what_was_written_again_to_last_is_not_cleared_away_with_what_expired(
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
