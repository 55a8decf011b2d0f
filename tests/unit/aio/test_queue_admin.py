"""What operators do with a queue, awaited: each method does what that of the class for threads does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from astyqueue import LeaseLost, MessageQueue, aio
from astyqueue.errors import NotFound
from astyqueue.queue.builder import QueueBuilder
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every
from tests.support.places import Place

Queue = MessageQueue | aio.MessageQueue
Story = Callable[[Queue, TimeMachine], Awaitable[list[object]]]


async def done(call: object) -> Any:  # noqa: ANN401 - the result of any method
    """The result of a call of either class."""
    return await call if inspect.isawaitable(call) else call


async def inspecting(queue: Queue, clock: TimeMachine) -> list[object]:
    sent = await done(queue.send("mail", key="ada"))
    await done(queue.configure(max_active_processes=1))
    clock.advance("1m")
    why = str((await done(queue.explain(sent.id))).why)
    found = [(one.body, one.standing) for one in await done(queue.find("ada"))]
    [held] = await done(queue.receive())
    permits = (await done(queue.permits())).as_json()
    assert len(permits["active"]) == 1
    await done(held.ack())
    return [why.replace(str(sent.id), "it"), found, permits["limit"], permits["standby"]]


async def settling(queue: Queue, clock: TimeMachine) -> list[object]:
    """The lease of 30 seconds is extended to ten minutes by a text, and the message given back for an hour."""
    sent = await done(queue.send("mail"))
    [held] = await done(queue.receive())
    await done(queue.extend(str(held.receipt), "10m"))
    clock.advance("9m")
    told = [len(await done(queue.receive()))]
    await done(queue.release(held.receipt, "1h"))
    for call in (queue.release, queue.extend):
        with pytest.raises(LeaseLost):
            await done(call(held.receipt, "1h"))
    standing = (await done(queue.get(sent.id))).standing
    clock.advance("1h")
    [again] = await done(queue.receive())
    with pytest.raises(NotFound):
        await done(queue.dead_letter(sent.id))
    await done(again.reject("no such address"))
    letter = await done(queue.dead_letter(str(sent.id)))
    return [*told, standing, again.attempt, letter.body, letter.reason]


async def stopping(queue: Queue, clock: TimeMachine) -> list[object]:
    await done(queue.send("tick", key="clock", trigger=Every("1h", delay="1h")))
    stopped = [await done(queue.stop("clock")), await done(queue.stop("clock"))]
    clock.advance("1h")
    await done(queue.send_many(range(3)))
    await done(queue.pause())
    received = [queue.settings.behaviour.paused, len(await done(queue.receive(10)))]
    await done(queue.resume())
    received += [queue.settings.behaviour.paused, len(await done(queue.receive(2)))]
    gone = [await done(queue.clear()), (await done(queue.counts())).total]
    await done(queue.send("last"))
    gone.append(await done(queue.drop()))
    with pytest.raises(NotFound):
        await done(queue.configure(paused=True))
    return [stopped, received, gone]


@pytest.mark.parametrize(
    ("story", "told"),
    [
        (inspecting, [[("mail", "waiting")], 1, []]),
        (settling, [0, "snoozed", 1, "mail", "no such address"]),
        (stopping, [[True, False], [True, 0, False, 2], [3, 0, 1]]),
    ],
)
def test_each_method_does_in_a_task_what_it_does_in_a_thread(place: Place, story: Story, told: list[object]) -> None:
    def built(builder: QueueBuilder[Any], clock: TimeMachine) -> Any:  # noqa: ANN401 - a queue, or what becomes one
        return builder.store(place.store(clock)).name("emails").lease("30s").clock(clock).build()

    async def in_a_task() -> list[object]:
        clock = TimeMachine()
        async with await built(aio.MessageQueue.builder(), clock) as queue:
            return await story(queue, clock)

    async def in_a_thread() -> list[object]:
        clock = TimeMachine()
        with built(MessageQueue.builder(), clock) as queue:
            return await story(queue, clock)

    answers = asyncio.run(asyncio.wait_for(in_a_task(), timeout=30))
    assert answers[-len(told) :] == told
    assert answers == asyncio.run(in_a_thread())


def test_a_loop_over_deliveries_ends_when_the_queue_is_closed_and_a_closed_one_gives_no_more(
    place: Place, clock: TimeMachine
) -> None:
    async def scene() -> list[object]:
        queue = await aio.MessageQueue.builder().store(place.store(clock)).name("emails").clock(clock).build()
        await queue.send_many(["first", "second"])
        async with aclosing(queue.deliveries()) as left:
            assert (await anext(left)).body == "first"
        seen: list[object] = [one.body async for one in left]
        async with aclosing(queue.deliveries()) as deliveries:
            async for delivery in deliveries:
                seen.append(delivery.body)
                await delivery.ack()
                await queue.close()
        return seen

    assert asyncio.run(asyncio.wait_for(scene(), timeout=30)) == ["second"]
