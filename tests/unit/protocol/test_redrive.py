"""Putting dead letters back, and removing them for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.ids import LEAST
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import RedriveReport
from astyqueue.protocol.admin.dead_letters import purge, redrive
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.row.header_commit import COMMIT_TRIES
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.steps import Client, Commit, Request, Steps
from astyqueue.store import Committed, Store
from astyqueue.testing import Faulty, Recording
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.explorer import explore
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage, Unanswered

Command = Callable[[Client, Sequence[MessageId]], Steps[int]]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def redriven(process: Client, chosen: Sequence[MessageId]) -> Steps[int]:
    return (yield from redrive(process, chosen)).redriven


class Away(Faulty):
    """Leaves the first commit unanswered, not carried out so far; after `reads` more reads it answers no more."""

    def __init__(self, store: Store, reads: int) -> None:
        super().__init__(store)
        self.reads_left = reads
        self.unanswered: Commit | None = None

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and self.unanswered is None:
            self.unanswered = request
            message = "no answer"
            raise OutcomeUnknown(message)
        if self.unanswered is not None:
            self.reads_left -= 1
            if self.reads_left < 0:
                message = "away"
                raise StoreUnavailable(message)
        return super().perform(request)


@pytest.mark.every_store
def test_what_is_redriven_is_claimed_again_with_all_its_attempts(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    assert stage.run(redrive(stage.bob, [first])) == RedriveReport(redriven=1)
    [taken] = stage.claim(5)
    assert [(held.entry.id, held.entry.spent, held.envelope.body) for held in taken.held] == [(first.id, 0, "a")]
    assert [letter.id for letter in stage.dead()] == [second]


def test_a_redrive_lowers_the_floor_to_the_timer_it_adds(stage: Stage) -> None:
    [first] = stage.bury("a")
    stage.send("b")
    stage.claim(1)
    stage.clock.set(stage.clock.now() - 1_800 * SECOND)
    stage.run(redrive(stage.bob, [first]))
    header = stage.header()
    assert header is not None
    assert header.floor <= stage.clock.now()
    assert [held.entry.id for taken in stage.claim(5, stage.cyd) for held in taken.held] == [first.id]


def test_a_redrive_of_what_is_no_dead_letter_does_nothing(stage: Stage) -> None:
    waiting = stage.send()
    assert stage.run(redrive(stage.bob, [waiting, MessageId("mail:9:9", 0, LEAST)])) == RedriveReport()
    assert stage.run(redrive(stage.bob, [])) == RedriveReport()
    assert stage.drain() == [waiting]


def test_a_dead_letter_named_twice_is_redriven_once(stage: Stage) -> None:
    [first] = stage.bury("a")
    assert stage.run(redrive(stage.bob, [first] * 201, dry_run=True)).redriven == 1
    assert stage.run(redrive(stage.bob, [first] * 201)).redriven == 1
    assert stage.drain() == [first]


def test_a_redrive_and_a_purge_expect_the_header_and_each_dead_column_as_read(stage: Stage) -> None:
    first, second, third = stage.bury("a", "b", "c")
    for command, chosen in ((redriven, [first, second]), (purge, [third])):
        before = {column.name: column.value for column in (*stage.columns(Type.LOCK), *stage.columns(Type.DEAD))}
        recording = Recording(stage.store)
        stage.run(command(stage.bob, chosen), recording)
        [asked] = [request for request in recording.requests if isinstance(request, Commit)]
        removed = {name for name in asked.batch.deletes if name.type == Type.DEAD}
        assert dict(asked.expects) == {name: before[name] for name in (HEADER, *removed)}
        assert len(removed) == len(chosen)


def test_a_dry_run_counts_and_changes_nothing(stage: Stage) -> None:
    sent = stage.bury("a", "b")
    left = stage.bury_undecodable()
    before = stage.header()
    assert stage.run(redrive(stage.bob, [*sent, left], dry_run=True)) == RedriveReport(2, 1, dry_run=True)
    assert stage.header() == before
    assert len(stage.dead()) == 3


def test_what_would_die_again_at_once_is_left_unless_forced(stage: Stage) -> None:
    undecodable = stage.bury_undecodable()
    expired = stage.send("late", expires=stage.clock.now() + SECOND)
    stage.clock.advance(2)
    assert stage.claim(5) == []
    assert [letter.kind for letter in stage.dead()] == ["undecodable", "expired"]
    assert stage.run(redrive(stage.bob, [undecodable, expired])) == RedriveReport(left=2)
    assert stage.run(redrive(stage.bob, [undecodable], force=True)) == RedriveReport(redriven=1)
    assert stage.counts().waiting == 1
    assert stage.claim(5) == []
    assert [letter.kind for letter in stage.dead()] == ["undecodable", "expired"]


def test_many_are_redriven_in_commits_of_two_hundred(stage: Stage) -> None:
    sent = [one for _ in range(5) for one in stage.bury(*map(str, range(90)))]
    counting = Meddling(stage.store, [])
    assert stage.run(redrive(stage.bob, sent), counting).redriven == 450
    assert counting.commits == 3
    assert stage.drain() == sorted(sent)


def test_a_claim_between_reads_and_commit_does_not_spoil_a_redrive(stage: Stage) -> None:
    [first] = stage.bury("a")
    second = stage.send("b")
    meddling = Meddling(stage.store, [partial(stage.claim, 1)])
    assert stage.run(redrive(stage.bob, [first]), meddling).redriven == 1
    assert meddling.commits == 2
    assert stage.counts().in_flight == 1
    assert stage.drain() == [first]
    assert second.id in {column.name.id for column in stage.columns(Type.MESSAGE)}


def test_of_two_redrives_of_one_letter_one_does_it(stage: Stage) -> None:
    [first] = stage.bury("a")
    meddling = Meddling(stage.store, [lambda: stage.run(redrive(stage.cyd, [first]))])
    assert stage.run(redrive(stage.bob, [first]), meddling).redriven == 0
    assert stage.drain() == [first]
    assert stage.drain() == []


def test_a_letter_that_was_deleted_meanwhile_is_not_redriven(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    meddling = Meddling(stage.store, [lambda: stage.run(delete(stage.cyd, first))])
    assert stage.run(redrive(stage.bob, [first, second]), meddling).redriven == 1
    assert stage.drain() == [second]


def test_a_redrive_beside_processes_that_never_rest_ends_with_an_error(stage: Stage) -> None:
    [first] = stage.bury("a")
    for _ in range(COMMIT_TRIES):
        stage.send()
    with pytest.raises(StoreUnavailable):
        stage.run(redrive(stage.bob, [first]), Meddling(stage.store, [partial(stage.claim, 1)] * COMMIT_TRIES))
    assert [letter.id for letter in stage.dead()] == [first]


def test_a_process_with_old_knowledge_is_refused_after_a_redrive(stage: Stage) -> None:
    [first] = stage.bury("a")
    snapshot = RowSnapshot(ROW, 1)
    stage.run(load_snapshot(snapshot, stage.clock.now()))
    stage.send()
    stage.run(redrive(stage.bob, [first]))
    assert stage.run(claim(stage.ann, snapshot, ClaimRequest(1, LEASE, 5))).refused == 1


def test_purged_letters_are_gone_for_good(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    waiting = stage.send("c")
    assert stage.run(purge(stage.bob, [first, waiting])) == 1
    assert [letter.id for letter in stage.dead()] == [second]
    assert [column.name.id for column in stage.columns(Type.MESSAGE)] == [second.id, waiting.id]
    assert stage.drain() == [waiting]


@pytest.mark.every_store
def test_many_are_purged_in_commits_of_a_hundred(stage: Stage) -> None:
    sent = [one for _ in range(3) for one in stage.bury(*map(str, range(50)))]
    counting = Meddling(stage.store, [])
    assert stage.run(purge(stage.bob, sent), counting) == 150
    assert counting.commits == 2
    assert stage.kinds() == {Type.LOCK}


def test_a_letter_that_was_redriven_meanwhile_is_not_purged(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    meddling = Meddling(stage.store, [lambda: stage.run(redrive(stage.cyd, [first]))])
    assert stage.run(purge(stage.bob, [first, second]), meddling) == 1
    assert stage.drain() == [first]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("others_went_on", [True, False])
@pytest.mark.parametrize("command", [redriven, purge], ids=["redrive", "purge"])
@pytest.mark.every_store
def test_an_unknown_outcome_is_read_back(
    stage: Stage, command: Command, *, applied: bool, others_went_on: bool
) -> None:
    sent = stage.bury("a", "b")
    other = stage.bury("c")

    def instead(request: Commit) -> None:
        if applied:
            stage.store.commit(request.batch, request.expects)
        if others_went_on:
            stage.run(purge(stage.cyd, other))

    assert stage.run(command(stage.bob, sent), Unanswered(stage.store, instead)) == 2
    assert len(stage.columns(Type.DEAD)) == (0 if others_went_on else 1)
    assert stage.drain() == (sent if command is redriven else [])


@pytest.mark.stores("memory")  # each order is a world of its own, and there are hundreds
def test_redrives_purges_and_claims_meet_in_every_order() -> None:
    def make_world() -> Scenario:
        stage = Stage()
        [first] = stage.bury("a")

        def judge(history: History) -> str | None:
            redriven, purged = history.results["redrive"], history.results["purge"]
            counts = stage.counts()
            if counts.total != (0 if counts.in_flight == counts.waiting == 0 else 1):
                return f"{counts}"
            return None if redriven or purged else "neither was done"

        actors = {
            "redrive": lambda: redrive(stage.bob, [first]),
            "purge": lambda: purge(stage.cyd, [first]),
            "claim": lambda: stage.claiming(1, stage.ann),
        }
        return Scenario(stage.store, actors, judge)

    explored = explore(make_world, isolated=True, unknowns=1).require_none()
    assert explored.complete
    assert explored.schedules > 20


@pytest.mark.parametrize("reads", range(4))
def test_a_redrive_that_may_still_be_carried_out_never_fails_as_if_nothing_was_changed(
    stage: Stage, reads: int
) -> None:
    [dead] = stage.bury("a")
    store = Away(stage.store, reads)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        stage.run(redrive(stage.bob, [dead]), store)
    assert store.unanswered is not None
    assert isinstance(stage.store.commit(store.unanswered.batch, store.unanswered.expects), Committed)
    assert not stage.dead()
