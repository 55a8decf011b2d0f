"""The dispatcher in the event loop of its caller: coroutines run there, with every promise of handlers in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from astyqueue import aio
from astyqueue.dispatch.asyncio_dispatcher import AwaitedBuilder
from astyqueue.errors import BadSetting, Closed, HandlersStuck, Retry
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.support.places import ONE_ROW, Place
from tests.unit.dispatch.conftest import Stages, stages, still
from tests.unit.dispatch.stage import Stage
from tests.unit.dispatch.test_asyncio_handlers import turn
from tests.unit.dispatch.test_outcomes import reasons
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines", "stages", "still"]

T = TypeVar("T")


def played(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(scene(), timeout=30)

    asyncio.run(whole())


def serving(stage: Stage, handle: Callable[[aio.Delivery], Awaitable[None]], **options: object) -> AwaitedBuilder:
    return aio.Dispatcher.builder().queue(stage.queue).handler(handle, **options)  # type: ignore[arg-type]  # as the test says


class Waiting:
    """A handler that reports each delivery it begins, and waits until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[object]()
        self.open = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, delivery: aio.Delivery) -> None:
        self.begun.put_nowait(delivery.body)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


where: ContextVar[str] = ContextVar("where", default="nowhere")


@pytest.mark.every_store
def test_coroutines_run_in_the_loop_of_the_caller_and_are_acked(place: Place, clock: TimeMachine) -> None:
    async def scene() -> None:
        loop, seen = asyncio.get_running_loop(), asyncio.Queue[tuple[object, str]]()

        async def handle(delivery: aio.Delivery) -> None:
            assert asyncio.get_running_loop() is loop
            seen.put_nowait((delivery.body, where.get()))
            where.set("in a handler")
            await turn()

        builder = aio.MessageQueue.builder().store(place.store(clock)).name("emails").clock(clock)
        async with await builder.build() as queue:
            await queue.send_many(range(20))
            where.set("at the start")
            async with await aio.Dispatcher.builder().queue(queue).handler(handle).build() as dispatcher:
                assert dispatcher.running
                assert [one.name for one in dispatcher.queues] == ["emails"]
                found = [await seen.get() for _ in range(20)]
            assert sorted(found) == [(number, "at the start") for number in range(20)]
            assert (await queue.counts()).total == 0
            assert not dispatcher.running
            assert "ended" in repr(dispatcher)
            with pytest.raises(Closed):
                await dispatcher.start()

    played(scene)


def two_parameters(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, T]) -> asyncio.Task[T]:
    return asyncio.Task(coroutine, loop=loop)


def refusing(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, T]) -> asyncio.Task[T]:
    if getattr(coroutine, "__qualname__", None) == "perform_awaited":
        message = "no more tasks"
        raise LookupError(message)
    return asyncio.Task(coroutine, loop=loop)


async def nothing(_: object) -> None:
    pass


@pytest.mark.parametrize("batch", [None, (1, 0)], ids=["single", "batch"])
@pytest.mark.parametrize(
    ("factory", "outcome"), [(two_parameters, "acked"), (refusing, "rejected")], ids=["plain", "refusing"]
)
def test_each_message_has_an_outcome_whatever_the_task_factory_of_the_loop_does(
    stages: Stages,
    clock: TimeMachine,
    factory: Any,  # noqa: ANN401 - its two forms
    outcome: str,
    batch: tuple[int, int] | None,
) -> None:
    stage = stages(clock, max_attempts=1)

    async def scene() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        stage.queue.send("one")
        async with await serving(stage, nothing, batch=batch).build() as dispatcher:
            await asyncio.to_thread(stage.when, lambda: stage.heard.asked == [("one", outcome)])
            await dispatcher.drain(None)
        assert stage.heard.outcomes == [("one", outcome)]

    played(scene)


def test_functions_run_in_threads_beside_them(still: Stage) -> None:
    async def scene() -> None:
        loop, ran = asyncio.get_running_loop(), asyncio.Queue[object]()

        def compute(_: Delivery) -> None:
            loop.call_soon_threadsafe(ran.put_nowait, threading.current_thread() is not threading.main_thread())

        async def handle(_: aio.Delivery) -> None:
            ran.put_nowait("in the loop")

        async with await serving(still, handle).handler(compute, task="compute").build():
            still.queue.send(1, headers={"task": "compute"})
            assert await ran.get() is True
            still.queue.send(2)
            assert await ran.get() == "in the loop"

    played(scene)


def test_no_more_coroutines_are_in_flight_than_asked_for(still: Stage) -> None:
    async def scene() -> None:
        waiting = Waiting()
        still.queue.send_many(range(5))
        async with await serving(still, waiting).coroutines(2).build():
            for _ in range(2):
                await waiting.begun.get()
            for _ in range(100):
                await turn()
            assert waiting.begun.empty()
            waiting.open.set()
            for _ in range(3):
                await waiting.begun.get()
        assert still.when_settled(5) == {"acked": 5}

    played(scene)


def test_leaving_the_block_waits_for_handlers_and_an_error_gives_their_messages_back(
    stages: Stages, clock: TimeMachine
) -> None:
    async def drained() -> None:
        stage, waiting = stages(clock), Waiting()
        stage.queue.send("one")
        async with await serving(stage, waiting).build():
            await waiting.begun.get()
            asyncio.get_running_loop().call_soon(waiting.open.set)
        assert stage.heard.outcomes == [("one", "acked")]

    async def failed() -> None:
        stage, waiting = stages(clock), Waiting()
        stage.queue.send("one")
        with suppress(KeyError):
            async with await serving(stage, waiting).build() as dispatcher:
                await waiting.begun.get()
                assert not dispatcher.abandoned
                raise KeyError
        await turn()
        assert dispatcher.abandoned
        assert waiting.cancelled == 1
        assert [(one.body, one.attempt) for one in stage.queue.receive()] == [("one", 1)]

    played(drained)
    played(failed)


def test_a_run_that_is_cancelled_gives_its_messages_back(still: Stage) -> None:
    async def scene() -> None:
        waiting = Waiting()
        still.queue.send("one")
        dispatcher = await serving(still, waiting).build()
        running = asyncio.create_task(dispatcher.run())
        await waiting.begun.get()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not dispatcher.running
        assert [(one.body, one.attempt) for one in still.queue.receive()] == [("one", 1)]

    played(scene)


def test_a_drain_that_is_cancelled_waits_for_no_handler(still: Stage) -> None:
    async def scene() -> None:
        waiting = Waiting()
        still.queue.send("one")
        dispatcher = await serving(still, waiting).build()
        await dispatcher.start()
        await waiting.begun.get()
        draining = asyncio.create_task(dispatcher.drain(None))
        await turn()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        await dispatcher.drain()
        assert [(one.body, one.attempt) for one in still.queue.receive()] == [("one", 1)]

    played(scene)


def test_a_loop_that_ends_first_gives_back_what_it_cancels(still: Stage, clock: TimeMachine, lines: Lines) -> None:
    kept: list[aio.Dispatcher] = []

    async def scene() -> None:
        waiting = Waiting()
        still.queue.send("one", max_attempts=1)
        kept.append(await (await serving(still, waiting).build()).start())
        await waiting.begun.get()

    played(scene)
    lines.first("cancelled")
    kept[0].blocking.drain(None)
    clock.advance("1s")
    assert [(one.body, one.attempt) for one in still.queue.receive()] == [("one", 1)]


def test_a_coroutine_past_its_timeout_is_cancelled_and_its_attempt_has_failed(
    stages: Stages, clock: TimeMachine
) -> None:
    async def scene() -> None:
        stage, waiting = stages(clock, **ONE_ROW), Waiting()
        stage.queue.send("slow", max_attempts=1)
        async with await serving(stage, waiting, timeout="10s").build():
            await waiting.begun.get()
            clock.advance("10s")
            await asyncio.to_thread(stage.when_settled, 1)
        assert waiting.cancelled == 1
        assert reasons(stage) == [("failed", "TimeoutError: no outcome within 10s", 1)]

    played(scene)


def test_a_coroutine_that_asks_for_a_retry_gets_one(stages: Stages) -> None:
    async def scene() -> None:
        stage, attempts = stages(), asyncio.Queue[int]()

        async def handle(delivery: aio.Delivery) -> None:
            attempts.put_nowait(delivery.attempt)
            if delivery.attempt == 1:
                raise Retry(0)

        stage.queue.send("again")
        async with await serving(stage, handle).build():
            assert [await attempts.get() for _ in range(2)] == [1, 2]
        assert stage.heard.outcomes[-1] == ("again", "acked")

    played(scene)


def test_a_start_that_is_cancelled_leaves_nothing_running(still: Stage) -> None:
    async def scene() -> None:
        waiting = Waiting()
        still.queue.send("one")
        dispatcher = await serving(still, waiting).build()
        starting = asyncio.create_task(dispatcher.start())
        await turn()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await dispatcher.drain()
        assert not dispatcher.running
        with pytest.raises(Closed):
            await dispatcher.start()

    played(scene)


def test_leases_are_renewed_while_a_handler_keeps_the_loop(stages: Stages, clock: TimeMachine) -> None:
    async def scene() -> None:
        stage, handled = stages(clock, lease="10s"), asyncio.Event()

        async def handle(_delivery: aio.Delivery) -> None:
            for _ in range(20):
                clock.advance("3s")
                stage.look_around()
            assert list(Stage(clock, stage.store).queue.receive(10)) == []
            handled.set()

        stage.queue.send("one")
        async with await serving(stage, handle).build():
            await handled.wait()
        assert stage.heard.outcomes[-1] == ("one", "acked")
        assert stage.queue.stats.lost == 0

    played(scene)


def test_a_handler_may_drain_its_dispatcher(still: Stage) -> None:
    async def scene() -> None:
        ended = asyncio.Event()

        async def handle(_: aio.Delivery) -> None:
            await dispatcher.drain()
            ended.set()

        dispatcher = await serving(still, handle).build()
        still.queue.send("one")
        await dispatcher.run()
        assert ended.is_set()

    played(scene)
    assert still.heard.outcomes == [("one", "acked")]


def test_too_many_stuck_handlers_end_the_run(still: Stage, clock: TimeMachine) -> None:
    async def scene() -> None:
        begun, let_go = asyncio.Event(), asyncio.Event()

        async def deaf(_: aio.Delivery) -> None:
            while not let_go.is_set():
                begun.set()
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    begun.set()

        still.queue.send("one")
        dispatcher = await serving(still, deaf, timeout="10s").max_stuck(1).build()
        running = asyncio.create_task(dispatcher.run())
        await begun.wait()
        begun.clear()
        clock.advance("10s")
        await begun.wait()
        clock.advance("5s")
        with pytest.raises(HandlersStuck):
            await running
        let_go.set()

    played(scene)


def test_queues_of_a_connection_join_by_pattern_and_by_hand(place: Place) -> None:
    async def scene() -> None:
        seen = asyncio.Queue[object]()

        async def handle(delivery: aio.Delivery) -> None:
            seen.put_nowait(delivery.body)

        async with await aio.connect(place.url) as connection:
            mail, other = await connection.queue("mail.ada"), await connection.queue("other")
            async with (
                await aio.Dispatcher.builder().queues("mail.*", connection).handler(handle).build() as dispatcher
            ):
                await mail.send(1)
                assert await seen.get() == 1
                dispatcher.add_queue(other, handle)
                await other.send(2)
                assert await seen.get() == 2
                dispatcher.remove_queue(other)
            with pytest.raises(BadSetting, match="twice"):
                aio.Dispatcher.builder().queue(mail).handler(handle).queue(mail)

    played(scene)


def test_a_loop_that_ends_first_gives_back_what_it_began_while_it_ended(still: Stage) -> None:
    finished, kept = threading.Event(), list[aio.Dispatcher]()

    async def forgotten() -> None:
        handle = Waiting()
        still.queue.send_many(["one", "two"])
        dispatcher = await serving(still, handle, backlog=1).coroutines(1, blocked_after="20ms").build()
        kept.append(await dispatcher.start())
        dispatcher.blocking.when_finished(finished.set)
        assert await handle.begun.get() == "one"
        [subscription] = dispatcher.blocking._subscriptions  # noqa: SLF001 - what waits here for a place
        while len(subscription.waiting) < 1:
            await turn()

    asyncio.run(forgotten())
    assert finished.wait(10)
    assert still.queue.counts().in_flight == 0
    [left] = kept[0].blocking._plan.pools._coroutine_pool()._in_flight.values()  # noqa: SLF001 - its loop never goes on
    left.task.get_coro().close()
    left.task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as this test wants it
