"""Clearing a row, and dropping a queue."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.model.envelope import MessageId
from astyqueue.model.schedule import Template
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.admin.delete import clear, delete, drop
from astyqueue.protocol.admin.settings import list_queues, load_settings, open_queue
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.rows import QUEUES, settings_row
from astyqueue.protocol.row.header_commit import CommitPlan, RemovalPlan
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.scheduling.fire import RowSchedules
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, save
from astyqueue.protocol.settling.outcomes import Reject, Release
from astyqueue.protocol.steps import Commit, Read, Request
from astyqueue.store import Slice
from astyqueue.testing import Failing, Faulty, Recording
from astyqueue.triggers import Every, Triggers
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.every_store
def test_clear_removes_what_waits_is_leased_delayed_paused_or_dead(stage: Stage) -> None:
    stage.bury("dead")
    leased, backing_off = stage.send_many(2)
    [taken] = stage.claim(2)
    stage.settle(taken, Release(stage.clock.now() + 2 * LEASE, 1), backing_off)
    stage.send(delay=3_600)
    stage.send()
    assert stage.run(clear(stage.bob, ROW, 1)) == 5
    assert stage.kinds() == {Type.LOCK}
    assert not stage.is_held(taken, leased)
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


def test_a_message_sent_behind_the_scan_of_a_clear_stays(stage: Stage) -> None:
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
    stage.bury("high")
    low = stage.send("landed late", delay=-5)

    def die() -> None:
        for taken in stage.claim(1):
            stage.settle(taken, Reject("rejected", "", 1))
        assert [letter.id for letter in stage.dead()] == [low]

    assert stage.run(clear(stage.bob, ROW, 1), Meddling(stage.store, [lambda: None, die])) == 2
    assert stage.kinds() == {Type.LOCK}


def test_what_landed_behind_the_head_is_cleared_too(stage: Stage) -> None:
    stage.send()
    stage.drain()
    stage.send("landed late", delay=-5)
    assert stage.run(clear(stage.bob, ROW, 1)) == 1


@pytest.mark.every_store
def test_commits_of_a_clear_are_bounded(stage: Stage) -> None:
    for _ in range(3):
        stage.send_many(100)
        for taken in stage.claim(100):
            stage.settle(taken, Reject("rejected", "", 1))
    stage.send_many(300)
    stage.claim(150)
    recording = Recording(stage.store)
    assert stage.run(clear(stage.bob, ROW, 1), recording) == 600
    sizes = [
        len(asked.batch.puts) + len(asked.batch.deletes) for asked in recording.requests if isinstance(asked, Commit)
    ]
    assert max(sizes) <= 202
    assert len(sizes) == 3 + 1 + 1, "three hundred dead letters, what is in hand, and what waits; none was refused"


@pytest.mark.parametrize(("at", "applied"), list(itertools.product([1, 2, 3], [True, False])))
def test_a_clear_with_an_unknown_outcome_clears_all_and_counts_right(stage: Stage, at: int, *, applied: bool) -> None:
    stage.bury("dead")
    stage.send_many(2)
    stage.claim(1)
    unknown = Failing(stage.store, OutcomeUnknown("no answer"), at=at, of=(Commit,), applied=applied)
    assert stage.run(clear(stage.bob, ROW, 1), unknown) == 3
    assert stage.kinds() == {Type.LOCK}


@pytest.mark.every_store
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
    knows_no_header = RowSnapshot(ROW, 1)
    stage.run(load_snapshot(knows_no_header, stage.clock.now()))
    stage.run(drop(stage.bob, settings))
    stage.run(open_queue("mail", layout={}, behaviour={}))
    anew = stage.send()
    claimed = stage.run(claim(stage.ann, knows_no_header, ClaimRequest(2, LEASE, 5)))
    assert claimed.refused == 1
    assert [held.entry.id for taken in claimed.claims for held in taken.held] == [anew.id]


def test_a_schedule_that_fires_while_its_queue_is_dropped_leaves_no_message(stage: Stage) -> None:
    opened = stage.run(open_queue("mail", layout={}, behaviour={}))
    handle = ScheduleHandle(stage.ann, "mail:home:0", "digest")
    stage.run(save(handle, RequestedSchedule(Every("1m"), Template(b"1")), replaces=False))

    def fire() -> None:
        assert len(stage.run(RowSchedules(stage.bob, Triggers()).fire(RowSnapshot(handle.row, 1)))) == 1

    assert stage.run(drop(stage.cyd, opened.settings), Meddling(stage.store, [fire])) == 1
    assert stage.kinds(handle.row) == {Type.LOCK}


def test_dropping_goes_on_where_it_stopped(stage: Stage) -> None:
    opened = stage.run(open_queue("mail", layout={}, behaviour={}))
    silent = Failing(stage.store, StoreUnavailable("gone"), at=2, of=(Commit,))
    with pytest.raises(StoreUnavailable):
        stage.run(drop(stage.bob, opened.settings), silent)
    assert stage.run(load_settings("mail")) is None
    assert stage.run(list_queues()) == ["mail"]
    stage.run(drop(stage.bob, opened.settings))
    assert stage.run(list_queues()) == []


def test_a_message_that_dies_between_the_reads_of_a_clear_is_cleared(stage: Stage) -> None:
    stage.send()

    class Between(Faulty):
        """Before waiting messages are read, another process rejects the only one."""

        begun = False

        def perform(self, request: Request) -> object:
            if not self.begun and isinstance(request, Read) and request.wanted[0] == _first_waiting(request):
                self.begun = True
                [taken] = stage.claim(1)
                stage.settle(taken, Reject("rejected", "no", 1))
            return super().perform(request)

    assert stage.run(clear(stage.bob, ROW, 1), Between(stage.store)) == 1
    assert stage.kinds() == {Type.LOCK}


def _first_waiting(request: Read) -> Slice | None:
    first = request.wanted[0]
    return first if isinstance(first, Slice) and first.type == Type.MESSAGE else None


def test_a_commit_that_removes_nothing_is_not_told_as_done_by_what_is_gone(stage: Stage) -> None:
    """All of nothing is gone, whether the commit was applied or not."""
    assert not stage.run(RemovalPlan().was_done(ROW))
    with pytest.raises(TypeError, match="abstract"):
        CommitPlan()  # type: ignore[abstract]  # that is the point


def test_a_clear_ends_beside_a_process_that_commits_between_any_two_of_its_reads(stage: Stage) -> None:
    stage.send("before")
    with pytest.raises(StoreUnavailable, match="gave up after 50 conflicts"):
        stage.run(clear(stage.bob, ROW, 1), Restless(stage))
    assert stage.drain() == []


class Restless(Faulty):
    """Once a message was deleted, another process commits before each read, and leaves no message."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.store)
        self._stage = stage
        self._restless = False
        self._reads = 0

    def perform(self, request: Request) -> object:
        if self._restless and isinstance(request, Read):
            self._reads += 1
            assert self._reads < 2_000, "it goes on for ever"
            self._stage.run(delete(self._stage.cyd, self._stage.send()))
        self._restless = self._restless or isinstance(request, Commit)
        return super().perform(request)
