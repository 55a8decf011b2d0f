"""Sends: blind inserts that are never lost, also when they land long after their time."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.model.message import MessageId
from astyqueue.protocol.columns import HEADER, State
from astyqueue.protocol.outcomes import Reject
from astyqueue.protocol.remove import delete
from astyqueue.protocol.send import LATE, STAMP_BACK, send
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Commit, Read, run
from astyqueue.protocol.steps import Send as SendRequest
from astyqueue.store import Batch, Named, Slice
from astyqueue.testing import Failing, Recording
from tests.unit.protocol.watched import ROW, Meanwhile, picture
from tests.unit.protocol.worlds import Scene, put_at, warm


def test_a_send_is_one_blind_insert_stamped_an_hour_back() -> None:
    scene = Scene()
    seen = Recording(scene.store)
    put = put_at(scene.now)
    run(send(scene.process("pat"), Batch(ROW, (put,))), seen)
    assert seen.requests == [SendRequest(Batch(ROW, (put,)))]
    assert scene.store.read((Slice(ROW, put.name.type),))[0][0].written == scene.now - STAMP_BACK


@pytest.mark.parametrize("applied", [True, False])
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


def test_a_store_that_goes_away_after_an_unknown_outcome_leaves_it_unknown() -> None:
    """The first try may have come through, so nobody may be told that nothing was changed."""
    scene = Scene()
    store = Failing(Failing(scene.store, StoreUnavailable("away")), OutcomeUnknown("no answer"), applied=False)
    with pytest.raises(OutcomeUnknown):
        run(send(scene.process("pat"), Batch(ROW, (put_at(scene.now),))), store)


@pytest.mark.parametrize(("late", "listed"), [(LATE, False), (LATE + 1, True)])
def test_a_send_acknowledged_more_than_a_minute_late_is_listed_where_it_must_be_seen(late: int, *, listed: bool) -> None:
    scene = Scene()
    put = put_at(scene.now - late)
    run(send(scene.process("pat"), Batch(ROW, (put,))), scene.store)
    timers = picture(scene.store).timers
    assert [[entry.id for entry in timer.entries] for timer in timers] == [[put.name.id]] * listed
    assert all((timer.due, timer.state) == (scene.now, State.SNOOZED) for timer in timers)
    assert [held.entry.id for held in scene.do("ann").claims[0].held] == [put.name.id]
    scene.store.require_lawful()


def test_a_send_hours_late_reaches_a_claimer_who_has_passed_its_time() -> None:
    scene = Scene(messages=1)
    sight = Sight(ROW, 1)
    old = put_at(scene.now)
    scene.clock.advance("3h")
    scene.send(1)
    for taken in scene.do("ann", sight=sight).claims:
        scene.acked(taken, sight=sight)
    scene.clock.advance("1h")
    scene.do("ann", sight=sight)
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
    run(send(scene.process("pat"), Batch(ROW, (put,))), Meanwhile(scene.store, partial(run, deleting, scene.store), at=at))
    assert put.name.id not in picture(scene.store).messages | picture(scene.store).places.keys()


def test_producers_never_read_what_they_do_not_need() -> None:
    scene = Scene(messages=3)
    warm(scene, "ann")
    seen = Recording(scene.store)
    puts = tuple(put_at(scene.now - late * SECOND, 40 + late) for late in (0, 1, 59))
    run(send(scene.process("pat"), Batch(ROW, puts)), seen)
    assert not [request for request in seen.requests if isinstance(request, Read | Commit)]
    assert scene.store.read((Named(ROW, (HEADER,)),)) == [[]]
