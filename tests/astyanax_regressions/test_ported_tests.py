"""The recipe's own tests as tests of ours, including those that it had to comment out.

A repeating message is one with a trigger of its own. The recipe slept where these tests advance a clock. It ran each
test twice, with a lock in memory and with one in the row; these run on each store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from astyqueue import Dispatcher, KeyTaken, Message, MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import NotFound
from astyqueue.queue.connection import Connection
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.hooks import Hook
from astyqueue.schedules import Schedules
from astyqueue.store import Slice, Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every, Once
from tests.astyanax_regressions.conftest import Opens, Slow, everything
from tests.support.places import Place

DEADLINE = 20


@pytest.fixture
def queue(opens: Opens) -> MessageQueue:
    return opens(lease="1s", max_attempts=50)


def columns(store: Store, row: str) -> set[int]:
    """The types of columns in a row, but for its header."""
    return {kind for kind in range(1, 7) for found in store.read((Slice(row, kind),)) if found}


def test_a_bare_message_has_an_id(queue: MessageQueue) -> None:
    assert queue.send(None).id.queue == "jobs"


def test_a_keyed_message_is_counted_found_by_id_and_key_and_gone_when_its_key_is_deleted(queue: MessageQueue) -> None:
    """Part 1."""
    sent = queue.send("work", key="key 1")
    assert queue.counts().total == 1
    assert queue.get(sent.id).body == "work"
    assert [found.id for found in queue.find("key 1")] == [sent.id]
    assert queue.delete(key="key 1")
    with pytest.raises(NotFound):
        queue.get(sent.id)
    assert queue.find("key 1") == []


@pytest.mark.every_store
def test_of_two_messages_with_a_unique_key_one_is_sent_alone_or_among_many(queue: MessageQueue) -> None:
    """Part 2."""
    queue.send("first", key="taken", unique="reject")
    with pytest.raises(KeyTaken):
        queue.send("second", key="taken", unique="reject")
    report = queue.send_many(
        [Message("third", key="taken", unique="reject"), Message("fourth", key="new", unique="reject")]
    )
    assert (report.sent, list(report.taken)) == (1, [0])
    assert queue.counts().total == 2
    assert queue.delete(key="new")
    [delivery] = queue.receive(10, wait="10s")
    assert queue.counts().total == 1
    delivery.ack()
    assert queue.counts().total == 0


def test_a_keyed_repeating_message_is_deleted_by_its_id(queue: MessageQueue, clock: TimeMachine) -> None:
    """Part 3."""
    sent = queue.send("again", trigger=Every("3s", count=10), key="key 3")
    assert queue.get(sent.id).body == "again"
    assert queue.counts().total == 1
    assert queue.delete(sent.id)
    assert queue.counts().total == 0
    assert everything(queue, clock) == []


def test_peek_shows_ten_messages_of_one_call_with_their_bodies(queue: MessageQueue) -> None:
    """Part 4."""
    queue.send_many([{"number": number} for number in range(10)])
    shown = queue.peek(1_000)
    assert [found.body for found in shown] == [{"number": number} for number in range(10)]
    assert queue.counts().waiting == 10


def test_a_repeating_message_keeps_its_unique_key_before_during_and_between_runs(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    """The recipe's own comment calls it a bug; its checks of the count and of finding it by key were commented out."""
    queue.send("again", trigger=Every("1s"), key="unique", unique="reject")
    for trigger in (Every("1s"), None):
        with pytest.raises(KeyTaken):
            queue.send("again", trigger=trigger, key="unique", unique="reject")
    assert queue.counts().total == 1
    [first] = queue.receive(10)
    clock.advance("2s")
    [second] = queue.receive(10)
    assert first.message_id == second.message_id
    second.ack()
    clock.advance("1s")
    with queue.receive(10) as batch:
        assert len(batch) == 1
    clock.advance("2s")
    assert len(queue.receive(10)) == 1
    for _ in range(10):
        clock.advance("2s")
        with queue.receive(10) as batch:
            assert [found.id for found in queue.find("unique")] == [delivery.message_id for delivery in batch]
            assert queue.counts().total == len(batch) == 1
    [to_come] = queue.find("unique")
    assert to_come.standing == "delayed"
    with pytest.raises(KeyTaken):
        queue.send("again", key="unique", unique="reject")
    assert [schedule.name for schedule in Schedules(queue).all()] == ["unique"]


# Handlers run in real time, with which the clocks of Cassandra nodes need not agree to the second.
@pytest.mark.stores("memory", "sqlite")
def test_a_repeating_task_runs_five_times_through_a_dispatcher(place: Place) -> None:
    """The recipe had to comment this test out: the callback is called five times, and then nothing is left."""
    store = place.store(SystemClock())
    queue = MessageQueue.builder().store(store).name("jobs").options(time_shards=1, concurrency_shards=1).build()
    ran: list[object] = []
    five = threading.Event()

    def handler(delivery: Delivery) -> None:
        ran.append(delivery.body)
        if len(ran) == 5:
            five.set()

    with Dispatcher.builder().queue(queue).handler(handler, task="tick", threads=2).build():
        queue.send("tick", trigger=Every("10ms", count=5), headers={"task": "tick"})
        assert five.wait(DEADLINE)
    assert ran == ["tick"] * 5
    assert queue.counts().total == 0


@pytest.mark.stores("memory", "sqlite")  # it makes too many requests for Cassandra
def test_a_thousand_messages_at_most_once_that_are_due_over_a_minute_come_once_each(
    opens: Opens, clock: TimeMachine
) -> None:
    """The stress test, which the recipe had to leave out, and which asserted nothing.

    This one has a thousandth of its messages, and as many buckets.
    """
    queue = opens(time_shards=10, every="30s", concurrency_shards=4)
    for batch in range(20):
        queue.send_many([Message(f"{batch}:{number}", lease=0, delay=number) for number in range(50)])
    found: list[object] = []
    for _ in range(60):
        clock.advance("1s")
        while handed := queue.receive(200):
            found += [delivery.body for delivery in handed]
    assert len(found) == len(set(map(str, found))) == 1_000
    assert queue.counts().total == 0


@pytest.mark.every_store
def test_five_messages_are_handled_once_each_while_another_process_changes_the_row(place: Place) -> None:
    """The recipe's test held the lock of the row for a second, and counted five callbacks after releasing it."""
    store = place.store(SystemClock())
    other = MessageQueue.builder().store(store).name("jobs").options(time_shards=1, concurrency_shards=1).build()
    other.send_many(range(5))
    [held] = other.receive(1)
    queue = MessageQueue.builder().store(Slow(store, held.release)).name("jobs").build()
    handled: list[object] = []
    five = threading.Event()

    def handler(delivery: Delivery) -> None:
        handled.append(delivery.body)
        if len(handled) == 5:
            five.set()

    with Dispatcher.builder().queue(queue).handler(handler, threads=10).build():
        assert five.wait(DEADLINE)
    assert sorted(map(str, handled)) == list("01234")
    assert other.counts().total == 0


def test_a_received_message_is_counted_until_it_is_acked(queue: MessageQueue) -> None:
    """From the rewrite that was never merged: consume, count one, ack, count none."""
    queue.send("work")
    [delivery] = queue.receive()
    assert queue.counts().total == 1
    delivery.ack()
    assert queue.counts().total == 0


def test_a_message_that_is_not_acked_is_hidden_until_its_lease_ends_and_no_longer(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    """From the same rewrite: once both copies are acked, nothing is left."""
    queue.send("work")
    [first] = queue.receive()
    clock.advance("900ms")
    assert not queue.receive()
    clock.advance("100ms")
    [second] = queue.receive()
    second.ack()
    assert queue.counts().total == 0
    assert first.message_id == second.message_id


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("key", ["five", None])
@pytest.mark.every_store
def test_a_trigger_with_a_count_of_five_has_five_runs_and_leaves_nothing(
    queue: MessageQueue, store: Store, clock: TimeMachine, key: str | None, *, late: bool
) -> None:
    """From the same rewrite: a run every 3 s, one second to finish it, and one run that takes longer."""
    queue.send("again", trigger=Every("3s", count=5), key=key)
    if late:
        assert queue.receive()
        clock.advance("2s")
    runs = 0
    for _ in range(12):
        with queue.receive(10) as batch:
            runs += len(batch)
        clock.advance("3s")
    assert runs == 5
    assert queue.counts().total == 0
    assert columns(store, "jobs:home:0") == set()
    assert Schedules(queue).all() == []


@pytest.mark.parametrize(
    "send", [lambda queue: queue.send("w", delay="1m"), lambda queue: queue.send("w", trigger=Once(delay="1m"))]
)
def test_a_message_is_received_from_its_due_time_on_to_the_millisecond(
    queue: MessageQueue, clock: TimeMachine, send: Callable[[MessageQueue], object]
) -> None:
    """From the same rewrite: nothing a second before the due time, one message a millisecond after it."""
    send(queue)
    clock.advance("59s")
    assert not queue.receive()
    clock.advance("1001ms")
    assert len(queue.receive()) == 1


def test_the_queues_of_a_store_are_listed_by_name(place: Place, clock: TimeMachine) -> None:
    """From the same rewrite."""
    connection = Connection(place.store(clock), clock)
    for name in ("b", "a"):
        connection.queue(name)
    assert connection.queues() == ["a", "b"]


def test_hooks_are_called_in_the_order_of_what_happened(clock: TimeMachine, store: Store) -> None:
    """The recipe gave hooks the batch of the queue's own commit; our hooks are called before and after, without it."""
    told: list[str] = []

    class Diary(Hook):
        def after_send(self, message: Message, sent: object) -> None:
            told.append(f"sent {message.body}, {sent is not None}")

        def after_settle(self, delivery: object, outcome: str) -> None:
            told.append(f"{outcome}, {delivery is not None}")

    queue = MessageQueue.builder().store(store).name("jobs").clock(clock).hook(Diary()).build()
    queue.send("work")
    queue.receive()[0].ack()
    assert told == ["sent work, True", "acked, True"]
