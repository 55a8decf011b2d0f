"""Deleting one message, and what comes between."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.ids import LEAST
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.dead_letters import redrive
from astyqueue.protocol.admin.delete import clear, delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.header_commit import COMMIT_TRIES
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot, read_all_timers
from astyqueue.protocol.sending.idempotent import idempotent_message, send_idempotent
from astyqueue.protocol.settling.outcomes import ACK, Extend, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Commit, Read, Steps
from astyqueue.store import Batch, Expectation, Name, Put
from astyqueue.testing import Failing
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.explorer import explore
from tests.modelcheck.schedule import Actor
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage, Unanswered


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_waiting_message_is_deleted_and_its_neighbours_are_not(stage: Stage) -> None:
    first, second, third = stage.send_many(3)
    assert stage.run(delete(stage.bob, second))
    assert not stage.run(delete(stage.bob, second))
    assert stage.drain() == [first, third]


def test_a_message_that_never_was_is_not_deleted(stage: Stage) -> None:
    sent = stage.send()
    assert not stage.run(delete(stage.bob, sent._replace(priority=3)))
    assert not stage.run(delete(stage.bob, MessageId("mail:7:7", 0, LEAST)))
    assert stage.header("mail:7:7") is None
    assert stage.drain() == [sent]


def test_deleting_a_leased_message_ends_its_receipt_and_no_other(stage: Stage) -> None:
    first, second, third = stage.send_many(3)
    [taken] = stage.claim(3)
    assert stage.run(delete(stage.bob, second))
    assert stage.columns(Type.TIMER)[0].name == taken.timer.name
    assert stage.settle(taken, ACK, second).lost == [second.id]
    assert not stage.settle(taken, ACK, first, third).lost
    assert stage.kinds() == {Type.LOCK}


def test_deleting_the_last_leased_message_takes_its_timer_along(stage: Stage) -> None:
    only = stage.send()
    [taken] = stage.claim(1)
    assert stage.run(delete(stage.bob, only))
    assert stage.kinds() == {Type.LOCK}
    assert not stage.is_held(taken, only)


@pytest.mark.parametrize("delay", [1, 3_600])
@pytest.mark.every_store
def test_a_delayed_message_and_one_that_backs_off_are_deleted(stage: Stage, delay: int) -> None:
    delayed = stage.send(delay=delay)
    backing_off = stage.send()
    [taken] = stage.claim(1)
    stage.settle(taken, Release(stage.clock.now() + delay * SECOND, 1))
    assert stage.run(delete(stage.bob, delayed))
    assert stage.run(delete(stage.bob, backing_off))
    assert stage.kinds() == {Type.LOCK}


def test_a_message_that_was_released_by_a_mark_is_deleted(stage: Stage) -> None:
    first, second = stage.send_many(2)
    [taken] = stage.claim(2)
    refused = Meddling(stage.store, [partial(stage.run, delete(stage.bob, stage.send()))])
    stage.run(
        settle(stage.ann, ROW, SettleRequest(taken.timer, {first.id: Release(stage.clock.now() + SECOND, 1)})), refused
    )
    assert stage.counts().backing_off == 1
    assert stage.run(delete(stage.bob, first))
    assert stage.counts().total == 1
    assert stage.is_held(taken, second)


def test_a_dead_letter_is_deleted_with_its_message(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    assert stage.run(delete(stage.bob, first))
    assert [column.name.id for column in stage.columns(Type.DEAD)] == [second.id]
    assert [column.name.id for column in stage.columns(Type.MESSAGE)] == [second.id]


@pytest.mark.every_store
def test_a_message_claimed_between_reads_and_commit_is_deleted_from_its_new_holder(stage: Stage) -> None:
    first, second = stage.send_many(2)
    claims = []
    assert stage.run(delete(stage.bob, first), Meddling(stage.store, [lambda: claims.extend(stage.claim(2))]))
    [taken] = claims
    assert stage.settle(taken, ACK, first).lost == [first.id]
    assert not stage.settle(taken, ACK, second).lost
    assert stage.kinds() == {Type.LOCK}


def test_a_message_acked_between_reads_and_commit_was_not_deleted(stage: Stage) -> None:
    only = stage.send()
    [taken] = stage.claim(1)
    assert not stage.run(delete(stage.bob, only), Meddling(stage.store, [partial(stage.settle, taken, ACK)]))


def test_a_message_extended_rejected_and_redriven_meanwhile_is_deleted_all_the_same(stage: Stage) -> None:
    only = stage.send()
    [taken] = stage.claim(1)
    meddlers = [
        lambda: stage.settle(taken, Extend(stage.clock.now() + 2 * LEASE)),
        lambda: stage.settle(taken, Reject("rejected", "", 1)),
        lambda: stage.run(redrive(stage.cyd, [only])),
    ]
    assert stage.run(delete(stage.bob, only), Meddling(stage.store, meddlers))
    assert stage.kinds() == {Type.LOCK}


def test_a_process_with_old_knowledge_is_refused_after_a_delete(stage: Stage) -> None:
    first, second = stage.send_many(2)
    snapshot = RowSnapshot(ROW, 1)
    stage.run(load_snapshot(snapshot, stage.clock.now()))
    stage.run(delete(stage.bob, first))
    claimed = stage.run(claim(stage.ann, snapshot, ClaimRequest(2, LEASE, 5)))
    assert claimed.refused == 1
    assert [held.entry.id for taken in claimed.claims for held in taken.held] == [second.id]


def test_a_command_beside_processes_that_never_rest_ends_with_an_error(stage: Stage) -> None:
    only = stage.send()
    stage.send_many(2 * COMMIT_TRIES)
    busy = Meddling(stage.store, itertools.repeat(lambda: stage.claim(1)))
    with pytest.raises(StoreUnavailable, match=f"gave up after {COMMIT_TRIES} conflicts.*pause the queue"):
        stage.run(delete(stage.bob, only), busy)
    assert busy.commits == COMMIT_TRIES
    assert len(stage.columns(Type.MESSAGE)) == 1 + 2 * COMMIT_TRIES


def test_a_row_with_a_timer_that_cannot_be_read_is_left_as_it_is(stage: Stage) -> None:
    only = stage.send()
    strange = Name(Type.TIMER, 0, only.id, 2)
    stage.store.commit(Batch(ROW, (Put(strange, b"\x07"),)), (Expectation(strange, None),))
    for steps in (delete(stage.bob, only), clear(stage.bob, ROW, 1)):
        with pytest.raises(Undecodable, match="timer"):
            stage.run(steps)
    assert stage.kinds() == {Type.MESSAGE, Type.TIMER}


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.every_store
def test_a_delete_of_unknown_outcome_is_read_back(stage: Stage, *, applied: bool) -> None:
    first, second = stage.send_many(2)
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    assert stage.run(delete(stage.bob, first), unknown)
    header = stage.header()
    assert header is not None
    assert header.version == 1
    assert stage.drain() == [second]


def test_a_message_acked_while_the_outcome_of_its_delete_was_unknown_was_not_deleted(stage: Stage) -> None:
    only = stage.send()
    [taken] = stage.claim(1)
    assert not stage.run(delete(stage.bob, only), Unanswered(stage.store, lambda _: stage.settle(taken, ACK)))


def test_a_message_cleared_while_the_outcome_of_its_delete_was_unknown_was_not_deleted(stage: Stage) -> None:
    """A clear leaves no mark, so an idempotent send may write the message again; after a delete it may not."""
    message = idempotent_message(stage.value("m0"), 0, ids.first_at(stage.clock.now()))
    assert stage.run(send_idempotent(stage.ann, ROW, [message])) == 1
    cleared = Unanswered(stage.store, lambda _: stage.run(clear(stage.cyd, ROW, 1)))
    assert not stage.run(delete(stage.bob, MessageId(ROW, 0, message.id)), cleared)
    assert stage.run(send_idempotent(stage.ann, ROW, [message])) == 1


@pytest.mark.parametrize("applied", [True, False])
def test_a_delete_of_unknown_outcome_leaves_the_mark_of_an_idempotent_message(stage: Stage, *, applied: bool) -> None:
    message = idempotent_message(stage.value("m0"), 0, ids.first_at(stage.clock.now()))
    stage.run(send_idempotent(stage.ann, ROW, [message]))
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    assert stage.run(delete(stage.bob, MessageId(ROW, 0, message.id)), unknown)
    assert stage.run(send_idempotent(stage.ann, ROW, [message])) == 0


def test_a_delete_whose_outcome_cannot_be_read_back_stays_unknown(stage: Stage) -> None:
    first = stage.send()
    silent = Failing(stage.store, StoreUnavailable("gone"), at=5, of=(Read,))
    unknown = Failing(silent, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        stage.run(delete(stage.bob, first), unknown)


def racing(*actors: str) -> Callable[[], Scenario]:
    """Two messages, one of them leased, and these actors."""

    def make_world() -> Scenario:
        stage = Stage()
        first, _ = stage.send_many(2)
        [held] = stage.claim(1)

        def reject() -> Steps[SettleResult]:
            return settle(stage.ann, ROW, SettleRequest(held.timer, {first.id: Reject("rejected", "", 1)}))

        offered: dict[str, Actor] = {
            "claim": lambda: stage.claiming(2, stage.cyd),
            "reject": reject,
            "delete": lambda: delete(stage.bob, first),
            "clear": lambda: clear(stage.bob, ROW, 1),
        }

        def judge(_: History) -> str | None:
            if "clear" in actors:
                return f"{stage.kinds()} are left" if stage.kinds() != {Type.LOCK} else None
            timers = stage.run(read_all_timers(ROW, 0))
            listed = {entry.id for timer in timers for entry in timer.entries}
            left = {column.name.id for kind in (Type.MESSAGE, Type.DEAD) for column in stage.columns(kind)}
            return "the deleted message is there" if first.id in left | listed else None

        return Scenario(stage.store, {name: offered[name] for name in actors}, judge)

    return make_world


@pytest.mark.full
@pytest.mark.stores("memory")  # each order is a world of its own, and there are hundreds
@pytest.mark.parametrize("other", ["claim", "reject"])
@pytest.mark.parametrize("command", ["delete", "clear"])
def test_nothing_comes_between_in_any_order(command: str, other: str) -> None:
    explored = explore(racing(command, other), isolated=True, unknowns=1).require_none()
    assert explored.complete
    assert explored.schedules > 5
