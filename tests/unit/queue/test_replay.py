"""Replaying a journal into a queue: which records become messages, and that a repeated replay doubles none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from astyqueue import Hook, Message, MessageQueue, Vetoed, aio
from astyqueue.errors import BadInput, NotFound, StoreUnavailable
from astyqueue.journal import UTF8, Journal, ReadOnlyJournal, Record
from astyqueue.journal_errors import UndecodableRecord
from astyqueue.protocol.steps import Commit
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing import Failing, TimeMachine
from tests.support.places import ONE_ROW
from tests.unit.spool.conftest import bodies


@pytest.fixture
def folder(tmp_path: Path, clock: TimeMachine) -> Path:
    """A journal of ten orders, a minute apart; the clock is an hour later."""
    with Journal.open(tmp_path / "orders", clock=clock, page_size="1KiB") as journal:
        for number in range(10):
            journal.append({"order": number})
            clock.advance("1m")
    clock.advance("1h")
    return tmp_path / "orders"


@pytest.mark.every_store
def test_each_record_becomes_a_message_in_order_and_once(builder: QueueBuilder[MessageQueue], folder: Path) -> None:
    with builder.options(**ONE_ROW).build() as queue:
        report = queue.replay(folder)
        assert (report.read, report.sent, report.there, report.sequence) == (10, 10, 0, 10)
        again = queue.replay(folder)
        assert (again.read, again.sent, again.there) == (10, 0, 10)
        assert bodies(queue, 10) == [{"order": number} for number in range(10)]
        assert queue.replay(folder).sent == 0
        assert queue.replay(folder, again=True).sent == 10
        assert queue.replay(folder, source="another").sent == 10


def test_a_span_and_a_condition_choose_the_records(queue: MessageQueue, folder: Path) -> None:
    with ReadOnlyJournal.open(folder) as journal:
        third = list(journal.read())[3].arrived
        eighth = list(journal.read())[8].arrived
        report = queue.replay(journal, since=third, until=eighth, where=lambda one: one.value["order"] % 2 == 0)
    assert (report.read, report.sent, report.skipped) == (5, 2, 3)
    assert [delivery.body for delivery in queue.receive(9)] == [{"order": 4}, {"order": 6}]


def test_a_dry_run_sends_nothing(queue: MessageQueue, folder: Path) -> None:
    report = queue.replay(folder, dry_run=True)
    assert (report.read, report.sent, report.dry_run) == (10, 0, True)
    assert not queue.peek(include="all")


@pytest.mark.every_store
def test_a_dry_run_counts_what_is_there_and_what_was_settled(queue: MessageQueue, folder: Path) -> None:
    with Journal.open(folder) as journal:
        assert queue.replay(journal).sent == 10
        for delivery in queue.receive(4):
            delivery.ack()
        journal.append({"order": 10})
        report = queue.replay(journal, dry_run=True)
        assert (report.read, report.sent, report.there) == (11, 0, 10)
        assert queue.replay(journal, dry_run=True, again=True).there == 0
        assert queue.replay(journal).sent == 1


def test_a_journal_that_is_not_there_is_an_error_that_lists_those_that_are(queue: MessageQueue, folder: Path) -> None:
    (folder / ".pwd.lock").touch()
    with pytest.raises(NotFound, match=r"no journal 'typo'; there are: journal; name one with prefix="):
        queue.replay(folder, prefix="typo")


def test_a_function_makes_the_messages_with_their_options_counted_from_the_arrival(
    queue: MessageQueue, folder: Path, clock: TimeMachine
) -> None:
    def made(record: Record[Any]) -> Message:
        return Message([record.value], key=f"order:{record.value['order']}", delay="65m")

    assert queue.replay(folder, message=made).sent == 10
    assert queue.counts().delayed == 4
    assert queue.find("order:3")[0].body == [{"order": 3}]
    clock.advance("5m")
    assert queue.counts().delayed == 0


def test_a_replay_that_failed_half_way_is_repeated_without_doubling(
    builder: QueueBuilder[MessageQueue], store: Store, folder: Path
) -> None:
    failing = Failing(store, StoreUnavailable("gone"), at=2, of=(Commit,), applied=True)
    with builder.concurrency_shards(3).build() as queue:
        with builder.store(failing).build() as first, pytest.raises(StoreUnavailable):
            first.replay(folder)
        there = queue.counts().waiting
        assert 0 < there < 10
        report = queue.replay(folder)
        assert (report.sent, report.there) == (10 - there, there)
        orders = [str(found.body["order"]) for found in queue.peek(20) if isinstance(found.body, dict)]
        assert sorted(orders) == list("0123456789")


def test_a_record_that_cannot_be_sent_is_named(queue: MessageQueue, folder: Path) -> None:
    with pytest.raises(BadInput, match="record 4 cannot be replayed: body"):
        queue.replay(folder, message=lambda one: object() if one.sequence == 4 else one.value)
    with pytest.raises(BadInput, match="record 1: a replayed message has no unique key"):
        queue.replay(folder, message=lambda one: Message(one.value, key="k", unique="keep"))


def test_a_journal_in_another_codec_is_passed_open(queue: MessageQueue, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "texts", codec=UTF8, clock=queue.clock) as journal:
        journal.append("not JSON")
        assert queue.replay(journal).sent == 1
    with pytest.raises(UndecodableRecord, match="record 1 cannot be decoded"):
        queue.replay(tmp_path / "texts")
    assert queue.receive()[0].body == "not JSON"


def test_messages_that_a_spool_set_aside_are_replayed_with_their_options(
    builder: QueueBuilder[MessageQueue], tmp_path: Path
) -> None:
    with builder.build() as plain, builder.spool(tmp_path / "spool", drain=0).build() as queue:
        plain.drop()
        queue.send("a", key="k", headers={"a": "b"}, expires="1h", lease="9s", max_attempts=2)
        assert queue.spool.drain("20s")
    place = tmp_path / "spool" / "queue-emails" / "1"
    with MessageQueue.builder().store(plain.store).name("others").clock(plain.clock).build() as others:
        assert others.replay(place, prefix="refused").sent == 1
        [found] = others.find("k")
        envelope = found.content.envelope
        assert envelope is not None
        assert (envelope.body, envelope.headers, envelope.lease, envelope.attempts) == ("a", {"a": "b"}, 9_000_000, 2)


def test_a_replay_of_the_journal_of_a_spool_sends_only_what_did_not_arrive(
    builder: QueueBuilder[MessageQueue], tmp_path: Path
) -> None:
    with builder.priorities(2).build() as plain, builder.spool(tmp_path / "spool", drain=0).build() as queue:
        ids = queue.send_many(
            [Message("a", priority=1), Message("b", key="k", delay="1h"), Message("c", expires="2h")]
        ).ids
        assert queue.spool.drain("20s")
        place = tmp_path / "spool" / "queue-emails" / "1"
        report = plain.replay(place)
        assert (report.read, report.sent, report.there) == (3, 0, 3)
        plain.receive(1).ack()
        assert plain.replay(place).sent == 0
        assert {found.id for found in plain.peek(9, include="all")} == set(ids[1:])
        assert plain.replay(place, again=True).sent == 3
        with MessageQueue.builder().store(plain.store).name("others").clock(plain.clock).build() as others:
            assert others.replay(place, where=lambda one: one.value.priority == 0).sent == 2
            assert others.replay(place, where=lambda one: one.value.priority == 0).there == 2


def test_a_message_that_was_set_aside_is_replayed_under_its_first_id_where_the_layout_still_has_its_row(
    builder: QueueBuilder[MessageQueue], tmp_path: Path
) -> None:
    with builder.build() as plain, builder.spool(tmp_path / "spool", drain=0).build() as queue:
        plain.drop()
        first = queue.send("a", key="k", delay="1h").id
        assert queue.spool.drain("20s")
    place = tmp_path / "spool" / "queue-emails" / "1"
    with MessageQueue.builder().store(plain.store).name("emails").clock(plain.clock).build() as recreated:
        assert recreated.replay(place, prefix="refused").sent == 1
        assert [found.id for found in recreated.find("k")] == [first]
        assert recreated.counts().delayed == 1


def test_hooks_may_refuse_and_hear_of_what_was_sent(builder: QueueBuilder[MessageQueue], folder: Path) -> None:
    heard: list[object] = []

    class Even(Hook):
        def before_send(self, message: Message) -> None:
            assert isinstance(message.body, dict)
            if message.body["order"] % 2:
                reason = "odd"
                raise Vetoed(reason)

        def after_send(self, message: Message, sent: object) -> None:
            heard.append((message.body, sent))

    with builder.hook(Even()).build() as queue:
        assert queue.replay(folder).skipped == 5
        assert queue.replay(folder).there == 5
        assert [body for body, _ in heard] == [{"order": number} for number in range(0, 10, 2)]  # type: ignore[misc,has-type]


def test_tasks_replay_a_journal(store: Store, folder: Path, clock: TimeMachine) -> None:
    async def replay() -> int:
        queue = await aio.MessageQueue.builder().store(store).name("emails").clock(clock).build()
        report = await queue.replay(folder)
        await queue.close()
        return report.sent

    assert asyncio.run(replay()) == 10
