"""Batches of sources: the process that begins one decides its moment, for all processes and for good."""

from __future__ import annotations

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, Undecodable
from astyqueue.protocol.layout.rows import batches_row
from astyqueue.protocol.sending.idempotent import BatchRecord, begin_batch, end_batch, record_id
from astyqueue.protocol.steps import Client, Commit, Steps, run
from astyqueue.store import Batch, Name, Put, Slice, Store
from astyqueue.testing import Failing, TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import deterministic_client
from tests.support.places import Place

HERE = {"queue": "emails", "source": "nightly"}
DUE = 2_000_000_000 * SECOND


@pytest.fixture
def store(place: Place, clock: TimeMachine) -> Store:
    return place.store(clock)


@pytest.fixture
def ann(clock: TimeMachine) -> Client:
    return deterministic_client("ann", clock)


def beginning(process: Client, batch: str = "7") -> Steps[BatchRecord]:
    return begin_batch(process, **HERE, batch=batch)


@pytest.mark.every_store
def test_a_batch_keeps_the_moment_at_which_it_was_first_begun(store: Store, clock: TimeMachine, ann: Client) -> None:
    first = run(beginning(ann), store)
    assert first == BatchRecord(clock.now(), ended=False)
    clock.advance("1h")
    assert run(beginning(deterministic_client("bob", clock)), store) == first
    assert run(beginning(ann, "8"), store).moment == clock.now()


def test_of_two_who_begin_at_once_both_find_the_same(store: Store, clock: TimeMachine, ann: Client) -> None:
    late, request = beginning(ann), None
    request = next(late)
    while not isinstance(request, Commit):
        request = late.send(store.read(request.wanted, exact=request.exact))  # type: ignore[union-attr]  # nothing but reads comes before
    clock.advance("1s")
    first = run(beginning(deterministic_client("bob", clock)), store)
    refused = store.commit(request.batch, request.expects)
    request = late.send(refused)
    with pytest.raises(StopIteration) as ended:
        late.send(store.read(request.wanted, exact=True))  # type: ignore[union-attr]  # it reads what the other wrote
    assert ended.value.value == first


@pytest.mark.parametrize("applied", [True, False])
def test_a_moment_of_unknown_outcome_is_read_back(
    store: Store, clock: TimeMachine, ann: Client, *, applied: bool
) -> None:
    first = run(beginning(ann), Failing(store, OutcomeUnknown(), of=(Commit,), applied=applied))
    clock.advance("1s")
    assert run(beginning(deterministic_client("bob", clock)), store) == first


def test_a_batch_that_ended_is_known_to_have(store: Store, ann: Client) -> None:
    begun = run(beginning(ann), store)
    run(end_batch(ann, **HERE, batch="7"), store)
    run(end_batch(ann, **HERE, batch="8"), store)
    assert run(beginning(ann), store) == begun._replace(ended=True)
    assert not run(beginning(ann, "8"), store).ended


@pytest.mark.stores("memory", "sqlite")
def test_of_batches_that_were_sent_the_last_is_remembered_long_and_those_before_for_a_day(
    store: Store, ann: Client, clock: TimeMachine
) -> None:
    for batch, before in (("7", None), ("8", "7"), ("9", "8")):
        run(beginning(ann, batch), store)
        run(end_batch(ann, **HERE, batch=batch, before=before), store)
    assert all(run(beginning(ann, batch), store).ended for batch in ("7", "8", "9"))
    clock.advance("25h")
    assert len(store.read((Slice(batches_row(**HERE), 0),))[0]) == 1
    assert run(beginning(ann, "9"), store).ended


def test_what_a_newer_release_wrote_is_not_guessed(store: Store, ann: Client) -> None:
    run(beginning(ann), store)
    row = batches_row(**HERE)
    [kept] = store.read((Slice(row, 0),))[0]
    store.send(Batch(row, (Put(Name(*kept.name), b"\x02" + kept.value[1:], kept.written + SECOND),)))
    with pytest.raises(Undecodable, match="format byte 02"):
        run(beginning(ann), store)


def test_an_id_is_made_of_the_source_the_record_and_the_moments() -> None:
    assert record_id("nightly", "r-1", due=0, begun=DUE) == record_id("nightly", "r-1", due=0, begun=DUE)
    others = {
        record_id("nightly", "r-1", due=0, begun=DUE),
        record_id("nightly", "r-2", due=0, begun=DUE),
        record_id("nightly-", "r-1", due=0, begun=DUE),
        record_id("nightly", "r-1", due=0, begun=DUE + 1),
        record_id("nightly", "r-1", due=DUE + 1, begun=DUE),
    }
    assert len(others) == 5
    assert all(ids.parse(ids.text(id_)) == id_ for id_ in others)


def test_a_record_for_now_is_due_at_once_and_a_later_one_to_the_microsecond() -> None:
    moments = {ids.moment(record_id("nightly", str(number), due=0, begun=DUE)) for number in range(100)}
    assert len(moments) > 90
    assert all(DUE - SECOND < moment <= DUE for moment in moments)
    assert {ids.moment(record_id("nightly", str(number), due=DUE + 5, begun=DUE)) for number in range(100)} == {DUE + 5}
    assert ids.moment(record_id("nightly", "r", due=DUE - 5, begun=DUE)) > DUE - SECOND
