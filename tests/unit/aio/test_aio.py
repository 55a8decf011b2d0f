from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from astyqueue import LeaseLost, aio
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine

Scene = Callable[[aio.MessageQueue], Awaitable[None]]


@pytest.fixture
def play(clock: TimeMachine) -> Callable[[Scene], None]:
    """Runs a scene with a queue that is open in an event loop of its own."""

    def run(scene: Scene) -> None:
        async def whole() -> None:
            builder = aio.MessageQueue.builder().store(MemoryStore(clock)).name("emails").lease("30s").clock(clock)
            async with await builder.build() as queue:
                await scene(queue)

        asyncio.run(asyncio.wait_for(whole(), timeout=30))

    return run


def test_send_and_receive_are_awaited(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send({"to": "ada"})
        async with await queue.receive(10) as batch:
            assert [delivery.body for delivery in batch] == [{"to": "ada"}]
        assert (await queue.counts()).total == 0

    play(scene)


def test_a_task_waits_while_others_go_on(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        waiting = asyncio.create_task(queue.receive(1, wait="1h"))
        await queue.send("here")
        assert [delivery.body for delivery in await waiting] == ["here"]

    play(scene)


def test_an_error_gives_back_and_the_last_attempt_is_a_dead_letter(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.configure(max_attempts=1)
        await queue.send("bad")
        with pytest.raises(RuntimeError):
            async with await queue.receive() as batch:
                raise RuntimeError(batch[0].body)
        [letter] = await queue.dead_letters()
        assert letter.reason == "RuntimeError: bad"
        assert (await queue.redrive()).redriven == 1

    play(scene)


def test_a_late_ack_is_refused(play: Callable[[Scene], None], clock: TimeMachine) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send("one")
        [held] = await queue.receive()
        clock.advance("31s")
        [again] = await queue.receive()
        with pytest.raises(LeaseLost):
            await held.ack()
        await again.ack()

    play(scene)


def test_a_task_that_is_cancelled_while_it_waits_takes_nothing_with_it(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        waiting = asyncio.create_task(queue.receive(1, wait="1h"))
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await queue.send("for somebody else")
        assert [delivery.body for delivery in await queue.receive()] == ["for somebody else"]

    play(scene)


def test_endless_deliveries_ack_as_they_go_on(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(["a", "b"])
        async with aclosing(queue.deliveries()) as deliveries:
            assert (await anext(deliveries)).body == "a"
            last = await anext(deliveries)
            await last.ack()
        assert last.body == "b"
        assert (await queue.counts()).total == 0

    play(scene)


def test_twenty_tasks_share_what_there_is(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(range(100))

        async def take() -> list[object]:
            taken: list[object] = []
            while batch := await queue.receive(3):
                async with batch:
                    taken.extend(delivery.body for delivery in batch)
            return taken

        shares = await asyncio.gather(*[take() for _ in range(20)])
        assert sorted(int(str(body)) for share in shares for body in share) == list(range(100))

    play(scene)


def test_threads_and_tasks_share_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/both.db"

    async def whole() -> None:
        async with await aio.connect(url) as connection:
            queue = await connection.queue("emails")
            await queue.send("by a task")
            assert await connection.queues() == ["emails"]
            [held] = await queue.receive()
            assert (await queue.get(held.message_id)).standing == "in_flight"
            await queue.ack(str(held.receipt))

    asyncio.run(whole())
