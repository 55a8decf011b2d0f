"""Threads, tasks and a dispatcher take from one queue of one process, while others send: each message is done once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import Dispatcher, MessageQueue, aio
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from tests.support.places import Place

MESSAGES = 1_500


class Tally:
    """Who did what, counted by many."""

    def __init__(self) -> None:
        self.done: Counter[object] = Counter()
        self._lock = threading.Lock()
        self.complete = threading.Event()

    def note_all(self, batch: Iterable[BaseDelivery]) -> None:
        for delivery in batch:
            self.note(delivery.body)

    def note(self, body: object) -> None:
        with self._lock:
            self.done[body] += 1
            if len(self.done) == MESSAGES:
                self.complete.set()


def take(queue: MessageQueue, tally: Tally) -> None:
    while not tally.complete.is_set():
        with queue.receive(7, wait="50ms") as batch:
            tally.note_all(batch)


async def take_awaited(queue: aio.MessageQueue, tally: Tally) -> None:
    while not tally.complete.is_set():
        async with await queue.receive(5, wait="50ms") as batch:
            tally.note_all(batch)


async def take_in_tasks(queue: MessageQueue, tally: Tally) -> None:
    same = await aio.MessageQueue.builder().store(queue.store).name(queue.name).build()
    await asyncio.gather(*[take_awaited(same, tally) for _ in range(4)])


@pytest.mark.every_store
def test_threads_tasks_and_a_dispatcher_share_a_queue_and_handle_each_message_once(place: Place) -> None:
    queue = MessageQueue.builder().store(place.url).name("shared").concurrency_shards(3).priorities(2).build()
    tally = Tally()
    dispatcher = (
        Dispatcher.builder().queue(queue).handler(lambda delivery: tally.note(delivery.body), threads=3).build()
    )
    with dispatcher, ThreadPoolExecutor(8) as threads:
        takers = [threads.submit(take, queue, tally) for _ in range(5)]
        takers.append(threads.submit(asyncio.run, take_in_tasks(queue, tally)))
        for first in range(0, MESSAGES, 50):
            queue.send_many(range(first, first + 50), priority=first // 50 % 2)
        assert tally.complete.wait(timeout=60)
        for taker in takers:
            taker.result(timeout=60)
    assert sorted(map(int, map(str, tally.done))) == list(range(MESSAGES))
    assert set(tally.done.values()) == {1}
    assert queue.counts().total == 0
