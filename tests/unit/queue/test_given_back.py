"""Messages that are delayed, held and given back, as their consumers see them; and what browsers see of a queue."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import Closed
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.support.places import ONE_ROW


@pytest.fixture
def one_row(builder: QueueBuilder[MessageQueue]) -> MessageQueue:
    """A queue of one row, so that claims take its messages in one order."""
    return builder.options(**ONE_ROW).build()


@pytest.fixture
def three(one_row: MessageQueue) -> list[Delivery]:
    """The deliveries of the messages 0, 1 and 2."""
    one_row.send_many(range(3))
    return [*one_row.receive(3)]


def test_a_message_sent_later_overtakes_a_delayed_one_which_comes_when_its_time_has_passed(
    one_row: MessageQueue, clock: TimeMachine
) -> None:
    one_row.send("held", delay="1m")
    one_row.send("later")
    [first] = one_row.receive(2)
    assert first.body == "later"
    first.ack()
    clock.advance("1m")
    assert [delivery.body for delivery in one_row.receive(2)] == ["held"]


@pytest.mark.every_store
def test_of_three_messages_only_the_one_that_was_released_comes_again_and_a_failure_is_reported(
    one_row: MessageQueue, three: list[Delivery]
) -> None:
    three[0].release()
    [again] = one_row.receive(3)
    assert (again.body, again.attempt) == (0, 1)
    again.fail(delay=0)
    [again] = one_row.receive(3)
    assert (again.body, again.attempt) == (0, 2)
    assert not one_row.receive(3)


@pytest.mark.parametrize("order", [(0, 2), (2, 0)])
def test_messages_come_again_in_whatever_order_they_were_released(
    one_row: MessageQueue, three: list[Delivery], order: tuple[int, int]
) -> None:
    for number in order:
        three[number].release()
    assert sorted(str(delivery.body) for delivery in one_row.receive(3)) == ["0", "2"]


def test_a_message_that_was_released_goes_to_one_of_two_processes(queue: MessageQueue, another: MessageQueue) -> None:
    queue.send("one")
    queue.receive()[0].release()
    found = [*queue.receive(2), *another.receive(2)]
    assert [delivery.body for delivery in found] == ["one"]


@pytest.mark.parametrize("give_back", [Delivery.release, Delivery.fail])
def test_a_message_that_expired_in_the_hand_of_its_consumer_is_a_dead_letter_when_it_comes_back(
    queue: MessageQueue, clock: TimeMachine, give_back: Callable[[Delivery], None]
) -> None:
    queue.send("perishable", expires="30s")
    [delivery] = queue.receive()
    clock.advance("31s")
    give_back(delivery)
    clock.advance("1h")
    assert not queue.receive()
    assert [(dead.kind, dead.body) for dead in queue.dead_letters()] == [("expired", "perishable")]


def test_a_message_that_is_deleted_behind_the_back_of_a_consumer_is_skipped(
    queue: MessageQueue, another: MessageQueue
) -> None:
    ids = queue.send_many(range(3)).ids
    another.delete(ids[1])
    assert sorted(str(delivery.body) for delivery in queue.receive(3)) == ["0", "2"]


def test_each_of_several_browsers_sees_all_messages_once_also_later_ones_and_so_do_consumers(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("first")
    followers = [queue.browse(follow=True) for _ in range(3)]
    seen = [[next(follower).body] for follower in followers]
    clock.advance("1s")
    queue.send("second")
    clock.advance("1s")
    for bodies, follower in zip(seen, followers, strict=True):
        bodies += [found.body for found in islice(follower, 1)]
    assert seen == [["first", "second"]] * 3
    assert sorted(str(delivery.body) for delivery in queue.receive(3)) == ["first", "second"]


def test_an_empty_queue_has_nothing_to_browse_and_a_closed_one_says_so(queue: MessageQueue) -> None:
    assert list(queue.browse()) == []
    queue.close()
    with pytest.raises(Closed):
        list(queue.browse())
