"""Showing dead letters, putting them back, removing them for good."""

from __future__ import annotations

import pytest

from astyqueue.model.envelope import MessageId
from astyqueue.model.views import DeadFilter, DeadLetter
from astyqueue.protocol.admin.dead_letters import dead_letter, dead_page, matching_page
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import Reject
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.store import Batch, Put
from tests.unit.protocol.stage import LEASE, ROW, Stage


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
    assert shown["at"] == "2026-01-01T00:00:05.000000Z"
    assert (shown["body"], shown["reason"], "raw" in shown) == ("ada", "no such address", False)


def test_only_dead_letters_are_shown_as_such(stage: Stage) -> None:
    assert stage.run(dead_letter(stage.send())) is None
    assert listed(stage) == []


def test_a_message_that_cannot_be_read_is_shown_with_its_bytes(stage: Stage) -> None:
    letter = stage.run(dead_letter(stage.bury_undecodable()))
    assert letter is not None
    assert (letter.kind, letter.raw, letter.body, letter.sent, dict(letter.headers)) == (
        "undecodable",
        b"\x63what is this",
        None,
        None,
        {},
    )
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
    assert letter.problem == "its message column is missing"


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.every_store
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
    claimed = stage.run(claim(stage.ann, RowSnapshot("mail:0:1", 2), ClaimRequest(1, LEASE, 5))).claims
    stage.run(settle(stage.ann, "mail:0:1", SettleRequest(claimed[0].timer, {other.id: Reject("rejected", "", 1)})))
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
def test_a_filter_chooses_by_what_happened_and_by_what_was_sent(
    stage: Stage, where: DeadFilter, expected: list[object]
) -> None:
    stage.bury("early", reason="bounced")
    stage.bury("ada", "bob", reason="Mailbox full")
    stage.bury_undecodable()
    assert bodies(listed(stage, where)) == expected
    chosen = stage.run(matching_page([ROW], 1, where=where))
    assert chosen.ids == [letter.id for letter in listed(stage, where)]


@pytest.mark.every_store
def test_a_filter_chooses_by_when_it_died_from_the_first_moment_and_up_to_the_second(stage: Stage) -> None:
    moments = []
    for body in ("a", "b", "c"):
        moments.append(stage.clock.now())
        stage.bury(body)
        stage.clock.advance(60)
    assert bodies(listed(stage, DeadFilter(since=moments[1]))) == ["b", "c"]
    assert bodies(listed(stage, DeadFilter(until=moments[1]))) == ["a"]
    assert bodies(listed(stage, DeadFilter(since=moments[1], until=moments[2]))) == ["b"]
