"""A browser reads all messages in order, takes none, and owns its position."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice

import pytest

from astyqueue import MessageQueue, aio, connect
from astyqueue.clock import instant
from astyqueue.errors import BadInput, Closed
from astyqueue.model.views import Standing
from astyqueue.protocol.sending.insert import message_put
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Batch, Store
from astyqueue.testing import TimeMachine
from tests.support.places import ONE_ROW, Place

PATIENCE = 30


@pytest.mark.every_store
def test_all_messages_come_in_order_with_their_states_and_none_is_taken(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    for number in range(4):
        queue.send(number)
        clock.advance("1s")
    queue.send("later", delay="1h")
    [leased] = queue.receive()
    [failed] = queue.receive()
    failed.fail(delay="10m")
    seen = [(found.body, found.standing) for found in queue.browse()]
    assert [body for body, _ in seen] == [0, 1, 2, 3, "later"]
    assert sorted(standing for _, standing in seen) == sorted(
        [Standing.IN_FLIGHT, Standing.BACKING_OFF, Standing.WAITING, Standing.WAITING, Standing.DELAYED]
    )
    leased.ack()
    assert len(queue.receive(9)) == 2


def test_a_browser_begins_at_a_moment_or_behind_a_message(queue: MessageQueue, clock: TimeMachine) -> None:
    ids = []
    for number in range(4):
        ids.append(queue.send(number).id)
        clock.advance("1s")
    third = instant(clock.now()) - timedelta(seconds=2)
    assert [found.body for found in queue.browse(since=third)] == [2, 3]
    assert [found.body for found in queue.browse(after=ids[0])] == [1, 2, 3]
    assert [found.body for found in queue.browse(after=str(ids[3]))] == []
    with pytest.raises(BadInput, match="not both"):
        queue.browse(since=third, after=ids[0])


def test_pages_of_many_rows_and_priorities_come_in_one_order(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with builder.options(time_shards=3, concurrency_shards=2, priorities=2).build() as queue:
        for number in range(700):
            queue.send(number, priority=number % 2, key=str(number))
            clock.advance("10s" if number % 3 else "1ms")
        assert [found.body for found in queue.browse()] == list(range(700))


def test_dead_letters_do_not_come(queue: MessageQueue) -> None:
    queue.send("dead")
    [delivery] = queue.receive()
    delivery.reject()
    queue.send("alive")
    assert [found.body for found in queue.browse()] == ["alive"]


def test_a_browser_that_follows_gets_each_message_when_it_is_due(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("first")
    queue.send("delayed", delay="1m")
    following = queue.browse(follow=True)
    assert next(following).body == "first"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, following)
        clock.when_waiting(1)
        queue.send("second")
        clock.advance("1s")
        assert waiting.result(PATIENCE).body == "second"
        waiting = pool.submit(next, following)
        clock.when_waiting(1)
        clock.advance("1m")
        assert waiting.result(PATIENCE).body == "delayed"


def test_a_follower_gets_more_messages_of_one_moment_than_a_page_has(queue: MessageQueue) -> None:
    queue.send_many(range(450))
    assert [found.body for found in islice(queue.browse(follow=True), 450)] == list(range(450))


def test_a_message_that_lands_late_comes_to_those_that_follow(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, store: Store
) -> None:
    with builder.options(**ONE_ROW).build() as queue:
        queue.send("first")
        clock.advance("5s")
        queue.send("second")
        following = queue.browse(follow=True)
        assert [next(following).body, next(following).body] == ["first", "second"]
        id_ = queue.core.process.id_at(clock.now() - 3_000_000)
        store.send(
            Batch(
                queue.core.ring.rows()[0], (message_put(0, id_, b'\x01[1,0,null,null,null,null,null,"late"]', sent=1),)
            )
        )
        clock.advance("1s")
        assert next(following).body == "late"


def test_closing_the_queue_ends_a_follower(queue: MessageQueue, clock: TimeMachine) -> None:
    following = queue.browse(follow=True)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, following, None)
        clock.when_waiting(1)
        queue.close()
        clock.advance("1s")
        assert waiting.result(PATIENCE) is None


@pytest.mark.parametrize("closes", ["queue", "connection"])
def test_closing_what_owns_the_store_ends_a_follower_too(clock: TimeMachine, closes: str) -> None:
    connection = connect("memory://", clock=clock)
    queue = MessageQueue.builder().store("memory://").name("emails").clock(clock).build()
    following = (queue if closes == "queue" else connection.queue("emails")).browse(follow=True)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, following, None)
        clock.when_waiting(1)
        queue.close()
        connection.close()
        clock.advance("1s")
        assert waiting.result(PATIENCE) is None


def test_a_browser_of_all_messages_does_not_end_as_if_it_had_them_when_the_queue_is_closed(queue: MessageQueue) -> None:
    queue.send_many(range(450))
    browsing = queue.browse()
    assert next(browsing).body == 0
    queue.close()
    with pytest.raises(Closed):
        list(browsing)


def test_tasks_browse_too(place: Place, clock: TimeMachine) -> None:
    async def scene() -> list[object]:
        builder = aio.MessageQueue.builder().store(place.store(clock)).name("emails").clock(clock)
        async with await builder.build() as queue:
            await queue.send("first")
            return [found.body async for found in queue.browse()]

    run: Callable[..., list[object]] = asyncio.run
    assert run(scene()) == ["first"]
