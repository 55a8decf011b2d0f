"""Middleware around the tasks of an app."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from astyqueue import aio
from astyqueue.dispatch.handlers import Middleware
from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.tasks import App
from tests.support.places import Place


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    with App(place.url) as app:
        yield app


def noting(seen: list[str], name: str) -> Middleware:
    """Middleware that notes its name before the next call."""

    def note(delivery: Delivery, call_next: Callable[[Delivery], object]) -> object:
        seen.append(name)
        return call_next(delivery)

    return note


def test_middleware_is_wrapped_around_every_task(app: App) -> None:
    seen: list[str] = []

    def around(delivery: Delivery, call_next: Callable[[Delivery], object]) -> object:
        seen.append("before")
        call_next(delivery)
        seen.append("after")
        return None

    app.task(name="welcome")(lambda: seen.append("welcome")).send()
    app.worker(middleware=[around], max_messages=1).run()
    assert seen == ["before", "welcome", "after"]


def test_middleware_of_an_app_is_around_the_tasks_of_each_of_its_workers(place: Place) -> None:
    seen: list[str] = []
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
    seen: list[str] = []

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


def test_middleware_that_cannot_be_called_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(BadSetting, match="'trace' is not a handler: give a function"):
        App("memory://", middleware=["trace"])  # type: ignore[list-item]  # that is the point
