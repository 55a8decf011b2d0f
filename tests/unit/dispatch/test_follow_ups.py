"""Handlers of every kind send messages that go with the ack of their delivery, and only with it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from weakref import ReferenceType, ref

import pytest

from astyqueue import Connection, Dispatcher, aio, connect
from astyqueue.dispatch.execution.delivery_execution import HandlerExecutions
from astyqueue.dispatch.flow_control import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.handlers.handler import Handler
from astyqueue.dispatch.handlers.handler_registry import GivenHandlers, HandlerRegistry
from astyqueue.dispatch.handlers.middleware import HandlerWrapping
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.runtime import ReceiveRequest
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch import in_children
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Stage


def bodies(queue: MessageQueue) -> list[object]:
    return [found.body for found in queue.peek(100, "all")]


def threaded(delivery: Delivery | aio.Delivery) -> None:
    if delivery.body == "first":
        delivery.then("second", delay="1h")


async def awaited(delivery: aio.Delivery) -> None:
    threaded(delivery)


@pytest.mark.every_store
@pytest.mark.parametrize("handler", [threaded, awaited])
def test_a_follow_up_is_sent_when_the_handler_returns(stage: Stage, handler: Callable[..., object]) -> None:
    stage.queue.send("first")
    stage.start(handler)
    assert stage.when_settled(1) == {"acked": 1}
    assert bodies(stage.queue) == ["second"]


def test_a_chain_of_follow_ups_runs_to_its_end(stage: Stage) -> None:
    def count_down(delivery: Delivery) -> None:
        if delivery.body:
            delivery.then(int(str(delivery.body)) - 1)

    stage.queue.send(20)
    stage.start(count_down)
    assert stage.when_settled(21) == {"acked": 21}
    assert stage.queue.counts().total == 0


def test_a_handler_that_fails_sends_nothing(stage: Stage) -> None:
    def fails(delivery: Delivery) -> None:
        delivery.then("second")
        problem = "no such address"
        raise LookupError(problem)

    stage.queue.send("first")
    stage.start(fails, max_attempts=1)
    assert stage.when_settled(1) == {"rejected": 1}
    assert "second" not in bodies(stage.queue)
    assert len(stage.queue.dead_letters()) == 1


def test_each_message_of_a_batch_has_its_own(stage: Stage) -> None:
    def together(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.then(f"after {delivery.body}", delay="1h")

    stage.queue.send_many(["one", "two", "three"])
    stage.start(together, batch=(3, "1s"))  # type: ignore[arg-type]  # a batch handler
    assert stage.when_settled(3) == {"acked": 3}
    assert sorted(map(str, bodies(stage.queue))) == ["after one", "after three", "after two"]


def test_a_handler_in_a_process_sends_to_its_own_queue(stage: Stage) -> None:
    stage.queue.send("first")
    dispatcher = Dispatcher.builder().queue(stage.queue).handler(in_children.following, kind="process").processes(1)
    stage.begin(dispatcher.build())
    assert stage.when_settled(1) == {"acked": 1}
    [second] = stage.queue.find("k")
    assert (second.body, second.key) == ("second", "k")
    stage.queue.send("elsewhere", max_attempts=1)
    assert stage.when_settled(2) == {"acked": 1, "rejected": 1}
    assert "leave out queue=" in stage.queue.dead_letters()[0].reason


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_members_of_enums_are_options_of_a_follow_up_whatever_runs_the_handler(stages: Stages, kind: str) -> None:
    stage = stages(priorities=2, max_attempts=1)
    builder = (
        Dispatcher.builder()
        .queue(stage.queue)
        .handler(in_children.following_with_members_of_enums, task="t", kind=kind)
    )
    stage.queue.send("first", headers={"task": "t"})
    stage.begin(builder.processes(1).build())
    assert stage.when_settled(1) == {"acked": 1}
    [keyed] = stage.queue.find("ada")
    assert (keyed.body, dict(keyed.headers)) == ("keyed", {"ada": "ada"})
    assert type(keyed.key) is str
    assert sorted((found.body, found.group) for found in stage.queue.browse()) == [("grouped", "ada"), ("keyed", None)]
    stage.queue.send("wrong", headers={"task": "t"})
    assert stage.when_settled(2) == {"acked": 1, "rejected": 1}
    assert stage.queue.dead_letters()[0].reason.startswith("BadInput: ")


def test_a_message_delivered_again_while_it_is_handled_keeps_its_follow_ups(clock: TimeMachine) -> None:
    queue = Connection(MemoryStore(clock), clock).queue("emails", lease="10s", time_shards=1, concurrency_shards=1)
    queue.send("first")

    def taken() -> Delivery:
        [delivery] = queue.run(queue.core.take(ReceiveRequest(1, 0, queue.delivery, renew=True)))
        assert isinstance(delivery, Delivery)
        delivery.renew_until = clock.now()
        return delivery

    def slow(delivery: Delivery) -> None:
        delivery.then("second")
        clock.advance("11s")
        executions.carry_out(taken())

    registry = HandlerRegistry(GivenHandlers(Handler("slow", slow)), HandlerWrapping())
    executions = HandlerExecutions(queue, registry, AdaptivePrefetch(2, 10 * SECOND, None), MessageQuota(None))
    executions.carry_out(taken())
    queue.run(queue.core.claimer.flush())
    assert bodies(queue) == ["second"]


def test_a_queue_that_was_opened_for_a_follow_up_is_forgotten_with_its_object() -> None:
    with connect("memory://") as connection:
        emails, opened = connection.queue("emails"), list[ReferenceType[object]]()
        emails.send("first")
        with emails.receive(1) as deliveries:
            other = connection.queue("other")
            opened.append(ref(other.follow_ups))
            deliveries[0].then("second", queue=other)
        assert bodies(other) == ["second"]
        del deliveries, other
        gc.collect()
        assert [one() for one in opened] == [None]
