"""A message whose lease ran out while this process was at it, and that this process is handed once more."""

from __future__ import annotations

import threading

import pytest

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.execution.delivery_execution import HandlerExecutions
from astyqueue.dispatch.flow_control import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.handlers.handler import Handler
from astyqueue.dispatch.handlers.handler_registry import GivenHandlers, HandlerRegistry
from astyqueue.dispatch.handlers.middleware import HandlerWrapping
from astyqueue.queue.runtime import ReceiveRequest
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND

DEADLINE = 20


class Held:
    """A handler, or a factory of handlers, that goes on when it may; at once when it is asked again."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.times = 0

    def __call__(self, _: object) -> None:
        self.times += 1
        self.entered.set()
        assert self.open.wait(DEADLINE)


@pytest.fixture
def queue(clock: TimeMachine) -> MessageQueue:
    return MessageQueue.builder().store(MemoryStore(clock)).clock(clock).name("emails").lease("10s").build()


def executions(queue: MessageQueue, given: GivenHandlers) -> HandlerExecutions:
    registry = HandlerRegistry(given, HandlerWrapping())
    return HandlerExecutions(queue, registry, AdaptivePrefetch(2, 10 * SECOND, None), MessageQuota(None))


def taken(queue: MessageQueue) -> Delivery:
    [delivery] = queue.run(queue.core.take(ReceiveRequest(1, 0, queue.delivery, renew=True)))
    assert isinstance(delivery, Delivery)
    delivery.renew_until = None
    return delivery


def handed_out_twice(
    queue: MessageQueue, clock: TimeMachine, executions: HandlerExecutions, held: Held
) -> tuple[Delivery, Delivery]:
    """The first delivery is being worked on when its lease runs out, and the second comes here as well."""
    first = taken(queue)
    first.renew_until = clock.now()
    working = threading.Thread(target=executions.carry_out, args=(first,))
    working.start()
    assert held.entered.wait(DEADLINE)
    clock.advance("11s")
    second = taken(queue)
    executions.carry_out(second)
    held.open.set()
    working.join(DEADLINE)
    queue.run(queue.core.claimer.flush())
    return first, second


def test_what_nobody_here_handles_is_released_also_under_its_second_receipt(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    held = Held()
    queue.send("work", headers={"task": "unknown"})
    here = executions(queue, GivenHandlers(factory=held))
    handed_out_twice(queue, clock, here, held)
    assert held.times == 2
    assert queue.counts().parked == 1


def test_work_that_succeeded_is_acked_by_the_second_receipt_if_the_first_was_lost(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    held = Held()
    queue.send("work")
    here = executions(queue, GivenHandlers(Handler("work", held)))
    first = taken(queue)
    working = threading.Thread(target=here.carry_out, args=(first,))
    working.start()
    assert held.entered.wait(DEADLINE)
    first.renew_until = clock.now()
    clock.advance("11s")
    second = taken(queue)
    here.carry_out(second)
    first.settled = "lost"
    held.open.set()
    working.join(DEADLINE)
    queue.run(queue.core.claimer.flush())
    assert (held.times, second.settled, queue.counts().total) == (1, "acked", 0)
