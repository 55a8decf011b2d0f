"""What the checkers report of a history, and what they do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue import ids
from astyqueue.ids import LEAST
from astyqueue.model.envelope import MessageId
from tests.simulation.checkers.checkers import (
    a_receipt_is_lost_for_a_reason,
    dead_letters_are_kept,
    nothing_comes_back,
    polls_are_cheap,
)
from tests.simulation.checkers.reference_model import ReferenceModel, RowModel
from tests.simulation.engine.history import Delivered, ExpensivePoll, History, Removed, Result, RunRecord, Sent, Settled

ROW = "mail:0:0"


@pytest.mark.parametrize(
    ("found", "repeats", "cleared", "wrong"),
    [(True, True, True, True), (False, False, True, True), (False, True, False, True), (False, True, True, False)],
)
def test_only_a_repeatable_send_that_was_cleared_may_come_after_a_delete_that_found_nothing(
    *, found: bool, repeats: bool, cleared: bool, wrong: bool
) -> None:
    history = History()
    sent = history.send(began=0)
    sent.message, sent.repeats, sent.result, sent.answered = MessageId(ROW, 0, LEAST), repeats, Result.DONE, 9
    if cleared:
        history.removed.append(Removed("clear", ROW, began=1, answered=2, result=Result.DONE))
    history.removed.append(Removed("delete", ROW, began=3, ids=[LEAST], answered=4, result=Result.DONE, found=found))
    history.delivered.append(
        Delivered(sent.number, LEAST, attempt=1, nonce=b"", claimed=10, answered=11, client_name="consumer")
    )
    assert bool(list(nothing_comes_back(RunRecord(history, ReferenceModel(2, ROW), 0)))) is wrong


@pytest.mark.parametrize(("policy", "wrong"), [("replace", False), ("keep", True)])
def test_an_ack_may_be_too_late_when_another_took_the_place_of_a_message_whose_send_had_an_unknown_outcome(
    policy: str, *, wrong: bool
) -> None:
    history = History()
    sent = history.send(began=0, key="welcome", unique="keep")
    history.send(began=1, key="welcome", unique=policy).result = Result.DONE
    history.delivered.append(
        Delivered(sent.number, LEAST, attempt=1, nonce=b"", claimed=10, answered=11, client_name="consumer")
    )
    ack = Settled(sent.number, LEAST, "ack", b"", began=12, unknowns=0)
    ack.answer(13, unknowns=0, lost=True)
    history.settled.append(ack)
    assert bool(list(a_receipt_is_lost_for_a_reason(RunRecord(history, ReferenceModel(2, ROW), 0)))) is wrong


@pytest.mark.parametrize(
    ("row", "answered", "result", "wrong"),
    [
        (ROW, 30, Result.DONE, False),
        (ROW, 9, Result.DONE, True),
        (ROW, 9, Result.UNKNOWN, False),
        ("mail:1:0", 30, Result.DONE, True),
    ],
)
def test_only_a_clear_of_its_row_that_was_not_over_before_the_claim_takes_a_dead_letter_away(
    row: str, answered: int, result: Result, *, wrong: bool
) -> None:
    history, model = History(), ReferenceModel(2, ROW)
    model.rows = {ROW: RowModel(claims={LEAST: {b"nonce"}}), "mail:1:0": RowModel()}
    history.delivered.append(
        Delivered(0, LEAST, attempt=1, nonce=b"nonce", claimed=10, answered=11, client_name="consumer")
    )
    rejected = Settled(0, LEAST, "reject", b"nonce", began=12, unknowns=0)
    rejected.answer(13, unknowns=0, lost=False)
    history.settled.append(rejected)
    history.removed.append(Removed("clear", row, began=1, answered=answered, result=result))
    assert bool(list(dead_letters_are_kept(RunRecord(history, model, 0)))) is wrong


def test_of_the_tombstones_beyond_the_head_those_count_that_the_process_had_itself() -> None:
    history = History()
    dug = [ids.first_at(moment) for moment in range(1, 15)]
    history.expensive_polls.append(ExpensivePoll("consumer", ROW, 0, frozenset(dug)))
    assert list(polls_are_cheap(RunRecord(history, ReferenceModel(2, ROW), 0))) == []
    history.delivered += [
        Delivered(-1, id_, attempt=1, nonce=b"", claimed=1, answered=2, client_name="consumer") for id_ in dug
    ]
    assert len(list(polls_are_cheap(RunRecord(history, ReferenceModel(2, ROW), 0)))) == 1


def test_a_tombstone_that_is_passed_once_more_than_scans_and_peeks_account_for_is_a_violation() -> None:
    history = History()
    history.expensive_polls.append(ExpensivePoll("consumer", ROW, 7, frozenset()))
    assert "passed 6 times before" in next(polls_are_cheap(RunRecord(history, ReferenceModel(2, ROW), 0)))


class Read(list[Sent]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Sent]:
        self.times += 1
        return super().__iter__()


def test_a_message_without_a_key_costs_no_look_at_all_others() -> None:
    history = History()
    history.sent = Read(
        Sent(number, began=number, result=Result.DONE, message=MessageId(ROW, 0, LEAST)) for number in range(100)
    )
    record = RunRecord(history, ReferenceModel(2, ROW), 0)
    assert not any(record.removed(sent) for sent in history.sent)
    assert history.sent.times == 1
