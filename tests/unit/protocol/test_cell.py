"""Compare-and-set of one column: what it asks of the store, and what it says of outcomes that it did not learn."""

from __future__ import annotations

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.row.compare_and_set import CellUpdate, update
from astyqueue.protocol.row.header_commit import COMMIT_TRIES
from astyqueue.protocol.steps import Commit, Read, run
from astyqueue.store import Batch, Name, Named, Put, Store
from astyqueue.testing import Failing, Recording, TimeMachine
from tests.support.places import Place

ROW = "emails:settings"
NAME = Name(0, 0, ids.LEAST, 0)


@pytest.fixture
def store(place: Place, clock: TimeMachine) -> Store:
    return place.store(clock)


def stored(store: Store) -> list[bytes]:
    return [column.value for column in store.read((Named(ROW, (NAME,)),), exact=True)[0]]


def test_a_change_takes_one_read_and_one_commit_and_an_unchanged_value_one_read(store: Store) -> None:
    recording = Recording(store)
    assert run(update(ROW, NAME, lambda _: b"a"), recording) == CellUpdate(b"a", changed=True)
    assert run(update(ROW, NAME, lambda found: found), recording) == CellUpdate(b"a", changed=False)
    assert run(update(ROW, NAME, lambda _: None), recording) == CellUpdate(b"", changed=True)
    assert stored(store) == []
    assert len(recording.requests) == 5


def test_the_same_value_from_another_process_is_not_ones_own_change(store: Store) -> None:
    steps = update(ROW, NAME, lambda found: b"a" if found is None else found)
    read = next(steps)
    assert isinstance(read, Read)
    request = steps.send(store.read(read.wanted, exact=True))
    assert isinstance(request, Commit)
    store.send(Batch(ROW, (Put(NAME, b"a"),)))
    steps.send(store.commit(request.batch, request.expects))
    with pytest.raises(StopIteration) as ended:
        steps.send(store.read(read.wanted, exact=True))
    assert ended.value.value == CellUpdate(b"a", changed=False)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("wanted", [b"b", None])
def test_a_change_of_unknown_outcome_is_read_back_and_made_once(
    store: Store, wanted: bytes | None, *, applied: bool
) -> None:
    store.send(Batch(ROW, (Put(NAME, b"a"),)))
    failing = Failing(store, OutcomeUnknown(), of=(Commit,), applied=applied)
    assert run(update(ROW, NAME, lambda _: wanted), failing) == CellUpdate(wanted or b"", changed=True)
    assert stored(store) == [wanted] * (wanted is not None)


def test_a_column_that_changes_all_the_time_is_given_up(store: Store) -> None:
    def change(found: bytes | None) -> bytes:
        store.send(Batch(ROW, (Put(NAME, (found or b"") + b"x"),)))
        return b"mine"

    with pytest.raises(StoreUnavailable, match=f"row {ROW}: gave up after {COMMIT_TRIES} attempts"):
        run(update(ROW, NAME, change), store)


@pytest.mark.parametrize("applied", [True, False])
def test_a_change_that_may_have_been_made_is_not_reported_as_not_made_when_the_store_stays_away(
    store: Store, *, applied: bool
) -> None:
    away = Failing(store, StoreUnavailable("away"), at=2, of=(Read,))
    failing = Failing(away, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        run(update(ROW, NAME, lambda _: b"a"), failing)
