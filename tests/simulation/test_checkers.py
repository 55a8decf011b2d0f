"""What the checkers report of a history, and what they do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue import ids
from astyqueue.ids import LEAST, Id, Nonce
from astyqueue.model.envelope import Envelope, MessageId, encode
from astyqueue.protocol.layout.columns import Entry, State, Timer, Type, message_name
from astyqueue.protocol.layout.unique_key import KeyOwner, key_name
from astyqueue.store import Name, Put
from astyqueue.stores import column_name_codec
from astyqueue.units import SECOND
from tests.simulation.cassandra.replica import Ballot, Decision, Replica
from tests.simulation.cassandra.storage import DELETED, LASTING, Cell
from tests.simulation.checkers.checkers import (
    a_receipt_is_lost_for_a_reason,
    dead_letters_are_kept,
    nothing_comes_back,
    nothing_sent_is_lost,
    polls_are_cheap,
)
from tests.simulation.checkers.groups import a_group_comes_in_order, one_of_a_group_is_under_way
from tests.simulation.checkers.keys import no_older_value_is_delivered, one_message_has_a_key
from tests.simulation.checkers.reference_model import ReferenceModel, RowModel, Turn
from tests.simulation.engine.event_loop import EventLoop, SkewedClock
from tests.simulation.engine.history import Delivered, ExpensivePoll, History, Removed, Result, RunRecord, Sent, Settled

ROW = "mail:0:0"
HOME = "mail:home:0"
OLDER, NEWER = (ids.first_at(moment) for moment in (1, 2))


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


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (RowModel(replaced={LEAST}, gone={LEAST}), False),
        (RowModel(superseded={LEAST}, gone={LEAST}), False),
        (RowModel(superseded={LEAST}), True),
        (RowModel(gone={LEAST}), True),
    ],
    ids=["replaced", "superseded and deleted", "superseded and still there", "deleted"],
)
def test_an_ack_may_be_too_late_when_a_commit_gave_the_place_of_the_message_to_another_one(
    model: RowModel, *, wrong: bool
) -> None:
    history, rows = History(), ReferenceModel(2, ROW)
    rows.rows[ROW] = model
    sent = history.send(began=0, key="welcome", unique="keep")
    history.send(began=1, key="welcome", unique="supersede").result = Result.DONE
    history.delivered.append(
        Delivered(sent.number, LEAST, attempt=1, nonce=b"", claimed=10, answered=11, client_name="consumer")
    )
    ack = Settled(sent.number, LEAST, "ack", b"", began=12, unknowns=0)
    ack.answer(13, unknowns=0, lost=True)
    history.settled.append(ack)
    assert bool(list(a_receipt_is_lost_for_a_reason(RunRecord(history, rows, 0)))) is wrong


def values_sent(*, second_began: int) -> History:
    """Two values of one key, the first sent from 0 to 10."""
    history = History()
    for began, answered, id_ in ((0, 10, OLDER), (second_began, second_began + 5, NEWER)):
        sent = history.send(began, key="ACME", unique="supersede")
        sent.message, sent.result, sent.answered = MessageId(ROW, 0, id_), Result.DONE, answered
    return history


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (RowModel(), True),
        (RowModel(replaced={OLDER}), False),
        (RowModel(superseded={OLDER}), False),
        (RowModel(superseded={NEWER}), True),
    ],
    ids=["no commit", "replaced", "superseded", "the other superseded"],
)
def test_a_message_has_lost_its_key_and_its_place_only_if_a_commit_shows_it(model: RowModel, *, wrong: bool) -> None:
    history, rows = values_sent(second_began=20), ReferenceModel(2, ROW)
    rows.rows[ROW] = model
    record = RunRecord(history, rows, 0)
    assert bool(list(one_message_has_a_key(record))) is wrong
    lost = [wrong for wrong in nothing_sent_is_lost(record) if wrong.startswith("message 0")]
    assert bool(lost) is wrong


@pytest.mark.parametrize(
    ("second_began", "claimed", "died", "wrong"),
    [(20, 26, False, True), (20, 25, False, False), (5, 26, False, False), (20, 26, True, False)],
    ids=["after the newer send", "during it", "sent at the same time", "redriven"],
)
def test_no_older_value_is_claimed_once_a_newer_one_is_sent(
    second_began: int, claimed: int, *, died: bool, wrong: bool
) -> None:
    history, rows = values_sent(second_began=second_began), ReferenceModel(2, ROW)
    rows.rows[ROW] = RowModel(died={OLDER} if died else set())
    history.delivered.append(
        Delivered(0, OLDER, attempt=1, nonce=b"", claimed=claimed, answered=99, client_name="consumer")
    )
    assert bool(list(no_older_value_is_delivered(RunRecord(history, rows, 0)))) is wrong


def of_a_group(*turns: Turn) -> RunRecord:
    """Two messages of one group, the older of which was sent first, and when they were under way."""
    history, rows = History(), ReferenceModel(2, ROW)
    for number, id_ in enumerate((OLDER, NEWER)):
        sent = history.send(began=10 * number, group="a")
        sent.message, sent.result, sent.answered = MessageId(ROW, 0, id_), Result.DONE, 10 * number + 5
    rows.rows[ROW] = RowModel(turns=list(turns))
    return RunRecord(history, rows, 0)


def test_of_a_group_a_message_begins_only_when_the_one_before_it_has_ended() -> None:
    begins, ends = Turn(1, begins=True, id=OLDER), Turn(2, begins=False, id=OLDER)
    at_once, after = Turn(2, begins=True, id=NEWER), Turn(3, begins=True, id=NEWER)
    assert list(one_of_a_group_is_under_way(of_a_group(begins, ends, after))) == []
    assert list(one_of_a_group_is_under_way(of_a_group(begins, at_once, ends))) == [], "in the commit of the ack"
    [wrong] = one_of_a_group_is_under_way(of_a_group(begins, after))
    assert wrong.endswith("of group a are under way at once")


@pytest.mark.parametrize(
    ("at", "answered", "wrong"),
    [(2 * SECOND, 5, True), (SECOND // 2, 5, False), (2 * SECOND, SECOND, False), (4 * SECOND, 5, False)],
    ids=["later first", "before a late scan was due", "the earlier landed late", "in order"],
)
def test_of_a_group_no_message_overtakes_one_that_landed_in_time(at: int, answered: int, *, wrong: bool) -> None:
    assert bool(list(a_group_comes_in_order(handed_out(of_a_group(), at, answered=answered)))) is wrong


@pytest.mark.parametrize(
    ("began", "clock_error", "wrong"),
    [
        (-SECOND, 2 * SECOND, False),
        (-SECOND * 10, 2 * SECOND, True),
        (SECOND, SECOND // 10, False),
        (SECOND, SECOND // 100, True),
        (SECOND, -SECOND, True),
        (3 * SECOND, SECOND, True),
    ],
    ids=["scanned its id before", "not so far", "late scanned it", "hardly ahead", "behind", "after it was handed out"],
)
def test_of_a_group_a_message_may_land_late_where_a_clock_that_is_ahead_scanned_its_id(
    began: int, clock_error: int, *, wrong: bool
) -> None:
    record = handed_out(of_a_group(), 2 * SECOND, answered=5)
    record.history.claims(began, clock_error)
    assert bool(list(a_group_comes_in_order(record))) is wrong


def handed_out(record: RunRecord, newer: int, *, answered: int) -> RunRecord:
    """The older message, which landed at `answered`, was handed out after three seconds, and the newer one then."""
    record.history.sent[0].answered, record.history.sent[1].began = answered, SECOND
    for number, (id_, claimed) in enumerate(((OLDER, 3 * SECOND), (NEWER, newer))):
        record.history.delivered.append(
            Delivered(number, id_, attempt=1, nonce=b"", claimed=claimed, answered=claimed, client_name="consumer")
        )
    return record


class Commits:
    """Commits of one row, in the order in which the model of it learns of them."""

    def __init__(self) -> None:
        self.model, self.stamp = ReferenceModel(1, HOME), 0
        self.replica = Replica(0, SkewedClock(EventLoop(), 0))

    def commit(self, *puts: Put, deletes: tuple[Name, ...] = ()) -> list[str]:
        """What is wrong with one more commit."""
        self.stamp += 1
        ballot = Ballot(self.stamp, 0)
        changes = {column_name_codec.encode(put.name): Cell(self.stamp, LASTING, 0, put.value) for put in puts}
        changes |= {column_name_codec.encode(name): Cell(self.stamp, DELETED, 0, b"") for name in deletes}
        before = len(self.model.violations)
        self.model.record_accept(HOME, Decision(ballot, changes, ballot), self.replica)
        return [wrong.partition(": ")[2] for wrong in self.model.violations[before:]]

    def value(self, id_: Id) -> tuple[Put, Put]:
        """A message with the key, and the key that is its own."""
        envelope = Envelope(sent=0, due=0, headers=None, expires=None, lease=None, attempts=None, key="ACME", body=None)
        message = Put(message_name(0, id_), encode(envelope._replace(unique=True), b"1"))
        return message, Put(key_name("ACME"), KeyOwner("ACME", 0, id_).encode())


def timer_of(id_: Id, *, superseded: bool = False, nonce: bytes = b"n" * 8, state: State = State.LEASED) -> Put:
    """A timer that lists one message."""
    name = Name(Type.TIMER, 0, ids.first_at(10**15), state)
    timer = Timer(name, (Entry(id_, 0, 0, superseded),), Nonce(nonce), "taker", 2)
    return Put(name, timer.encode())


def test_a_leased_message_loses_its_key_only_if_its_timer_says_so() -> None:
    row = Commits()
    assert row.commit(*row.value(OLDER)) == row.commit(timer_of(OLDER)) == []
    assert row.commit(*row.value(NEWER)) == [
        f"{ids.text(OLDER)} lives, and its unique key is not its own: another message could have the key as well"
    ]


def test_a_message_is_superseded_only_by_the_commit_that_gives_its_key_away() -> None:
    row = Commits()
    assert row.commit(*row.value(OLDER)) == row.commit(timer_of(OLDER)) == []
    assert row.commit(timer_of(OLDER, superseded=True)) == [
        f"{ids.text(OLDER)} is superseded, and no message takes its key"
    ]


@pytest.mark.parametrize(
    ("again", "wrong"),
    [
        (timer_of(OLDER, superseded=True), []),
        (timer_of(OLDER), ["was superseded, and its timer no longer says so"]),
        (timer_of(OLDER, superseded=True, nonce=b"m" * 8), ["is superseded, and given back or delivered again"]),
        (timer_of(OLDER, superseded=True, state=State.SNOOZED), ["is superseded, and given back or delivered again"]),
    ],
    ids=["extended", "forgotten", "claimed again", "given back"],
)
def test_a_superseded_message_stays_so_under_its_lease(again: Put, wrong: list[str]) -> None:
    row = Commits()
    assert row.commit(*row.value(OLDER)) == row.commit(timer_of(OLDER)) == []
    assert row.commit(*row.value(NEWER), timer_of(OLDER, superseded=True)) == []
    kept = timer_of(OLDER).name
    assert row.commit(again, deletes=() if again.name == kept else (kept,)) == [
        f"{ids.text(OLDER)} {each}" for each in wrong
    ]


@pytest.mark.parametrize("frees", [True, False])
def test_the_end_of_a_superseded_message_leaves_the_key_to_the_newer_one(*, frees: bool) -> None:
    row = Commits()
    assert row.commit(*row.value(OLDER)) == row.commit(timer_of(OLDER)) == []
    assert row.commit(*row.value(NEWER), timer_of(OLDER, superseded=True)) == []
    freed = (key_name("ACME"),) if frees else ()
    wrong = row.commit(deletes=(message_name(0, OLDER), timer_of(OLDER).name, *freed))
    assert bool(wrong) is frees


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
