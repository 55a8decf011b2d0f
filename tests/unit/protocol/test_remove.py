"""Deleting one message, clearing a row, dropping a queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.ids import LEAST
from astyqueue.model.message import MessageId
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.claim import claim
from astyqueue.protocol.columns import Type
from astyqueue.protocol.dead import redrive
from astyqueue.protocol.picking import Order
from astyqueue.protocol.raising import TRIES
from astyqueue.protocol.remove import clear, delete, drop
from astyqueue.protocol.rows import QUEUES, settings_row
from astyqueue.protocol.settings import list_queues, load_settings, open_queue
from astyqueue.protocol.settle import ACK, Extend, Reject, Release, settle
from astyqueue.protocol.sight import Sight, all_timers, know
from astyqueue.protocol.steps import Commit, Read
from astyqueue.store import Batch, Expectation, Name, Put
from astyqueue.testing import Failing, History, Recording, World, explore
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage


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


def test_deleting_a_message_in_hand_ends_its_receipt_and_no_other(stage: Stage) -> None:
    first, second, third = stage.send_many(3)
    [taken] = stage.claim(3)
    assert stage.run(delete(stage.bob, second))
    assert stage.columns(Type.TIMER)[0].name == taken.timer.name
    assert stage.settle(taken, ACK, second).lost == [second.id]
    assert not stage.settle(taken, ACK, first, third).lost
    assert stage.kinds() == {Type.LOCK}


def test_deleting_the_last_message_in_hand_takes_its_timer_along(stage: Stage) -> None:
    only = stage.send()
    [taken] = stage.claim(1)
    assert stage.run(delete(stage.bob, only))
    assert stage.kinds() == {Type.LOCK}
    assert not stage.is_held(taken, only)


@pytest.mark.parametrize("delay", [1, 3_600])
def test_a_delayed_message_and_one_that_backs_off_are_deleted(stage: Stage, delay: int) -> None:
    delayed = stage.send(delay=delay)
    backing_off = stage.send()
    [taken] = stage.claim(1)
    stage.settle(taken, Release(stage.clock.now() + delay * SECOND, 1))
    assert stage.run(delete(stage.bob, delayed))
    assert stage.run(delete(stage.bob, backing_off))
    assert stage.kinds() == {Type.LOCK}


def test_a_message_that_was_given_back_by_a_mark_is_deleted(stage: Stage) -> None:
    first, second = stage.send_many(2)
    [taken] = stage.claim(2)
    refused = Meddling(stage.store, [partial(stage.run, delete(stage.bob, stage.send()))])
    stage.run(settle(stage.ann, ROW, taken.timer, {first.id: Release(stage.clock.now() + SECOND, 1)}), refused)
    assert stage.counts().backing_off == 1
    assert stage.run(delete(stage.bob, first))
    assert stage.counts().total == 1
    assert stage.is_held(taken, second)


def test_a_dead_letter_is_deleted_with_its_message(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    assert stage.run(delete(stage.bob, first))
    assert [column.name.id for column in stage.columns(Type.DEAD)] == [second.id]
    assert [column.name.id for column in stage.columns(Type.MESSAGE)] == [second.id]


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
    sight = Sight(ROW, 1)
    stage.run(know(sight, stage.clock.now()))
    stage.run(delete(stage.bob, first))
    claimed = stage.run(claim(stage.ann, sight, Order(2, LEASE, 5)))
    assert claimed.refused == 1
    assert [held.entry.id for taken in claimed.claims for held in taken.held] == [second.id]


def test_a_command_beside_processes_that_never_rest_ends_with_an_error(stage: Stage) -> None:
    only = stage.send()
    stage.send_many(2 * TRIES)
    busy = Meddling(stage.store, itertools.repeat(lambda: stage.claim(1)))
    with pytest.raises(StoreUnavailable, match=f"others changed it {TRIES} times in a row.*pause the queue"):
        stage.run(delete(stage.bob, only), busy)
    assert busy.commits == TRIES
    assert len(stage.columns(Type.MESSAGE)) == 1 + 2 * TRIES


def test_a_row_with_a_timer_that_cannot_be_read_is_left_as_it_is(stage: Stage) -> None:
    only = stage.send()
    strange = Name(Type.TIMER, 0, only.id, 2)
    stage.store.commit(Batch(ROW, (Put(strange, b"\x07"),)), (Expectation(strange, None),))
    for steps in (delete(stage.bob, only), clear(stage.bob, ROW, 1)):
        with pytest.raises(Undecodable, match="timer"):
            stage.run(steps)
    assert stage.kinds() == {Type.MESSAGE, Type.TIMER}


@pytest.mark.parametrize("applied", [True, False])
def test_a_delete_of_unknown_outcome_is_read_back(stage: Stage, *, applied: bool) -> None:
    first, second = stage.send_many(2)
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), of=(Commit,), applied=applied)
    assert stage.run(delete(stage.bob, first), unknown)
    header = stage.header()
    assert header is not None
    assert header.version == 1
    assert stage.drain() == [second]


def test_a_delete_whose_outcome_cannot_be_read_back_stays_unknown(stage: Stage) -> None:
    first = stage.send()
    silent = Failing(stage.store, StoreUnavailable("gone"), at=5, of=(Read,))
    unknown = Failing(silent, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        stage.run(delete(stage.bob, first), unknown)


def test_clear_removes_what_waits_is_in_hand_delayed_paused_or_dead(stage: Stage) -> None:
    stage.bury("dead")
    in_hand, backing_off = stage.send_many(2)
    [taken] = stage.claim(2)
    stage.settle(taken, Release(stage.clock.now() + 2 * LEASE, 1), backing_off)
    stage.send(delay=3_600)
    stage.send()
    assert stage.run(clear(stage.bob, ROW, 1)) == 5
    assert stage.kinds() == {Type.LOCK}
    assert not stage.is_held(taken, in_hand)
    assert stage.run(clear(stage.bob, ROW, 1)) == 0


def test_clear_takes_every_priority() -> None:
    stage = Stage(levels=3)
    for priority in range(3):
        stage.send(priority=priority)
    assert stage.run(clear(stage.bob, ROW, 3)) == 3
    assert stage.kinds() == {Type.LOCK}


def test_clear_frees_nothing_that_came_later(stage: Stage) -> None:
    stage.send_many(3)
    late: list[MessageId] = []
    refused_once = Meddling(stage.store, [partial(stage.claim, 1), lambda: late.append(stage.send("later"))])
    assert stage.run(clear(stage.bob, ROW, 1), refused_once) >= 3
    after = stage.send("after")
    assert set(stage.drain()) - set(late) == {after}


def test_a_message_sent_behind_the_walk_of_a_clear_stays(stage: Stage) -> None:
    stage.send(delay=600)
    behind: list[MessageId] = []
    assert stage.run(clear(stage.bob, ROW, 1), Meddling(stage.store, [lambda: behind.append(stage.send())])) == 1
    assert stage.drain() == behind


def test_what_is_claimed_during_a_clear_is_taken_from_its_holder(stage: Stage) -> None:
    sent = stage.send_many(250)
    claims = []
    between = Meddling(stage.store, [lambda: None, lambda: claims.extend(stage.claim(10))])
    assert stage.run(clear(stage.bob, ROW, 1), between) == len(sent)
    assert stage.kinds() == {Type.LOCK}
    assert len(claims) == 1
    assert not stage.is_held(claims[0], MessageId(ROW, 0, claims[0].held[0].entry.id))


def test_what_dies_during_a_clear_is_cleared_too(stage: Stage) -> None:
    stage.bury("early")
    stage.send_many(3)
    [taken] = stage.claim(2)
    meddlers = [lambda: stage.settle(taken, Reject("rejected", "", 1)), lambda: None, lambda: stage.claim(1)]
    assert stage.run(clear(stage.bob, ROW, 1), Meddling(stage.store, meddlers)) == 4
    assert stage.kinds() == {Type.LOCK}


def test_a_letter_that_died_below_those_cleared_already_is_cleared_too(stage: Stage) -> None:
    low = stage.send("low")
    stage.clock.advance(1)
    stage.send_many(1)
    [taken] = stage.claim(2)
    stage.settle(taken, Release(stage.clock.now(), 0), low)
    high = [held.entry.id for held in taken.held if held.entry.id != low.id]
    stage.settle(taken, Reject("rejected", "", 1), MessageId(ROW, 0, high[0]))

    def die() -> None:
        for again in stage.claim(1):
            stage.settle(again, Reject("rejected", "", 1))

    assert stage.run(clear(stage.bob, ROW, 1), Meddling(stage.store, [lambda: None, die, die, die])) == 2
    assert stage.kinds() == {Type.LOCK}


def test_commits_of_a_clear_are_bounded(stage: Stage) -> None:
    for _ in range(3):
        stage.send_many(100)
        for taken in stage.claim(100):
            stage.settle(taken, Reject("rejected", "", 1))
    stage.send_many(300)
    stage.claim(150)
    recording = Recording(stage.store)
    assert stage.run(clear(stage.bob, ROW, 1), recording) == 600
    sizes = [len(asked.batch.puts) + len(asked.batch.deletes) for asked in recording.requests if isinstance(asked, Commit)]
    assert max(sizes) <= 202
    assert len(sizes) <= 6


@pytest.mark.parametrize(("at", "applied"), list(itertools.product([1, 2, 3], [True, False])))
def test_a_clear_with_an_unknown_outcome_clears_all_and_counts_right(stage: Stage, at: int, *, applied: bool) -> None:
    stage.bury("dead")
    stage.send_many(2)
    stage.claim(1)
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), at=at, of=(Commit,), applied=applied)
    assert stage.run(clear(stage.bob, ROW, 1), unknown) == 3
    assert stage.kinds() == {Type.LOCK}


def racing(*actors: str) -> Callable[[], World]:
    """Two messages, one of them in hand, and these actors."""

    def make_world() -> World:
        stage = Stage()
        first, _ = stage.send_many(2)
        [held] = stage.claim(1)

        def reject() -> object:
                    return settle(stage.ann, ROW, held.timer, {first.id: Reject("rejected", "", 1)})

        offered = {
            "claim": lambda: stage.claiming(2, stage.cyd),
            "reject": reject,
            "delete": lambda: delete(stage.bob, first),
            "clear": lambda: clear(stage.bob, ROW, 1),
        }

        def judge(_: History) -> str | None:
            if "clear" in actors:
                return f"{stage.kinds()} are left" if stage.kinds() != {Type.LOCK} else None
            timers = stage.run(all_timers(ROW, 0))
            listed = {entry.id for timer in timers for entry in timer.entries}
            left = {column.name.id for kind in (Type.MESSAGE, Type.DEAD) for column in stage.columns(kind)}
            return "the deleted message is there" if first.id in left | listed else None

        return World(stage.store, {name: offered[name] for name in actors}, judge)

    return make_world


@pytest.mark.parametrize("other", ["claim", "reject"])
@pytest.mark.parametrize("command", ["delete", "clear"])
def test_nothing_comes_between_in_any_order(command: str, other: str) -> None:
    explored = explore(racing(command, other), isolated=True, unknowns=1).require_none()
    assert explored.complete
    assert explored.schedules > 5


def test_a_queue_that_is_dropped_is_gone_but_its_headers_stay(stage: Stage) -> None:
    opened = stage.run(open_queue("mail", layout={"concurrency_shards": 2}, behaviour={}))
    stage.send("a")
    stage.send("b", row="mail:0:1")
    stage.claim(1)
    before = stage.header()
    assert stage.run(drop(stage.bob, opened.settings)) == 2
    assert stage.run(load_settings("mail")) is None
    assert stage.run(list_queues()) == []
    assert stage.kinds(settings_row("mail")) == stage.kinds(QUEUES) == set()
    after = stage.header()
    assert before is not None
    assert after is not None
    assert after.version > before.version


def test_who_knew_a_row_before_its_queue_was_dropped_is_refused(stage: Stage) -> None:
    settings = Settings(name="mail", layout=Layout())
    stage.send()
    knows_no_header = Sight(ROW, 1)
    stage.run(know(knows_no_header, stage.clock.now()))
    stage.run(drop(stage.bob, settings))
    stage.run(open_queue("mail", layout={}, behaviour={}))
    anew = stage.send()
    claimed = stage.run(claim(stage.ann, knows_no_header, Order(2, LEASE, 5)))
    assert claimed.refused == 1
    assert [held.entry.id for taken in claimed.claims for held in taken.held] == [anew.id]


def test_dropping_goes_on_where_it_stopped(stage: Stage) -> None:
    opened = stage.run(open_queue("mail", layout={}, behaviour={}))
    silent = Failing(stage.store, StoreUnavailable("gone"), at=2, of=(Commit,))
    with pytest.raises(StoreUnavailable):
        stage.run(drop(stage.bob, opened.settings), silent)
    assert stage.run(load_settings("mail")) is None
    assert stage.run(list_queues()) == ["mail"]
    stage.run(drop(stage.bob, opened.settings))
    assert stage.run(list_queues()) == []
