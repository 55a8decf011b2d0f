"""How far processes, and threads of one, that send at the same time exceed the bound of a queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.errors import QueueFull
from astyqueue.protocol.steps import Request, Send, Steps, perform, run
from astyqueue.queue.producing.producer import Sent
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Store
from astyqueue.testing import TimeMachine

#: Longer than a producer waits before it counts again.
LATER = "20ms"


def depth(queue: MessageQueue) -> int:
    counts = queue.counts()
    return counts.total - counts.dead


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest"])
def test_each_process_exceeds_the_bound_by_a_tenth_of_it_at_most(
    store: Store, clock: TimeMachine, overflow: str
) -> None:
    bound, processes = 40, 5
    opened = [
        MessageQueue.builder().store(store).name("emails").options(max_messages=bound, overflow=overflow).clock(clock)
        for _ in range(processes)
    ]
    queues = [builder.build() for builder in opened]
    most = 0
    for number in range(200):
        for queue in queues:
            if overflow == "drop_oldest":
                queue.send(number)
                continue
            try:
                queue.send(number)
            except QueueFull:
                clock.advance(LATER)
        most = max(most, depth(queues[0]))
    assert bound <= most <= bound + processes * bound // 10


def test_what_another_process_is_just_sending_cannot_be_counted_and_comes_on_top(
    store: Store, clock: TimeMachine
) -> None:
    bound, at_once = 20, 8
    builder = MessageQueue.builder().store(store).name("emails").options(max_messages=bound).clock(clock)
    with builder.build() as slow, builder.build() as quick:
        under_way = [begun(slow.core, number, store) for number in range(at_once)]
        with pytest.raises(QueueFull):
            quick.send_many(range(100))
        for steps, request in under_way:
            run(resumed(steps, request), store)
        assert depth(quick) == bound + at_once > bound + 2 * bound // 10


def begun(runtime: QueueRuntime, body: int, store: Store) -> tuple[Steps[Sent], Send]:
    """A send in a thread of its own, up to the request that puts its message."""
    steps = runtime.send(Message(body))
    request = next(steps)
    while not isinstance(request, Send):
        request = steps.send(perform(request, store))
    return steps, request


def resumed(steps: Steps[Sent], request: Request) -> Steps[Sent]:
    """The rest of these steps, from this request on."""
    answer = yield request
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as over:
            return cast("Sent", over.value)
        answer = yield request


def test_threads_of_a_process_that_send_at_once_do_not_exceed_the_bound(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.configure(max_messages=60)

    def send(number: int) -> bool:
        try:
            return queue.send(number).new
        except QueueFull:
            return False

    with ThreadPoolExecutor(8) as threads:
        sent = sum(threads.map(send, range(200)))
    assert depth(queue) == sent <= 60
    clock.advance(LATER)
    sent += sum(map(send, range(200)))  # a message that was under way may have counted twice, and left room
    assert depth(queue) == sent == 60
