"""Showing dead letters, putting them back, removing them for good."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.ids import LEAST
from astyqueue.model.message import MessageId
from astyqueue.model.views import DeadFilter, DeadLetter, RedriveReport
from astyqueue.protocol.claim import claim
from astyqueue.protocol.columns import Type
from astyqueue.protocol.dead import chosen_page, dead_letter, dead_page, purge, redrive
from astyqueue.protocol.picking import Order
from astyqueue.protocol.raising import TRIES
from astyqueue.protocol.remove import delete
from astyqueue.protocol.settle import Reject, settle
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Commit
from astyqueue.store import Batch, Put
from astyqueue.testing import Failing, History, World, explore
from tests.unit.protocol.stage import LEASE, ROW, Meddling, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def listed(stage: Stage, where: DeadFilter | None = None, *, limit: int = 100) -> list[DeadLetter]:
    """All dead letters that fit, page by page."""
    letters: list[DeadLetter] = []
    after: MessageId | None = None
    while True:
        page = stage.run(dead_page([ROW], stage.levels, after=after, where=where or DeadFilter(), limit=limit))
        letters += page.letters
        after = page.after
        if after is None:
            return letters


def bodies(letters: list[DeadLetter]) -> list[object]:
    return [letter.body for letter in letters]


def bury_undecodable(stage: Stage) -> MessageId:
    sent = stage.put(b"\x63what is this", stage.clock.now())
    assert stage.claim(1) == []
    return sent


def test_a_dead_letter_tells_what_it_was_and_why_it_died(stage: Stage) -> None:
    sent_at = stage.clock.instant
    sent = stage.send("ada")
    [taken] = stage.claim(1)
    stage.clock.advance(5)
    stage.settle(taken, Reject("rejected", "no such address", 2))
    letter = stage.run(dead_letter(sent))
    assert letter is not None
    assert (letter.id, letter.kind, letter.reason, letter.attempts) == (sent, "rejected", "no such address", 2)
    assert (letter.body, letter.key, letter.headers, letter.problem) == ("ada", "ada", {"task": "ada"}, None)
    assert (letter.sent, letter.at, letter.claim) == (sent_at, stage.clock.instant, taken.timer.nonce.hex())
    shown = letter.as_json()
    assert shown["id"] == str(sent)
    assert shown["at"] == "2026-01-01T00:00:05+00:00"
    assert (shown["body"], shown["reason"], "raw" in shown) == ("ada", "no such address", False)


def test_only_dead_letters_are_shown_as_such(stage: Stage) -> None:
    assert stage.run(dead_letter(stage.send())) is None
    assert listed(stage) == []


def test_a_message_that_cannot_be_read_is_shown_with_its_bytes(stage: Stage) -> None:
    letter = stage.run(dead_letter(bury_undecodable(stage)))
    assert letter is not None
    assert (letter.kind, letter.raw, letter.body, letter.sent, dict(letter.headers)) == ("undecodable", b"\x63what is this", None, None, {})
    assert "format byte 63" in (letter.problem or "")
    assert letter.as_json()["raw"] == b"\x63what is this".hex()


def test_a_dead_column_that_cannot_be_read_hides_no_message(stage: Stage) -> None:
    [sent] = stage.bury("ada")
    [dead] = stage.columns(Type.DEAD)
    stage.store.commit(Batch(ROW, (Put(dead.name, b"\x01{"),)), ())
    letter = stage.run(dead_letter(sent))
    assert letter is not None
    assert (letter.kind, letter.body) == ("undecodable", "ada")


def test_a_dead_column_whose_message_is_gone_says_so(stage: Stage) -> None:
    [sent] = stage.bury("ada")
    stage.store.commit(Batch(ROW, deletes=(stage.columns(Type.MESSAGE)[0].name,)), ())
    letter = stage.run(dead_letter(sent))
    assert letter is not None
    assert letter.problem == "its message is gone"


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_hold_every_dead_letter_once(stage: Stage, limit: int) -> None:
    stage.bury("a", "b", "c", "d", "e")
    stage.send("alive")
    assert bodies(listed(stage, limit=limit)) == ["a", "b", "c", "d", "e"]


def test_pages_go_through_rows_and_priorities() -> None:
    stage = Stage(levels=2)
    for priority in (0, 1):
        stage.send(f"p{priority}", priority=priority)
    for taken in stage.claim(2):
        stage.settle(taken, Reject("rejected", "", 1))
    other = stage.send("other", row="mail:0:1")
    claimed = stage.run(claim(stage.ann, Sight("mail:0:1", 2), Order(1, LEASE, 5))).claims
    stage.run(settle(stage.ann, "mail:0:1", claimed[0].timer, {other.id: Reject("rejected", "", 1)}))
    seen: list[object] = []
    after: MessageId | None = None
    while True:
        page = stage.run(dead_page([ROW, "mail:0:1"], 2, after=after))
        seen += bodies(page.letters)
        if (after := page.after) is None:
            break
    assert seen == ["p1", "p0", "other"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (DeadFilter(kind="undecodable"), [None]),
        (DeadFilter(kind="rejected"), ["early", "ada", "bob"]),
        (DeadFilter(reason="MAILBOX"), ["ada", "bob"]),
        (DeadFilter(key="ada"), ["ada"]),
        (DeadFilter(headers={"task": "bob"}), ["bob"]),
        (DeadFilter(headers={"task": "bob"}, key="ada"), []),
        (DeadFilter(reason="mailbox", headers={"task": "early"}), []),
    ],
)
def test_a_filter_chooses_by_what_happened_and_by_what_was_sent(stage: Stage, where: DeadFilter, expected: list[object]) -> None:
    stage.bury("early", reason="bounced")
    stage.bury("ada", "bob", reason="Mailbox full")
    bury_undecodable(stage)
    assert bodies(listed(stage, where)) == expected
    chosen = stage.run(chosen_page([ROW], 1, where=where))
    assert chosen.ids == [letter.id for letter in listed(stage, where)]


def test_a_filter_chooses_by_when_it_died_from_the_first_moment_and_up_to_the_second(stage: Stage) -> None:
    moments = []
    for body in ("a", "b", "c"):
        moments.append(stage.clock.now())
        stage.bury(body)
        stage.clock.advance(60)
    assert bodies(listed(stage, DeadFilter(since=moments[1]))) == ["b", "c"]
    assert bodies(listed(stage, DeadFilter(until=moments[1]))) == ["a"]
    assert bodies(listed(stage, DeadFilter(since=moments[1], until=moments[2]))) == ["b"]


def test_what_is_redriven_is_claimed_again_with_all_its_attempts(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    assert stage.run(redrive(stage.bob, [first])) == RedriveReport(redriven=1)
    [taken] = stage.claim(5)
    assert [(held.entry.id, held.entry.spent, held.envelope.body) for held in taken.held] == [(first.id, 0, "a")]
    assert [letter.id for letter in listed(stage)] == [second]


def test_a_redrive_lowers_the_floor_to_the_timer_it_adds(stage: Stage) -> None:
    [first] = stage.bury("a")
    stage.send("b")
    stage.claim(1)
    stage.clock.set(stage.clock.now() - 3_600 * SECOND)
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
    assert stage.run(redrive(stage.bob, [first, first])).redriven == 1
    assert stage.drain() == [first]


def test_a_dry_run_counts_and_changes_nothing(stage: Stage) -> None:
    sent = stage.bury("a", "b")
    left = bury_undecodable(stage)
    before = stage.header()
    assert stage.run(redrive(stage.bob, [*sent, left], dry_run=True)) == RedriveReport(2, 1, dry_run=True)
    assert stage.header() == before
    assert len(listed(stage)) == 3


def test_what_would_die_again_at_once_is_left_unless_forced(stage: Stage) -> None:
    undecodable = bury_undecodable(stage)
    expired = stage.send("late", expires=stage.clock.now() + SECOND)
    stage.clock.advance(2)
    assert stage.claim(5) == []
    assert [letter.kind for letter in listed(stage)] == ["undecodable", "expired"]
    assert stage.run(redrive(stage.bob, [undecodable, expired])) == RedriveReport(left=2)
    assert stage.run(redrive(stage.bob, [undecodable], force=True)) == RedriveReport(redriven=1)
    assert stage.counts().waiting == 1
    assert stage.claim(5) == []
    assert [letter.kind for letter in listed(stage)] == ["undecodable", "expired"]


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
    for _ in range(TRIES):
        stage.send()
    with pytest.raises(StoreUnavailable):
        stage.run(redrive(stage.bob, [first]), Meddling(stage.store, [partial(stage.claim, 1)] * TRIES))
    assert [letter.id for letter in listed(stage)] == [first]


def test_a_process_with_old_knowledge_is_refused_after_a_redrive(stage: Stage) -> None:
    [first] = stage.bury("a")
    sight = Sight(ROW, 1)
    stage.run(know(sight, stage.clock.now()))
    stage.send()
    stage.run(redrive(stage.bob, [first]))
    assert stage.run(claim(stage.ann, sight, Order(1, LEASE, 5))).refused == 1


def test_purged_letters_are_gone_for_good(stage: Stage) -> None:
    first, second = stage.bury("a", "b")
    waiting = stage.send("c")
    assert stage.run(purge(stage.bob, [first, waiting])) == 1
    assert [letter.id for letter in listed(stage)] == [second]
    assert [column.name.id for column in stage.columns(Type.MESSAGE)] == [second.id, waiting.id]
    assert stage.drain() == [waiting]


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
@pytest.mark.parametrize("command", [lambda by, chosen: redrive(by, chosen), lambda by, chosen: purge(by, chosen)], ids=["redrive", "purge"])
def test_an_unknown_outcome_is_read_back(stage: Stage, command: Callable[..., object], *, applied: bool, others_went_on: bool) -> None:
    sent = stage.bury("a", "b")
    other = stage.bury("c")

    def answerless(request: Commit) -> None:
        if applied:
            stage.store.commit(request.batch, request.expects)
        if others_went_on:
            stage.run(purge(stage.cyd, other))

    class Answerless(Failing):
        def perform(self, request: object) -> object:
            if isinstance(request, Commit) and not self.done:
                self.done = True
                answerless(request)
                raise OutcomeUnknown("no answer")
            return super().perform(request)  # type: ignore[arg-type]

        done = False

    result = stage.run(command(stage.bob, sent), Answerless(stage.store, OutcomeUnknown(""), at=10_000))
    assert result in (2, RedriveReport(2))
    assert len(stage.columns(Type.DEAD)) == (0 if others_went_on else 1)
    assert stage.drain() in (sent, [])


def test_redrives_purges_and_claims_meet_in_every_order() -> None:
    def make_world() -> World:
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
        return World(stage.store, actors, judge)

    explored = explore(make_world, isolated=True, unknowns=1).require_none()
    assert explored.complete
    assert explored.schedules > 20
