"""Sends: blind inserts that are never lost, also when they land long after their time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.errors import OutcomeUnknown, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from astyqueue.ids import first_at
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.coordination.doorbell import RebalanceRequest, cells, rebalance_request_in
from astyqueue.protocol.layout.columns import HEADER, STAMP_BACK, State, Type
from astyqueue.protocol.row.header_commit import RowTransaction, bump_header
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.insert import LATE, send
from astyqueue.protocol.settling.outcomes import Reject
from astyqueue.protocol.steps import Commit, Read, Request, run
from astyqueue.protocol.steps import Send as SendRequest
from astyqueue.store import Batch, Name, Named, Put, Slice, Store
from astyqueue.testing import Failing, Faulty, Recording
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.worlds import Scene, put_at, warm


@pytest.mark.every_store
def test_a_send_is_one_blind_insert_stamped_an_hour_back() -> None:
    scene = Scene()
    seen = Recording(scene.store)
    put = put_at(scene.now)
    run(send(scene.process("pat"), Batch(ROW, (put,))), seen)
    assert seen.requests == [SendRequest(Batch(ROW, (put,)))]
    assert scene.store.read((Slice(ROW, put.name.type),))[0][0].written == scene.now - STAMP_BACK


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.every_store
def test_a_send_of_unknown_outcome_is_repeated_unchanged(*, applied: bool) -> None:
    scene = Scene()
    put = put_at(scene.now)
    seen = Recording(Failing(scene.store, OutcomeUnknown("no answer"), applied=applied))
    run(send(scene.process("pat"), Batch(ROW, (put,))), seen)
    assert seen.requests == [SendRequest(Batch(ROW, (put,)))] * 2
    assert picture(scene.store).messages == {put.name.id}


def test_a_send_that_stays_unknown_tells_its_caller() -> None:
    scene = Scene()
    store = scene.store
    for _ in range(3):
        store = Failing(store, OutcomeUnknown("no answer"), of=(SendRequest,))  # type: ignore[assignment]  # a store around a store
    seen = Recording(store)
    with pytest.raises(OutcomeUnknown):
        run(send(scene.process("pat"), Batch(ROW, (put_at(scene.now),))), seen)
    assert len(seen.requests) == 3


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreFull("no room"), StoreCorrupt("what is this")])
def test_whatever_goes_wrong_after_an_unknown_outcome_leaves_it_unknown(error: StoreError) -> None:
    """The first try may have come through, so no error may say that nothing was changed."""
    scene = Scene()
    store = Failing(Failing(scene.store, error), OutcomeUnknown("no answer"), applied=False)
    with pytest.raises(OutcomeUnknown):
        run(send(scene.process("pat"), Batch(ROW, (put_at(scene.now),))), store)


class AwayAfterwards(Faulty):
    """A store that fails whatever comes after the send."""

    def __init__(self, store: Store, error: StoreError) -> None:
        super().__init__(store)
        self._error = error

    def perform(self, request: Request) -> object:
        if not isinstance(request, SendRequest):
            raise self._error
        return super().perform(request)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("no answer"), StoreCorrupt("what is this")])
def test_a_late_send_that_cannot_be_listed_was_sent_all_the_same(
    error: StoreError, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    put = put_at(scene.now - LATE - 1)
    run(send(scene.process("pat"), Batch(ROW, (put,))), AwayAfterwards(scene.store, error))
    assert picture(scene.store).messages == {put.name.id}
    [line] = caplog.messages
    assert line.startswith(f"late_messages_unregistered row={ROW} messages=1 error=")
    assert "Do not resend" in line


@pytest.mark.parametrize("name", [HEADER, Name(Type.TIMER, 0, first_at(SECOND), State.LEASED)])
def test_a_late_send_to_a_row_that_cannot_be_read_was_sent_all_the_same(
    name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller would send it again, and it is there."""
    scene = Scene()
    scene.store.send(Batch(ROW, (Put(name, b"\x7fof a newer release"),)))
    put = put_at(scene.now - LATE - 1)
    run(send(scene.process("pat"), Batch(ROW, (put,))), scene.store)
    assert put.name.id in picture(scene.store).messages
    assert "cannot be read" in caplog.text


def test_a_late_send_beside_a_claimer_that_never_rests_ends_and_asks_for_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    put = put_at(scene.now - LATE - 1)

    def busy() -> None:
        scene.send(1)
        claimed = scene.do("bob", want=0)
        header = scene.store.read((Named(ROW, (HEADER,)),))[0]
        change = RowTransaction(ROW)
        bump_header(scene.process("bob"), change, header[0].value if header else None, due=None)
        run(change.commit(), scene.store)
        assert not claimed.claims

    store = BeforeCommits(scene.store, busy)
    run(send(scene.process("pat"), Batch(ROW, (put,))), store)
    assert store.commits <= 50
    assert put.name.id in picture(scene.store).waiting
    assert "Do not resend" in caplog.text
    [wanted] = scene.store.read((cells("tasks"),))[0]
    assert rebalance_request_in(wanted.value) == RebalanceRequest("pat", ROW)


class BeforeCommits(Faulty):
    """Others act before each of its commits."""

    def __init__(self, store: Store, others: Callable[[], None]) -> None:
        super().__init__(store)
        self._others = others
        self.commits = 0

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            self.commits += 1
            self._others()
        return super().perform(request)


@pytest.mark.parametrize(("late", "listed"), [(LATE, False), (LATE + 1, True)])
def test_a_send_acknowledged_more_than_a_minute_late_is_listed_where_it_must_be_seen(
    late: int, *, listed: bool
) -> None:
    scene = Scene()
    put = put_at(scene.now - late)
    run(send(scene.process("pat"), Batch(ROW, (put,))), scene.store)
    timers = picture(scene.store).timers
    assert [[entry.id for entry in timer.entries] for timer in timers] == [[put.name.id]] * listed
    assert all((timer.due, timer.state) == (scene.now, State.SNOOZED) for timer in timers)
    assert [held.entry.id for held in scene.do("ann").claims[0].held] == [put.name.id]
    scene.store.require_lawful()


@pytest.mark.every_store
def test_a_send_hours_late_reaches_a_claimer_who_has_passed_its_time() -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    old = put_at(scene.now)
    scene.clock.advance("3h")
    scene.send(1)
    for taken in scene.do("ann", snapshot=snapshot).claims:
        scene.acked(taken, snapshot=snapshot)
    scene.clock.advance("1h")
    scene.do("ann", snapshot=snapshot)
    late = old._replace(name=old.name._replace(id=old.name.id[:-1] + b"\xff"))
    run(send(scene.process("pat"), Batch(ROW, (late,))), scene.store)
    assert [held.entry.id for held in scene.do("bob").claims[0].held] == [late.name.id]


@pytest.mark.parametrize("became", ["claimed", "dead", "gone"])
def test_a_late_send_that_was_found_already_is_listed_nowhere_else(became: str) -> None:
    scene = Scene()
    put = put_at(scene.now - LATE - 1)
    found = []

    def others() -> None:
        found.extend(scene.do("ann").claims)
        if became == "dead":
            scene.settle(found[0], {put.name.id: Reject("rejected", "no", 1)})
        if became == "gone":
            scene.acked(found[0])

    run(send(scene.process("pat"), Batch(ROW, (put,))), Meanwhile(scene.store, others, at=2))
    now = picture(scene.store)
    assert len(now.timers) == (became == "claimed")
    assert (now.messages == now.dead) == (became != "claimed")
    scene.store.require_lawful()


@pytest.mark.parametrize("at", range(2, 7))
def test_a_late_send_that_is_claimed_while_it_is_being_listed_has_one_holder(at: int) -> None:
    scene = Scene()
    put = put_at(scene.now - LATE - 1)
    taken = []
    store = Meanwhile(scene.store, lambda: taken.extend(scene.do("ann").claims), at=at)
    run(send(scene.process("pat"), Batch(ROW, (put,))), store)
    taken += scene.do("bob").claims
    assert [held.entry.id for one in taken for held in one.held] == [put.name.id]
    scene.store.require_lawful()


@pytest.mark.parametrize("at", range(2, 7))
def test_a_late_send_that_is_deleted_while_it_is_being_listed_stays_deleted(at: int) -> None:
    scene = Scene(messages=1)
    put = put_at(scene.now - LATE - 1, 1)
    deleting = delete(scene.process("dan"), MessageId(ROW, 0, put.name.id))
    run(
        send(scene.process("pat"), Batch(ROW, (put,))),
        Meanwhile(scene.store, partial(run, deleting, scene.store), at=at),
    )
    assert put.name.id not in picture(scene.store).messages | picture(scene.store).places.keys()


def test_producers_never_read_what_they_do_not_need() -> None:
    scene = Scene(messages=3)
    warm(scene, "ann")
    seen = Recording(scene.store)
    puts = tuple(put_at(scene.now - late * SECOND, 40 + late) for late in (0, 1, 59))
    run(send(scene.process("pat"), Batch(ROW, puts)), seen)
    assert not [request for request in seen.requests if isinstance(request, Read | Commit)]
    assert scene.store.read((Named(ROW, (HEADER,)),)) == [[]]
