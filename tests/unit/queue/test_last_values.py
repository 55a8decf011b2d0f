"""Queues that keep the last value of each key: a message with a key replaces the one that waits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from astyqueue import Hook, KeyTaken, Message, MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.layout.columns import Type
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Slice, Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every
from tests.support.places import Place


class Ends(Hook):
    """The messages that were removed, and why."""

    def __init__(self) -> None:
        self.deleted: list[tuple[MessageId, str]] = []

    def after_delete(self, message: MessageId, why: str) -> None:
        self.deleted.append((message, why))


@pytest.fixture
def prices(builder: QueueBuilder[MessageQueue]) -> QueueBuilder[MessageQueue]:
    return builder.options(last_value=True)


def keys_in(queue: MessageQueue, store: Store) -> int:
    """The columns of unique keys in all rows."""
    found = store.read(tuple(Slice(row, Type.KEY) for row in queue.core.ring.rows()))
    return sum(map(len, found))


@pytest.mark.every_store
def test_of_each_key_the_last_message_stays(prices: QueueBuilder[MessageQueue]) -> None:
    with prices.build() as queue:
        for body, key in (("A1", "A"), ("B2", "B"), ("A3", "A"), ("B4", "B")):
            assert queue.send(body, key=key).new
        assert [found.body for found in queue.peek(10)] == ["A3", "B4"]
        assert [delivery.body for delivery in queue.receive(10)] == ["A3", "B4"]


@pytest.mark.parametrize("at_once", [True, False])
def test_four_hundred_messages_of_ten_keys_are_ten(prices: QueueBuilder[MessageQueue], at_once: bool) -> None:  # noqa: FBT001 - a parameter of a test
    messages = [Message(number, key=f"key {number % 10}") for number in range(400)]
    with prices.build() as queue:
        if at_once:
            assert queue.send_many(messages).sent == 400
        else:
            for message in messages:
                queue.send(message)
        assert queue.counts().total == 10
        assert sorted(found.body for found in queue.peek(100)) == list(range(390, 400))  # type: ignore[type-var]  # these are numbers


def test_messages_without_a_key_stay_as_they_are(prices: QueueBuilder[MessageQueue]) -> None:
    with prices.build() as queue:
        for number in range(3):
            queue.send(number)
        queue.send("keyed", key="A")
        assert queue.counts().total == 4


def test_the_columns_of_keys_go_with_their_messages(prices: QueueBuilder[MessageQueue], store: Store) -> None:
    with prices.build() as queue:
        for number in range(9):
            queue.send(number, key=str(number % 3))
        assert keys_in(queue, store) == 3
        queue.receive(10).ack()
        assert keys_in(queue, store) == 0


@pytest.mark.every_store
def test_while_one_is_leased_the_next_waits_and_an_ack_leaves_its_key_alone(
    prices: QueueBuilder[MessageQueue],
) -> None:
    with prices.build() as queue:
        queue.send("first", key="A")
        [held] = queue.receive()
        queue.send("second", key="A")
        held.ack()
        queue.send("third", key="A")
        assert [found.body for found in queue.peek(10, include="all")] == ["third"]


@pytest.mark.parametrize("how", ["release", "fail", "expiry", "receipt"])
@pytest.mark.every_store
def test_an_older_one_that_comes_back_is_discarded(
    prices: QueueBuilder[MessageQueue], clock: TimeMachine, how: str
) -> None:
    ends = Ends()
    with prices.options(history="all").hook(ends).build() as queue:
        queue.send("first", key="A")
        [held] = queue.receive()
        queue.send("second", key="A")
        if how == "release":
            held.release()
        elif how == "fail":
            held.fail("no luck")
        elif how == "receipt":
            queue.release(str(held.receipt), 0)
        clock.advance("31s")
        assert [delivery.body for delivery in queue.receive(10)] == ["second"]
        clock.advance("1h")
        assert [delivery.body for delivery in queue.receive(10)] == ["second"]
        assert queue.counts().total == 1
        assert ends.deleted == [(held.message_id, "replaced")]
        ended = [event.message for event in queue.history(kinds=["cancelled"]) if event.why == "replaced"]
        assert ended == [held.message_id]


def test_a_lease_of_an_older_one_can_be_extended_and_renewed(
    prices: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with prices.build() as queue:
        queue.send("first", key="A")
        [held] = queue.receive()
        queue.send("second", key="A")
        held.extend("10m")
        clock.advance("5m")
        [second] = queue.receive(10)
        assert second.body == "second"
        second.ack()
        held.release()
        assert queue.counts().total == 0


def test_an_older_one_that_is_rejected_is_a_dead_letter_and_the_newer_one_keeps_the_key(
    prices: QueueBuilder[MessageQueue],
) -> None:
    with prices.build() as queue:
        queue.send("first", key="A")
        [held] = queue.receive()
        queue.send("second", key="A")
        held.reject("of no use")
        queue.send("third", key="A")
        assert [found.body for found in queue.peek(10)] == ["third"]
        assert queue.counts().dead == 1
        assert queue.redrive().left == 1


def test_an_older_one_that_is_a_suspect_does_not_stop_the_row(
    prices: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with prices.build() as queue:
        queue.send("first", key="A")
        [held] = queue.receive()
        queue.send("other", key="B", lease="10m")
        [other] = queue.receive()
        queue.send("second", key="A")
        clock.advance("31s")
        assert [delivery.body for delivery in queue.receive(10)] == ["second"]
        assert held.message_id != other.message_id


def test_the_setting_applies_to_messages_without_a_policy_of_their_own(prices: QueueBuilder[MessageQueue]) -> None:
    with prices.build() as queue:
        first = queue.send("first", key="A", unique="keep")
        assert queue.send("second", key="A", unique="keep").id == first.id
        queue.send("third", key="A")
        assert [found.body for found in queue.peek(10)] == ["third"]


def test_a_message_may_ask_for_it_in_any_queue(queue: MessageQueue) -> None:
    queue.send("first", key="A", unique="supersede")
    [held] = queue.receive()
    queue.send("second", key="A", unique="supersede")
    held.release()
    assert [found.body for found in queue.peek(10, include="all")] == ["second"]


def test_a_message_that_repeats_is_not_replaced(prices: QueueBuilder[MessageQueue]) -> None:
    with prices.build() as queue:
        queue.send("each minute", key="A", unique="keep", trigger=Every("1m"))
        with pytest.raises(KeyTaken, match="repeating"):
            queue.send("once", key="A")
        with pytest.raises(BadInput, match="replaces single messages"):
            queue.send("each hour", key="B", unique="supersede", trigger=Every("1h"))


def test_where_a_send_cannot_replace_a_key_is_refused(
    prices: QueueBuilder[MessageQueue], builder: QueueBuilder[MessageQueue], tmp_path: Path
) -> None:
    with prices.build() as queue:
        queue.send("origin")
        [held] = queue.receive()
        with pytest.raises(BadInput, match="a follow-up has no unique key"):
            held.then("next", key="A")
    with builder.spool(tmp_path / "spool").build() as spooled:
        with pytest.raises(BadInput, match="a key in a queue with last_value needs an answer of the store"):
            spooled.send("first", key="A")
        spooled.send("without a key")


def test_two_producers_and_a_consumer_at_once_leave_the_last_of_each_key(
    builder: QueueBuilder[MessageQueue], place: Place
) -> None:
    """Each key has one producer, so that the last one sent is known; consumers fail every other delivery."""
    received: dict[str, list[int]] = {}
    store = place.store(SystemClock())  # whose time the queues follow: one that stands still would delay the messages

    def produce(name: str) -> None:
        with MessageQueue.builder().store(store).name("emails").build() as producer:
            for number in range(60):
                producer.send(number, key=f"{name} {number % 3}")

    builder.store(store).clock(None).options(last_value=True, backoff="1ms", max_attempts=10_000)
    with builder.build() as queue:
        threads = [threading.Thread(target=produce, args=(name,)) for name in ("ann", "bob")]
        for thread in threads:
            thread.start()
        turn = 0
        while any(thread.is_alive() for thread in threads) or queue.counts().total:
            for delivery in queue.receive(2, wait="50ms"):
                received.setdefault(str(delivery.key), []).append(int(str(delivery.body)))
                turn += 1
                delivery.fail("no luck") if turn % 2 else delivery.ack()
        for thread in threads:
            thread.join()
    for key, numbers in received.items():
        assert numbers == sorted(numbers), key
        assert numbers[-1] == 57 + int(key[-1]), key
