"""Middleware around the tasks of an app."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from astyqueue import BatchedCall, BatchMiddleware, aio
from astyqueue.dispatch.handlers.middleware import AnyMiddleware, Middleware
from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.tasks import App
from tests.support.places import Place


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    with App(place.url) as app:
        yield app


def noting(seen: list[object], name: str) -> Middleware:
    """Middleware that notes its name before the next call."""

    def note(delivery: Delivery, call_next: Callable[[Delivery], object]) -> object:
        seen.append(name)
        return call_next(delivery)

    return note


async def noting_later(deliveries: list[aio.Delivery], call_next: Callable[[object], Awaitable[object]]) -> object:
    return await call_next(deliveries)


def test_middleware_is_wrapped_around_every_task(app: App) -> None:
    seen: list[object] = []

    def around(delivery: Delivery, call_next: Callable[[Delivery], object]) -> object:
        seen.append("before")
        call_next(delivery)
        seen.append("after")
        return None

    app.task(name="welcome")(lambda: seen.append("welcome")).send()
    app.worker(middleware=[around], max_messages=1).run()
    assert seen == ["before", "welcome", "after"]


def test_middleware_of_an_app_is_around_the_tasks_of_each_of_its_workers(place: Place) -> None:
    seen: list[object] = []
    with App(place.url, middleware=[noting(seen, "app, first"), noting(seen, "app, second")]) as app:
        welcome = app.task(name="welcome")(lambda: seen.append("welcome"))
        welcome.send()
        app.worker(max_messages=1).run()
        assert seen == ["app, first", "app, second", "welcome"]
        seen.clear()
        welcome.send()
        app.worker(middleware=[noting(seen, "worker")], max_messages=1).run()
        assert seen == ["app, first", "app, second", "worker", "welcome"]


def test_middleware_of_an_async_app_is_around_its_tasks(place: Place) -> None:
    seen: list[object] = []

    async def note(delivery: aio.Delivery, call_next: Callable[[aio.Delivery], Awaitable[object]]) -> object:
        seen.append(f"attempt {delivery.attempt}")
        return await call_next(delivery)

    async def send_and_run() -> None:
        async with aio.App(place.url, middleware=[note]) as app:

            @app.task
            async def welcome() -> None:
                seen.append("welcome")

            await welcome.send()
            await (await app.worker(max_messages=1)).run()

    asyncio.run(send_and_run())
    assert seen == ["attempt 1", "welcome"]


def test_a_task_that_handles_batches_is_wrapped_in_middleware_that_takes_batches(app: App) -> None:
    seen: list[object] = []

    @BatchMiddleware
    def around(deliveries: list[Delivery], call_next: Callable[[list[Delivery]], object]) -> object:
        deliveries[0].reject("unwanted")
        seen.append(len(deliveries))
        return call_next(deliveries[1:])

    @app.task(queue="rows", batch=(3, "1h"))
    def insert(calls: list[BatchedCall[int]]) -> None:
        seen.append([call.argument for call in calls])

    single = app.task(queue="rows", name="single")(lambda: seen.append("single"))
    insert.send_many(insert.call(number) for number in range(3))
    app.worker(middleware=[noting(seen, "before"), around], max_messages=3).run()
    single.send()
    app.worker(middleware=[noting(seen, "before"), around], max_messages=1).run()
    assert seen == [3, [1, 2], "before", "single"]
    assert [one.reason for one in app.open("rows").dead_letters()] == ["unwanted"]


def test_an_async_task_that_handles_batches_is_wrapped_in_async_middleware_that_takes_batches(app: App) -> None:
    seen: list[object] = []

    @BatchMiddleware
    async def around(
        deliveries: list[aio.Delivery], call_next: Callable[[list[aio.Delivery]], Awaitable[object]]
    ) -> object:
        seen.append(len(deliveries))
        return await call_next(deliveries)

    @app.task(batch=(2, "1h"))
    async def insert(calls: list[aio.BatchedCall[int]]) -> None:
        seen.append([call.argument for call in calls])

    insert.send_many(insert.call(number) for number in range(2))
    app.worker(middleware=[around], max_messages=2).run()
    assert seen == [2, [0, 1]]


@pytest.mark.parametrize("middleware", [noting([], "single"), BatchMiddleware(noting_later)], ids=["single", "async"])
def test_a_task_that_handles_batches_is_refused_if_no_middleware_can_wrap_it(
    app: App, middleware: AnyMiddleware
) -> None:
    @app.task(name="insert", batch=(2, "1h"))
    def insert(calls: list[BatchedCall[int]]) -> None: ...

    with pytest.raises(BadSetting, match=r"insert is not async and handles batches.*is for the others.*BatchMiddlew"):
        app.worker(middleware=[middleware])


@pytest.mark.parametrize("middleware", ["trace", BatchMiddleware("trace")])  # type: ignore[arg-type]  # that is the point
def test_middleware_that_cannot_be_called_is_refused_when_the_app_is_made(middleware: AnyMiddleware) -> None:
    with pytest.raises(BadSetting, match="'trace' is not a handler: give a function"):
        App("memory://", middleware=[middleware])
