"""Apps whose sends are awaited: one module of tasks for a service on an event loop, and for workers."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from astyqueue import aio
from astyqueue.dispatch.processes.child_main import Functions
from astyqueue.errors import BadInput, Closed
from astyqueue.tasks import current_delivery
from tests.support.places import Place
from tests.unit.dispatch.test_asyncio_handlers import turn
from tests.unit.tasks import child_tasks
from tests.unit.tasks.test_worker import Seen


def played(scene: Callable[[], Awaitable[object]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(scene(), timeout=60)

    asyncio.run(whole())


@pytest.fixture
def app(place: Place) -> aio.App:
    return aio.App(place.url)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.mark.every_store
def test_what_a_service_sends_a_worker_of_threads_runs(app: aio.App, seen: Seen) -> None:
    @app.task
    def welcome(address: str, lang: str = "en") -> None:
        seen.note((address, lang))

    @app.task
    async def count(upto: int) -> None:
        await turn()
        seen.note(upto)

    async def serve() -> None:
        sent = await welcome.send("ada")
        assert sent.new
        report = await welcome.using(priority=0).send_many([welcome.call("bob", lang="fr")])
        assert report.sent == 1
        assert (await count.send(3)).id != sent.id

    played(serve)
    with app.blocking as blocking, blocking.worker():
        assert sorted(map(str, seen.first(3))) == ["('ada', 'en')", "('bob', 'fr')", "3"]


@pytest.mark.every_store
def test_a_task_sends_calls_that_go_with_its_ack_to_its_own_queue_and_others(app: aio.App, seen: Seen) -> None:
    @app.task
    async def order(number: int) -> None:
        await bill.then(number)
        await mail.using(key=f"order {number}").then(number)

    @app.task
    async def bill(number: int) -> None:
        seen.note(("bill", number))

    @app.task(queue="mail")
    async def mail(number: int) -> None:
        seen.note((aio.current_delivery().key, number))

    async def serve() -> None:
        await order.send(7)

    played(serve)
    with app.blocking as blocking, blocking.worker():
        assert sorted(map(str, seen.first(2))) == ["('bill', 7)", "('order 7', 7)"]


def test_a_task_in_a_thread_sends_others_by_calls_that_block(app: aio.App, seen: Seen) -> None:
    @app.task
    def follow(name: str) -> None:
        seen.note(f"{name}, attempt {current_delivery().attempt}")

    @app.task
    def first() -> None:
        follow.blocking.send("second")
        follow.blocking.using(key="third").send("third")

    played(first.send)
    with app.blocking as blocking, blocking.worker():
        assert sorted(map(str, seen.first(2))) == ["second, attempt 1", "third, attempt 1"]


def test_a_worker_in_the_loop_runs_coroutines_there_and_functions_in_threads(app: aio.App) -> None:
    async def scene() -> None:
        loop, ran = asyncio.get_running_loop(), asyncio.Queue[object]()

        @app.task
        async def count(upto: int) -> None:
            assert asyncio.get_running_loop() is loop
            ran.put_nowait((upto, (await aio.current_delivery().extend("1m")) is not None))

        @app.task
        def compute() -> None:
            loop.call_soon_threadsafe(ran.put_nowait, threading.current_thread() is not threading.main_thread())

        async with app, await app.worker(concurrency=1, coroutines=2):
            await count.send(3)
            assert await ran.get() == (3, True)
            await compute.send()
            assert await ran.get() is True

    played(scene)


@pytest.mark.stores("sqlite")
def test_the_loop_goes_on_while_a_send_waits_for_the_store(app: aio.App, place: Place) -> None:
    @app.task
    def welcome() -> None: ...

    async def scene() -> None:
        await welcome.send()
        file = place.url.removeprefix("sqlite:///").partition("?")[0]
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            sending = asyncio.create_task(welcome.send())
            for _ in range(1_000):
                await turn()
            assert not sending.done()
            other.execute("ROLLBACK")
        await sending
        async with app:
            assert (await (await app.open()).counts()).total == 2

    played(scene)


def test_a_wrong_call_is_refused_before_the_store_is_opened(app: aio.App) -> None:
    @app.task
    def welcome(address: str) -> None: ...

    send: Any = welcome.send

    async def scene() -> None:
        with pytest.raises(TypeError, match="welcome was not sent"):
            await send()
        with pytest.raises(BadInput, match="argument address"):
            await send({1, 2})
        app.url = "memory://"  # which it refuses once the store is open

    played(scene)


def test_a_queue_is_opened_once_and_a_closed_app_sends_nothing(app: aio.App) -> None:
    @app.task
    def welcome() -> None: ...

    async def scene() -> None:
        async with app:
            one, other = await asyncio.gather(app.open(), app.open())
            assert one is other
            assert one.blocking.core is app.blocking.open().core
        with pytest.raises(Closed):
            await welcome.send()

    played(scene)


def test_a_queue_that_was_closed_is_opened_again_by_what_uses_it_next(app: aio.App) -> None:
    @app.task(queue="emails")
    async def welcome() -> None: ...

    async def scene() -> None:
        async with app:
            async with await app.open("emails") as queue:
                await queue.send("not a call")
            await welcome.send()
            assert (await (await app.open("emails")).counts()).waiting == 2
            assert await app.open("emails") is await app.open("emails")

    played(scene)


def test_schedules_are_stored_by_the_worker_and_by_hand(app: aio.App) -> None:
    @app.every("1h")
    def tidy() -> None: ...

    @app.cron("0 9 * * *", "Europe/Paris", queue="mornings")
    async def greet() -> None: ...

    async def scene() -> None:
        async with app:
            await app.open()
            done = await app.reconcile_all(dry_run=True)
            assert {queue: one.saved for queue, one in done.items()} == {
                "default": [tidy.name],
                "mornings": [greet.name],
            }
            assert (await app.reconcile(await app.open())).saved == [tidy.name]
            async with await app.worker():
                schedules = aio.Schedules(await app.open("mornings"))
                assert [one.name for one in await schedules.all()] == [greet.name]

    played(scene)


def test_a_child_process_finds_the_task_of_such_an_app_by_its_name() -> None:
    handler = child_tasks.awaited_write.handler
    assert handler.address == "tests.unit.tasks.child_tasks:awaited_write"
    assert Functions().at(handler.address).name == handler.address
