"""A builder whose `build` is called again: each dispatcher has handlers of its own, wrapped once."""

from __future__ import annotations

import threading

import pytest

from astyqueue import aio
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import Call
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Stage
from tests.unit.dispatch.test_asyncio_handlers import AsyncGate


def test_middleware_of_the_dispatcher_that_was_built_last_is_called_once_for_a_message(stage: Stage) -> None:
    seen: list[object] = []

    def trace(delivery: Delivery, call_next: Call) -> object:
        seen.append(delivery.body)
        return call_next(delivery)

    builder = Dispatcher.builder().queue(stage.queue).handler(lambda _: None).middleware(trace)
    builder.build().stop()
    dispatcher = stage.begin(builder.build())
    stage.queue.send("one")
    stage.when_settled(1)
    dispatcher.drain(None)
    assert seen == ["one"]


@pytest.mark.parametrize("runs", [0, 1], ids=["the first", "the second"])
def test_a_coroutine_of_a_factory_is_cancelled_by_the_dispatcher_that_runs_it(
    stages: Stages, clock: TimeMachine, runs: int
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    gate, handled = AsyncGate(), threading.Semaphore(0)

    async def handle(delivery: aio.Delivery) -> None:
        if delivery.body == "slow":
            await gate(delivery)
        handled.release()

    def send(body: str, then: threading.Semaphore) -> None:
        stage.queue.send(body, headers={"task": "mail"})
        while not then.acquire(timeout=0.05):
            clock.advance("1s")  # what went back because it is async is claimed again

    builder = Dispatcher.builder().queue(stage.queue).handlers(lambda _: handle, timeout="5s")
    first = stage.begin(builder.build())
    if runs == 1:
        send("quick", handled)
        first.drain(None)
    second = builder.build()
    dispatcher = [first, second][runs]
    if runs == 1:
        stage.begin(second)
    send("slow", gate.entered)
    clock.advance("5s")
    gate.when_cancelled()
    dispatcher.drain(None)
    assert stage.heard.outcomes[-1] == ("slow", "rejected")
