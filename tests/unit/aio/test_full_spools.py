"""A full spool whose store is away: tasks that wait for room can be cancelled, and hold no thread that others need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from astyqueue import Hook, Message, aio
from astyqueue.clock import SystemClock
from astyqueue.errors import Closed
from astyqueue.journal_errors import SpoolFull
from astyqueue.model.envelope import MessageId
from astyqueue.spool import ConnectionSpools, SpoolOptions
from astyqueue.stores.memory import MemoryStore
from tests.unit.spool.conftest import Gate

DEADLINE: Final = 10
CAP: Final = "64KiB"
LARGE: Final = "x" * 1_000
Scene = Callable[[aio.Connection, aio.MessageQueue], Awaitable[None]]


class Sends(Hook):
    """Notes the bodies of the messages that were sent."""

    def __init__(self) -> None:
        self.bodies: list[object] = []

    def after_send(self, message: Message, sent: MessageId) -> None:  # noqa: ARG002 - the signature of a hook
        self.bodies.append(message.body)


@pytest.fixture
def store() -> Gate:
    return Gate(MemoryStore(SystemClock()))


@pytest.fixture
def sends() -> Sends:
    return Sends()


@pytest.fixture
def play(store: Gate, sends: Sends, tmp_path: Path) -> Callable[[Scene], None]:
    """Runs a scene with a queue whose spool is full, and whose store is away until the scene ends."""

    def connection(when_full: str) -> aio.Connection:
        options = SpoolOptions.of(tmp_path, cap=CAP, when_full=when_full, drain=0)
        return aio.Connection(store, None, hooks=[sends], spools=ConnectionSpools(options))

    async def whole(scene: Scene) -> None:
        async with connection("raise") as filling:
            queue = await filling.queue("emails")
            store.is_away = True
            with pytest.raises(SpoolFull):
                await queue.send_many(["before", LARGE] for _ in count())
        sends.bodies.clear()
        async with connection("block") as blocking:
            try:
                await scene(blocking, await blocking.queue("emails"))
            finally:
                store.is_away = False

    return lambda scene: asyncio.run(asyncio.wait_for(whole(scene), timeout=30))


def started(queue: aio.MessageQueue, number: int) -> list[asyncio.Task[object]]:
    return [asyncio.create_task(queue.send([one, LARGE])) for one in range(number)]


async def delivered(store: Gate) -> list[object]:
    """The bodies in the store, without those that filled the spool."""
    async with await aio.MessageQueue.builder().store(store).name("emails").build() as queue:
        found: list[object] = []
        while received := await queue.receive(200):
            found += [delivery.body for delivery in received]
            await received.ack()
    return [body for body in found if body != ["before", LARGE]]


async def ended(task: asyncio.Task[None]) -> None:
    """The end of a task that must not depend on the store."""
    done, _ = await asyncio.wait([task], timeout=DEADLINE)
    assert done == {task}


def test_a_send_that_waits_for_room_ends_with_its_timeout_and_has_stored_nothing(
    play: Callable[[Scene], None], store: Gate
) -> None:
    async def impatient(queue: aio.MessageQueue) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await queue.send(["late", LARGE])

    async def scene(_: aio.Connection, queue: aio.MessageQueue) -> None:
        waiting = started(queue, 40)
        await ended(asyncio.create_task(impatient(queue)))
        store.is_away = False
        await asyncio.gather(*waiting)
        assert await queue.spool.drain("20s")
        assert sorted(await delivered(store)) == [[one, LARGE] for one in range(40)]  # type: ignore[type-var]  # they are lists

    play(scene)


def test_closing_a_connection_ends_the_sends_that_wait_for_room(play: Callable[[Scene], None]) -> None:
    async def scene(connection: aio.Connection, queue: aio.MessageQueue) -> None:
        waiting = started(queue, 40)
        await asyncio.wait(waiting, timeout=0)
        await ended(asyncio.create_task(connection.close()))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Closed] * 40

    play(scene)


def test_a_program_that_is_interrupted_while_it_waits_for_room_closes_its_connection(
    play: Callable[[Scene], None],
) -> None:
    async def program(connection: aio.Connection, queue: aio.MessageQueue) -> None:
        async with connection:
            await queue.send(["late", LARGE])

    async def scene(connection: aio.Connection, queue: aio.MessageQueue) -> None:
        running = asyncio.create_task(program(connection, queue))
        await asyncio.wait([running], timeout=0)
        running.cancel()
        await ended(running)
        with pytest.raises(Closed):
            await queue.send("later")

    play(scene)


def test_sends_that_wait_for_room_leave_the_threads_of_the_event_loop_to_the_service(
    play: Callable[[Scene], None],
) -> None:
    async def scene(_: aio.Connection, queue: aio.MessageQueue) -> None:
        waiting = started(queue, 40)
        await asyncio.wait(waiting, timeout=0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), DEADLINE) == 1
        status = await asyncio.wait_for(queue.spool.status(), DEADLINE)
        assert (status.messages > 30, status.failing_since is not None) == (True, True)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()

    play(scene)


def test_a_queue_sends_and_closes_while_the_service_has_taken_all_threads_of_the_event_loop(
    store: Gate, tmp_path: Path
) -> None:
    free = Event()

    async def scene() -> None:
        queue = await aio.MessageQueue.builder().store(store).name("emails").spool(tmp_path).build()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        taken = asyncio.create_task(asyncio.to_thread(free.wait, 30))
        try:
            await asyncio.wait([taken], timeout=0)
            await asyncio.wait_for(queue.send("a"), DEADLINE)
            assert (await asyncio.wait_for(queue.spool.status(), DEADLINE)).unreadable == 0
            await asyncio.wait_for(queue.close(), DEADLINE)
        finally:
            free.set()
        assert await delivered(store) == ["a"]

    asyncio.run(scene())


def test_hooks_get_the_messages_that_a_cancelled_send_many_has_stored(
    store: Gate, sends: Sends, tmp_path: Path
) -> None:
    many = [[number, LARGE] for number in range(200)]

    async def scene() -> None:
        builder = aio.MessageQueue.builder().store(store).name("emails").hook(sends)
        async with await builder.spool(tmp_path, cap=CAP, drain=0).build() as queue:
            store.is_away = True
            sending = asyncio.create_task(queue.send_many(many))
            while not (await queue.spool.status()).messages:
                assert not sending.done()
            sending.cancel()
            await asyncio.wait([sending], timeout=DEADLINE)
            assert sending.cancelled()
            stored = len(sends.bodies)
            assert 30 < stored < 65
            assert (queue.stats.spooled, sends.bodies) == (stored, many[:stored])
            store.is_away = False
            assert await queue.spool.drain("20s")
        assert sorted(await delivered(store)) == many[:stored]  # type: ignore[type-var]  # they are lists

    asyncio.run(asyncio.wait_for(scene(), timeout=30))
