"""The bound of a queue is removed while sends wait for room, or count."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import QueueFull
from astyqueue.protocol.steps import Read, Request
from astyqueue.queue.builder import QueueBuilder
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty

#: Longer than a producer waits before it counts again.
LATER = "20ms"
DEADLINE = 10


def bodies(queue: MessageQueue) -> Sequence[object]:
    return [found.body for found in queue.peek(10_000, include="all")]


def test_a_sender_that_waits_for_room_goes_on_when_the_bound_is_removed(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with (
        builder.options(max_messages=1, overflow="block", overflow_wait="10m").build() as queue,
        ThreadPoolExecutor(1) as threads,
    ):
        queue.send("first")
        sending = threads.submit(queue.send, "second")
        clock.when_waiting(1)
        queue.configure(max_messages=0)
        clock.advance("1h")
        assert sending.result(DEADLINE).new
        assert bodies(queue) == ["first", "second"]
        queue.configure(max_messages=2, overflow="refuse")
        with pytest.raises(QueueFull):
            queue.send("third")


def test_a_send_that_counts_while_the_bound_is_removed_deletes_nothing(clock: TimeMachine) -> None:
    class Removing(Faulty):
        """Has the bound removed while the count is under way."""

        removes: MessageQueue | None = None

        def perform(self, request: Request) -> object:
            answer = super().perform(request)
            if isinstance(request, Read) and (queue := self.removes):
                self.removes = None
                queue.configure(max_messages=0)
            return answer

    store = Removing(MemoryStore(clock))
    builder = MessageQueue.builder().store(store).name("emails").clock(clock)
    with builder.options(max_messages=100, overflow="drop_oldest").build() as queue:
        queue.send_many(range(10))
        clock.advance(LATER)
        store.removes = queue
        queue.send_many(range(10, 30))
        assert bodies(queue) == list(range(30))
