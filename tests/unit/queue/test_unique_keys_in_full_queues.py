"""Messages with unique keys need no room in a full queue if other messages have their keys."""

from __future__ import annotations

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.errors import KeyTaken, QueueFull
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every
from tests.unit.queue.test_overflow import bodies


@pytest.mark.every_store
def test_in_a_full_queue_a_unique_key_that_a_message_has_is_kept_and_not_forwarded(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    with (
        MessageQueue.builder().store(store).name("later").clock(clock).build() as later,
        builder.options(max_messages=2, overflow="forward", overflow_to="later").build() as queue,
    ):
        first = queue.send("first", key="ada", unique="keep")
        queue.send("second")
        assert queue.send("third").id.queue == "later"
        again = queue.send("again", key="ada", unique="keep")
        assert (again.id, again.new) == (first.id, False)
        report = queue.send_many([Message(text, key="ada", unique="keep") for text in ("once", "twice")] + ["fourth"])
        assert report.ids[:2] == [first.id, first.id]
        assert bodies(later) == ["fourth", "third"]
        report = queue.send_many(["fifth", Message("again", key="ada", unique="keep"), "sixth"])
        assert (report.ids[1], report.kept) == (first.id, {1})
        assert bodies(later) == ["fifth", "fourth", "sixth", "third"]


@pytest.mark.parametrize("overflow", ["refuse", "block"])
def test_in_a_full_queue_a_message_takes_the_place_of_the_one_with_its_key(queue: MessageQueue, overflow: str) -> None:
    queue.configure(max_messages=2, overflow=overflow, overflow_wait="1h")
    first = queue.send("first", key="ada", unique="keep")
    queue.send("second", key="bob", unique="replace")
    assert queue.send("again", key="ada", unique="keep").id == first.id
    with pytest.raises(KeyTaken):
        queue.send("again", key="ada", unique="reject")
    assert queue.send("newer", key="bob", unique="replace").new
    assert bodies(queue) == ["first", "newer"]


def test_a_last_value_that_takes_the_place_of_another_drops_none(queue: MessageQueue) -> None:
    queue.configure(max_messages=20, overflow="drop_oldest", last_value=True)
    queue.send_many([Message(number, key=str(number)) for number in range(20)])
    for update in range(100, 200):
        queue.send(update, key=str(update % 20))
    assert bodies(queue) == list(range(180, 200))
    assert queue.stats.evicted == 0


def test_of_many_last_values_only_those_of_new_keys_need_room(queue: MessageQueue) -> None:
    queue.configure(max_messages=100, overflow="drop_oldest", last_value=True)
    queue.send_many([Message(number, key=str(number)) for number in range(100)])
    queue.send_many([Message(-1, key="new"), *(Message(number + 1_000, key=str(number)) for number in range(1, 100))])
    assert bodies(queue) == [-1, *range(1_001, 1_100)]
    assert queue.stats.evicted == 1


def test_a_key_whose_next_message_is_not_sent_yet_needs_room(queue: MessageQueue) -> None:
    queue.send("tick", key="clock", unique="keep", trigger=Every("1h"))
    queue.receive()[0].ack()
    queue.configure(max_messages=1)
    queue.send("one")
    with pytest.raises(QueueFull):
        queue.send("tock", key="clock", unique="replace")
