"""Commits that get no answer, are not there when they are read back, and are carried out before the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.ids import Id, first_at
from astyqueue.model.envelope import Envelope, MessageId, encode
from astyqueue.model.message import Unique
from astyqueue.model.schedule import Origin, Policies
from astyqueue.protocol.admin.dead_letters import purge, redrive
from astyqueue.protocol.admin.delete import clear, delete
from astyqueue.protocol.admin.expiry import bury_expired
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest, DeadLettered
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.schedule_commands import backfill, remove, run_now
from astyqueue.protocol.scheduling.schedule_definition import RepeatingSend, RequestedSchedule, save
from astyqueue.protocol.sending.idempotent import IdempotentSender, idempotent_message
from astyqueue.protocol.settling.outcomes import Reject
from astyqueue.protocol.steps import Commit, Request, run
from astyqueue.store import Slice, Store
from astyqueue.testing import Failing, Faulty
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW
from tests.unit.protocol.schedule_table import BODY, MINUTE, Timetable
from tests.unit.protocol.stage import LEASE, Stage, Unanswered
from tests.unit.protocol.stage import ROW as STAGE_ROW

POLICIES = Policies.read(misfire="all", overlap="allow", after_failure="go on")


class Late(Faulty):
    """The first commit has an unknown outcome and is carried out just before the second; `then` happens in between.

    With `before_read` it is carried out before that read after it, if that comes sooner. The first reads it back.
    """

    def __init__(self, store: Store, then: Callable[[], object] = lambda: None, *, before_read: int = 0) -> None:
        super().__init__(store)
        self._then = then
        self._before_read = before_read
        self._commits = self._reads = 0
        self._late: Commit | None = None

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            self._commits += 1
            if self._commits == 1:
                self._late = request
                raise OutcomeUnknown
            self._carry_out()
        elif self._commits:
            self._reads += 1
            if self._reads == self._before_read:
                self._carry_out()
        return super().perform(request)

    def _carry_out(self) -> None:
        late, self._late = self._late, None
        if late:
            super().perform(late)
            self._then()


class LateThenUnreadable(Late):
    """Carried out before the row is read again, but the store becomes unavailable once header and timers were read."""

    def __init__(self, store: Store, then: Callable[[], object]) -> None:
        super().__init__(store, then, before_read=2)

    def perform(self, request: Request) -> object:
        if not isinstance(request, Commit) and self._reads == 3:
            raise StoreUnavailable
        return super().perform(request)


class SecondLost(Late):
    """As `Late`, but the second commit has no answer either: it comes once the first was carried out: refused."""

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Commit) and self._commits == 2:
            raise OutcomeUnknown
        return answer


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def table() -> Timetable:
    return Timetable()


def messages(table: Timetable) -> list[Id]:
    return [column.name.id for column in table.store.read((Slice(ROW, Type.MESSAGE),))[0]]


#: Before the second commit, or before a read between the two.
MOMENTS = pytest.mark.parametrize("before_read", [0, 2, 3, 4, 5, 6])


@MOMENTS
def test_a_claim_carried_out_late_is_handed_out(stage: Stage, before_read: int) -> None:
    """Without that its messages would wait out a lease that no process has, and use up an attempt."""
    message = stage.send()
    late = Late(stage.store, before_read=before_read)
    claimed = stage.run(claim(stage.ann, RowSnapshot(message.row, 1), ClaimRequest(1, LEASE, 1)), late)
    [taken] = claimed.claims
    assert [held.entry.id for held in taken.held] == [message.id]
    assert stage.is_held(taken, message)


def test_a_claim_carried_out_late_is_handed_out_in_rows_that_have_owners_too(stage: Stage) -> None:
    """There a claim gives up after a refusal, because another process works in the row."""
    message = stage.send()
    late, snapshot = Late(stage.store), RowSnapshot(message.row, 1)
    order = ClaimRequest(1, LEASE, 1, yields=True)
    claims = [taken for _ in range(2) for taken in stage.run(claim(stage.ann, snapshot, order), late).claims]
    assert [held.entry.id for taken in claims for held in taken.held] == [message.id]


def test_a_message_delivered_at_most_once_whose_claim_is_carried_out_late_is_handed_out(stage: Stage) -> None:
    now = stage.clock.now()
    message = stage.put(encode(Envelope(now, now, None, {}, None, 0, None, None), b"1"), now)
    claimed = stage.run(claim(stage.ann, RowSnapshot(message.row, 1), ClaimRequest(1, LEASE, 5)), Late(stage.store))
    assert [held.entry.id for held in claimed.at_most_once] == [message.id]


def test_a_claim_carried_out_late_is_taken_although_another_process_has_committed_since(stage: Stage) -> None:
    message, other = stage.send_many(2)
    late = Late(stage.store, lambda: stage.run(delete(stage.cyd, other)))
    claimed = stage.run(claim(stage.ann, RowSnapshot(message.row, 1), ClaimRequest(1, LEASE, 5)), late)
    assert [held.entry.id for taken in claimed.claims for held in taken.held] == [message.id]


@MOMENTS
def test_a_redrive_carried_out_late_is_reported(stage: Stage, before_read: int) -> None:
    sent = stage.bury("a", "b")
    put_back: list[object] = []
    late = Late(stage.store, before_read=before_read)
    report = stage.run(redrive(stage.bob, sent, on_redriven=put_back.extend), late)
    assert (report.redriven, len(put_back)) == (2, 2)


@MOMENTS
def test_a_removal_carried_out_late_is_reported(stage: Stage, before_read: int) -> None:
    def late() -> Late:
        return Late(stage.store, before_read=before_read)

    letters = stage.bury("a", "b")
    assert stage.run(purge(stage.bob, letters), late()) == 2
    assert stage.run(delete(stage.bob, stage.send()), late())
    waiting = stage.send_many(3)
    assert stage.run(clear(stage.bob, waiting[0].row, 1), late()) == 3


def test_a_removal_carried_out_late_is_reported_although_another_process_has_committed_since(stage: Stage) -> None:
    """As it is if the same is found when it is read back."""

    def late() -> Late:
        return Late(stage.store, lambda: stage.run(delete(stage.cyd, stage.send())))

    assert stage.run(purge(stage.bob, stage.bury("a", "b")), late()) == 2
    assert stage.run(delete(stage.bob, stage.send()), late())
    waiting = stage.send_many(3)
    assert stage.run(clear(stage.bob, waiting[0].row, 1), late()) == 3
    assert stage.run(redrive(stage.bob, stage.bury("c")), late()).redriven == 1


@pytest.mark.parametrize("before_read", range(2, 10))
@pytest.mark.parametrize(("waiting", "dead"), [(250, 0), (0, 150)])
def test_a_clear_one_commit_of_which_is_carried_out_late_leaves_nothing(
    stage: Stage, before_read: int, waiting: int, dead: int
) -> None:
    stage.send_many(waiting)
    stage.bury(*map(str, range(dead)))
    removed: list[MessageId] = []
    late = Late(stage.store, before_read=before_read)
    assert stage.run(clear(stage.bob, STAGE_ROW, 1, removed.extend), late) == len(removed) == waiting + dead
    assert stage.kinds() == {Type.LOCK}


class LateWhileAnotherSends(Late):
    """As `Late`, and before another of these reads `sends` is called."""

    def __init__(self, store: Store, sends: Callable[[], object], *, before_read: int, sent_before: int) -> None:
        super().__init__(store, before_read=before_read)
        self._sends = sends
        self._sent_before = sent_before

    def perform(self, request: Request) -> object:
        if self._commits and not isinstance(request, Commit) and self._reads + 1 == self._sent_before:
            self._sends()
        return super().perform(request)


@pytest.mark.parametrize("before_read", [3, 4, 5])
@pytest.mark.parametrize("sent_before", [6, 7, 8])
def test_a_clear_one_commit_of_which_is_carried_out_late_reports_it_although_a_message_comes_meanwhile(
    stage: Stage, before_read: int, sent_before: int
) -> None:
    stage.send_many(3)
    removed: list[MessageId] = []
    late = LateWhileAnotherSends(stage.store, stage.send, before_read=before_read, sent_before=sent_before)
    stage.run(clear(stage.bob, STAGE_ROW, 1, removed.extend), late)
    assert len(removed) == 4 - len(stage.columns(Type.MESSAGE))


@MOMENTS
def test_a_clear_one_commit_of_which_is_carried_out_late_leaves_no_letter_that_died_before_the_next(
    stage: Stage, before_read: int
) -> None:
    stage.bury("a", "b")
    before = stage.clock.now() - 5 * SECOND
    stage.put(stage.value("old", due=before), before)
    stage.clock.advance("30s")

    def dies() -> None:
        [taken] = stage.claim(1, stage.cyd)
        stage.settle(taken, Reject("rejected", "x", 1))

    stage.run(clear(stage.bob, STAGE_ROW, 1), Late(stage.store, dies, before_read=before_read))
    assert stage.kinds() == {Type.LOCK}


@MOMENTS
def test_expired_messages_that_are_buried_late_are_reported(stage: Stage, before_read: int) -> None:
    message = stage.send()
    stage.clock.advance("2h")
    buried = list[DeadLettered]()
    burial = bury_expired(stage.bob, message.row, 1, 3_600 * SECOND, buried.extend)
    stage.run(burial, Late(stage.store, before_read=before_read))
    assert [one.entry.id for one in buried] == [message.id]


def test_expired_messages_that_are_buried_late_are_reported_although_another_process_has_committed_since(
    stage: Stage,
) -> None:
    message = stage.send()
    stage.clock.advance("2h")
    late = Late(stage.store, lambda: stage.run(delete(stage.cyd, stage.send())))
    buried = list[DeadLettered]()
    stage.run(bury_expired(stage.bob, message.row, 1, 3_600 * SECOND, buried.extend), late)
    assert [one.entry.id for one in buried] == [message.id]


@MOMENTS
def test_a_run_on_request_whose_commit_is_carried_out_late_is_sent_once(table: Timetable, before_read: int) -> None:
    table.make()
    schedule = run(run_now(table.handle("digest")), Late(table.births, before_read=before_read))
    assert [schedule.run.id if schedule.run else None] == messages(table)
    assert table.there().fired == 1


def test_whether_a_run_on_request_was_sent_is_unknown_while_its_traces_cannot_be_read(table: Timetable) -> None:
    table.make()
    with pytest.raises(OutcomeUnknown):
        run(run_now(table.handle("digest")), LateThenUnreadable(table.births, lambda: table.work("bob")))


def test_a_backfill_carried_out_late_makes_no_second_receipt(table: Timetable) -> None:
    table.make()
    table.clock.advance("3m")
    taken: list[Id] = []

    def claims(name: str) -> None:
        taken.extend(held.entry.id for one in table.do(name).claims for held in one.held)

    run(
        backfill(table.handle("digest"), [table.anchored + MINUTE]),
        Late(table.births, lambda: claims("bob")),
    )
    claims("cyd")
    assert len(taken) == len(set(taken)) == 1


def test_a_backfill_carried_out_late_sends_no_message_again_after_its_ack(table: Timetable) -> None:
    table.make()
    table.clock.advance("3m")
    run(backfill(table.handle("digest"), [table.anchored + MINUTE]), Late(table.births, lambda: table.work("bob")))
    assert table.work("cyd") == []


@MOMENTS
def test_a_schedule_that_was_created_late_is_not_reported_as_taken(table: Timetable, before_read: int) -> None:
    wanted = RequestedSchedule(Every("1m", delay="1m"), BODY, POLICIES)
    late = Late(table.births, before_read=before_read)
    assert run(save(table.handle("digest"), wanted, replaces=False), late).name == "digest"


@MOMENTS
def test_a_schedule_that_was_removed_late_is_returned(table: Timetable, before_read: int) -> None:
    table.make()
    removal = run(remove(table.handle("digest")), Late(table.births, before_read=before_read))
    assert removal.schedule
    assert removal.schedule.name == "digest"


@MOMENTS
@pytest.mark.parametrize("unique", [None, Unique.KEEP, Unique.REPLACE])
def test_a_repeating_message_that_was_stored_late_was_sent(
    table: Timetable, unique: Unique | None, before_read: int
) -> None:
    wanted = RequestedSchedule(Every("1m"), replace(BODY, key="k"), POLICIES, Origin.MESSAGE)
    late = Late(table.births, before_read=before_read)
    result = run(RepeatingSend(table.handle("k"), wanted, unique).carry_out(), late)
    assert (result.sent, [result.id.id]) == (True, messages(table))


def test_of_two_commits_without_an_answer_the_one_that_was_carried_out_is_reported(table: Timetable) -> None:
    """Both leave the same mark, but each has a message id of its own."""
    table.make()
    schedule = run(run_now(table.handle("digest")), SecondLost(table.births, lambda: table.clock.advance(1)))
    assert [schedule.run.id if schedule.run else None] == messages(table)
    wanted = RequestedSchedule(Every("1m"), replace(BODY, key="k"), POLICIES, Origin.MESSAGE)
    sent = SecondLost(table.births, lambda: table.clock.advance(1))
    result = run(RepeatingSend(table.handle("k"), wanted, Unique.KEEP).carry_out(), sent)
    assert result.id.id in messages(table)


@MOMENTS
def test_an_occurrence_that_is_fired_late_is_reported_once(table: Timetable, before_read: int) -> None:
    table.make()
    table.clock.advance("1m")
    fired = run(table.firing("bob", None), Late(table.births, before_read=before_read))
    assert [one.run.id for one in fired] == messages(table)


def test_a_repeating_message_that_was_stored_late_fires_its_first_occurrence_once(table: Timetable) -> None:
    wanted = RequestedSchedule(Every("1m"), replace(BODY, key="k"), POLICIES, Origin.MESSAGE)

    def handled() -> None:
        table.work("bob")
        table.clock.advance(1)

    run(RepeatingSend(table.handle("k"), wanted, Unique.REPLACE).carry_out(), Late(table.births, handled))
    assert table.work("cyd") == []


def test_a_sender_whose_last_send_failed_and_is_carried_out_late_still_sends_the_next_message(stage: Stage) -> None:
    first, second = (idempotent_message(stage.value(f"m{n}"), 0, first_at(stage.clock.now() + n)) for n in range(2))
    sender = IdempotentSender(stage.ann, STAGE_ROW)
    late = Late(stage.store)
    with pytest.raises(OutcomeUnknown):
        stage.run(sender.send([first]), Failing(late, StoreUnavailable("away"), of=(Commit,), at=2))
    assert stage.run(sender.send([second]), late) == [second]


def test_whether_a_repeating_message_was_stopped_is_unknown_once_it_has_fired_its_last_run(table: Timetable) -> None:
    once = RequestedSchedule(Every("1m", delay="1m", count=1), BODY, POLICIES, Origin.MESSAGE)
    run(RepeatingSend(table.handle("k"), once, None).carry_out(), table.births)
    table.clock.advance("1m")
    with pytest.raises(OutcomeUnknown):
        run(remove(table.handle("k"), with_run=True), Unanswered(table.births, lambda _: table.fire("bob")))
    assert len(table.work("cyd")) == 1


def test_whether_a_run_was_removed_is_unknown_once_another_process_has_removed_its_schedule(table: Timetable) -> None:
    table.make()
    table.clock.advance("1m")
    table.fire("bob")
    others = Unanswered(table.births, lambda _: table.run(remove(table.handle("digest", by="bob"))))
    with pytest.raises(OutcomeUnknown):
        run(remove(table.handle("digest"), with_run=True), others)
    assert len(table.work("cyd")) == 1
