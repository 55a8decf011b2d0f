"""Messages found and removed by their keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.errors import BadInput, LeaseLost, OutcomeUnknown
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.rows import key_row
from astyqueue.protocol.sending.key_index import LASTS
from astyqueue.protocol.steps import Read, Send
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Slice, Store
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.triggers import Every
from tests.support.places import Place

KEY = "order:7"


def hints(store: Store, key: str = KEY) -> int:
    return len(store.read((Slice(key_row("emails", key), 2),))[0])


@pytest.mark.every_store
def test_all_messages_of_a_key_are_found_in_the_order_in_which_they_are_due(queue: MessageQueue) -> None:
    queue.send("late", key=KEY, delay="1h")
    queue.send("other", key="order:8")
    queue.send("early", key=KEY)
    queue.send_many([Message("middle", key=KEY, delay="1m"), Message("plain"), Message("other", key="order:8")])
    queue.send("unique", key=KEY, unique="reject", delay="2h")
    assert [found.body for found in queue.find(KEY)] == ["early", "middle", "late", "unique"]
    assert queue.find("order:9") == []


def test_each_is_found_where_it_stands(queue: MessageQueue) -> None:
    for body in ("held", "dead", "done"):
        queue.send(body, key=KEY)
    held, dead, done = queue.receive(3)
    dead.reject()
    done.ack()
    assert {found.body: found.standing.value for found in queue.find(KEY)} == {"held": "in_flight", "dead": "dead"}
    held.ack()


@pytest.mark.every_store
def test_all_of_a_key_are_deleted_and_those_of_others_are_not(queue: MessageQueue) -> None:
    queue.send("unique", key=KEY, unique="reject")
    queue.send("later", key=KEY, delay="1h")
    queue.send("held", key=KEY)
    other = queue.send("other", key="order:8")
    held = [delivery for _ in range(3) for delivery in queue.receive(5)]
    assert queue.delete(key=KEY)
    assert not queue.delete(key=KEY)
    assert [found.id for found in queue.find("order:8")] == [other.id]
    with pytest.raises(LeaseLost):
        next(delivery for delivery in held if delivery.body == "held").ack()
    assert queue.send("again", key=KEY, unique="reject").new


def test_deleting_by_key_stops_what_was_to_come_again(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("tick", key=KEY, trigger=Every("1m"))
    assert queue.delete(key=KEY)
    clock.advance("5m")
    assert not queue.receive(5)
    assert not queue.delete(key=KEY)


@pytest.mark.parametrize("unique", [None, "reject"])
def test_a_message_that_comes_again_is_found_by_its_run_and_between_runs_by_the_next(
    queue: MessageQueue, clock: TimeMachine, unique: str | None
) -> None:
    queue.send("tick", key=KEY, trigger=Every("1m", count=4), max_attempts=1, unique=unique)
    for _ in range(2):
        [run] = queue.receive(5)
        assert [found.id for found in queue.find(KEY)] == [run.message_id]
        run.ack()
        [to_come] = queue.find(KEY)
        assert (to_come.body, to_come.standing.value, to_come.until) == (
            "tick",
            "delayed",
            clock.instant + timedelta(minutes=1),
        )
        clock.advance("1m")
    [run] = queue.receive(5)
    assert run.message_id == to_come.id
    run.fail()
    assert [found.standing.value for found in queue.find(KEY)] == ["dead", "delayed"]
    clock.advance("1m")
    [last] = queue.receive(5)
    assert [found.id for found in queue.find(KEY)] == (
        [last.message_id] if unique else [run.message_id, last.message_id]
    )[-1:]


def test_a_key_that_could_name_no_schedule_is_deleted_too(queue: MessageQueue) -> None:
    key = "line\nbreak" + "k" * 400
    queue.send("body", key=key)
    assert queue.delete(key=key)
    assert queue.counts().total == 0


def test_delete_takes_an_id_or_a_key_and_find_a_key(queue: MessageQueue) -> None:
    sent = queue.send("body", key=KEY)
    for wrong in ({}, {"message": sent.id, "key": KEY}):
        with pytest.raises(BadInput, match="one of them"):
            queue.delete(**wrong)  # type: ignore[arg-type]  # the names are those of its options
    with pytest.raises(BadInput, match="512 bytes"):
        queue.find("")
    assert queue.delete(sent.id)


def test_a_hint_is_written_before_its_message_and_none_for_a_message_without_a_key(
    place: Place, clock: TimeMachine
) -> None:
    store = Recording(place.store(clock))
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    store.requests.clear()
    queue.send("keyed", key=KEY)
    queue.send("plain")
    rows = [batch.row for request in store.requests if isinstance(request, Send) for batch in request.batches]
    assert [row for row in rows if not row.endswith(("bell", ":time"))][:2] == [
        key_row("emails", KEY),
        queue.find(KEY)[0].id.row,
    ]
    assert rows.count(key_row("emails", KEY)) == 1


@pytest.mark.stores("memory", "sqlite")  # elsewhere hints are written by the store's own clock
def test_a_hint_without_a_message_is_harmless_and_removed_by_who_meets_it_an_hour_later(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    queue.send("body", key=KEY)
    queue.receive()[0].ack()
    assert queue.find(KEY) == []
    assert hints(store) == 1
    clock.advance("61m")
    assert queue.find(KEY) == []
    assert hints(store) == 0


@pytest.mark.stores("memory", "sqlite")  # elsewhere columns go by the store's own clock
def test_a_hint_goes_by_itself_thirty_days_after_its_message_was_due(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    queue.send("body", key=KEY, delay="1h")
    clock.advance(LASTS)
    assert len(queue.find(KEY)) == 1
    clock.advance("1h")
    assert hints(store) == 0


@pytest.mark.parametrize("applied", [True, False])
def test_a_message_is_sent_also_when_its_hint_may_be_lost(place: Place, clock: TimeMachine, *, applied: bool) -> None:
    store = Failing(place.store(clock), OutcomeUnknown("no answer"), of=(Send,), applied=applied)
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    queue.send("body", key=KEY)
    assert [delivery.body for delivery in queue.receive()] == ["body"]
    assert len(queue.find(KEY)) == applied


def test_what_hides_messages_is_read_once_for_all_of_a_key(builder: QueueBuilder[MessageQueue], store: Store) -> None:
    with builder.build() as queue:
        queue.send_many(Message(number, key=KEY) for number in range(300))
    recorded = Recording(store)
    with builder.store(recorded).build() as queue:
        recorded.requests.clear()
        assert len(queue.find(KEY)) == 300
        reads = [wanted for request in recorded.requests if isinstance(request, Read) for wanted in request.wanted]
    assert sum(isinstance(wanted, Slice) and wanted.type == Type.TIMER for wanted in reads) == 1
    assert len(reads) < 30


def test_keyed_messages_of_many_shards_and_times_are_found(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    queue = builder.concurrency_shards(4).time_shards(3, every="1h").priorities(2).build()
    sent = []
    for hour in range(5):
        sent.append(queue.send(hour, key=KEY, priority=hour % 2).id)
        clock.advance("1h")
    assert [found.id for found in queue.find(KEY)] == sent
