from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from astyqueue import Hook, KeyTaken, LeaseLost, Message, aio, ids
from astyqueue.clock import instant
from astyqueue.errors import BadInput, NotFound
from astyqueue.model.envelope import encode_plain
from astyqueue.model.views import RescanReport
from astyqueue.protocol.sending.insert import message_put
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.producing import producer
from astyqueue.store import Batch, Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every, Triggers
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.dispatch.stage import Breaking

HOUR = 3_600 * SECOND
Scene = Callable[[aio.MessageQueue], Awaitable[None]]


@pytest.fixture
def play(place: Place, clock: TimeMachine) -> Callable[[Scene], None]:
    """Runs a scene with a queue that is open in an event loop of its own."""

    def run(scene: Scene) -> None:
        async def whole() -> None:
            builder = aio.MessageQueue.builder().store(place.store(clock)).name("emails").lease("30s").clock(clock)
            async with await builder.build() as queue:
                await scene(queue)

        asyncio.run(asyncio.wait_for(whole(), timeout=30))

    return run


@pytest.mark.every_store
def test_send_and_receive_are_awaited(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send({"to": "ada"})
        async with await queue.receive(10) as batch:
            assert [delivery.body for delivery in batch] == [{"to": "ada"}]
        assert (await queue.counts()).total == 0

    play(scene)


def test_what_is_not_understood_is_refused_here_too(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send("one")
        async with await queue.receive() as [delivery]:
            await delivery.reject("no such address")
        for verb in (queue.purge, queue.redrive, queue.dead_letters):
            with pytest.raises(BadInput, match="did you mean 'reason'"):
                await verb(reson="mailbox")  # type: ignore[call-arg]  # a misspelt name is what this is about
        with pytest.raises(BadInput, match="delay= beside it would be lost"):
            await queue.send(Message("two"), delay="10m")
        with pytest.raises(BadInput, match="delay= beside it would be lost"):
            await queue.send_many([Message("two")], delay="10m")
        counts = await queue.counts()
        assert (counts.total, counts.dead) == (1, 1)

    play(scene)


def test_an_async_generator_is_sent_as_it_yields(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "CHUNK", 2)

    async def scene(queue: aio.MessageQueue) -> None:
        seen: list[int] = []

        async def items(error: type[Exception] | None = None) -> AsyncGenerator[object, None]:
            for body in ("one", Message("two", key="ada", unique="reject"), "three"):
                yield body
            seen.append((await queue.counts()).total)
            yield Message("four", key="ada", unique="keep")
            yield Message("five", key="ada", unique="reject")
            if error:
                raise error

        report = await queue.send_many(items(), priority=0)
        ids = report.ids
        assert seen == [2]
        assert (ids[1], ids[3], ids[4], report.sent) == (ids[3], ids[1], None, 3)
        assert (report.kept, report.taken, report.vetoed) == ({3}, {4: ids[1]}, {})
        assert {found.id for found in await queue.peek()} == set(ids[:3])
        with pytest.raises(ZeroDivisionError):
            await queue.send_many(items(ZeroDivisionError))

    play(scene)


@pytest.mark.parametrize(
    ("single", "named"), [("abc", "str of length 3"), (b"abc", "bytes"), ({"a": 1}, "dict of length 1"), (5, "int")]
)
def test_one_body_is_not_sent_as_many(play: Callable[[Scene], None], single: Any, named: str) -> None:  # noqa: ANN401 - wrong types are the point
    async def scene(queue: aio.MessageQueue) -> None:
        with pytest.raises(BadInput, match=f"one {named}.* was given: give a list"):
            await queue.send_many(single)
        assert (await queue.counts()).total == 0

    play(scene)


@pytest.mark.every_store
def test_a_unique_key_is_free_once_its_message_is_acked(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        first = await queue.send("first", key="ada", unique="reject")
        with pytest.raises(KeyTaken, match="waiting"):
            await queue.send("second", key="ada", unique="reject")
        assert (await queue.send_many([Message("third", key="ada", unique="keep")])).ids == [first.id]
        async with await queue.receive():
            pass
        assert (await queue.send("fourth", key="ada", unique="reject")).new

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


@pytest.mark.every_store
def test_threads_and_tasks_share_a_store(place: Place) -> None:
    async def whole() -> None:
        async with await aio.connect(place.url) as connection:
            queue = await connection.queue("emails")
            await queue.send("by a task")
            assert await connection.queues() == ["emails"]
            assert (await connection.existing_queue("emails")).settings == queue.settings
            with pytest.raises(NotFound, match="there is no queue 'numbers'"):
                await connection.existing_queue("numbers")
            await connection.command("a worker that has ended", "stacks")
            assert await connection.workers() == []
            [held] = await queue.receive()
            assert (await queue.get(held.message_id)).standing == "in_flight"
            await queue.ack(str(held.receipt))

    asyncio.run(whole())


class Told(Hook):
    """Lets a task wait until this became of a delivery."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome
        self.times = asyncio.Semaphore(0)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        assert delivery.attempt == 1
        if outcome == self.outcome:
            self.times.release()


async def two_queues(store: Store, clock: TimeMachine, hook: Hook) -> tuple[aio.MessageQueue, aio.MessageQueue]:
    """One queue as two processes see it, the first of them with this hook."""

    def builder() -> QueueBuilder[Awaitable[aio.MessageQueue]]:
        return aio.MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock)

    return await builder().hook(hook).build(), await builder().build()


def test_leaving_endless_deliveries_early_is_closing_them(place: Place, clock: TimeMachine) -> None:
    async def scene() -> None:
        hook = Told("released")
        queue, another = await two_queues(place.store(clock), clock, hook)
        await queue.send_many(["in hand", "behind it"])
        before = asyncio.all_tasks()
        async for delivery in queue.deliveries(ahead=2):
            assert delivery.body == "in hand"
            break
        for _ in range(2):
            await hook.times.acquire()
        assert [(delivery.body, delivery.attempt) for delivery in await another.receive(5)] == [("behind it", 1)]
        clock.advance("5s")
        assert [(delivery.body, delivery.attempt) for delivery in await another.receive(5)] == [("in hand", 2)]
        await asyncio.wait(asyncio.all_tasks() - before or [asyncio.create_task(queue.counts())])
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(scene(), timeout=30))


def test_a_failure_of_the_store_only_delays_the_next_renewal(place: Place, clock: TimeMachine) -> None:
    async def scene() -> None:
        hook, store = Told("extended"), Breaking(place.store(clock))
        queue, another = await two_queues(store, clock, hook)
        await queue.send("long work")
        async with aclosing(queue.deliveries()) as deliveries:
            held = await anext(deliveries)
            store.broken = True
            clock.advance("13s")
            await asyncio.to_thread(store.when_refused)
            store.broken = False
            await asyncio.to_thread(clock.when_waiting, 1)
            for step in ("2s", "13s", "13s"):
                clock.advance(step)
                while hook.times.locked():  # what is renewed waits a few milliseconds for others to go along
                    await asyncio.to_thread(clock.when_waiting, 1)
                    clock.advance("5ms")
                await hook.times.acquire()
            assert len(await another.receive()) == 0
            await held.ack()

    asyncio.run(asyncio.wait_for(scene(), timeout=20))


def test_what_lies_behind_a_break_is_released_and_what_was_reached_is_acked(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(["a", "b", "c"])
        async with await queue.receive(3) as batch:
            bodies = iter(batch)
            assert [next(bodies).body, next(bodies).body] == ["a", "b"]
        assert [(delivery.body, delivery.attempt) for delivery in await queue.receive(3)] == [("c", 1)]
        assert queue.stats.acked == 2

    play(scene)


@pytest.mark.every_store
def test_schedules_are_awaited(play: Callable[[Scene], None], clock: TimeMachine) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        schedules = aio.Schedules(queue)
        made = await schedules.add("digest", Every("1h", start=instant(clock.now() + HOUR)), {"to": "ada"})
        assert made == await schedules.get("digest")
        assert [one.stored.name for one in await schedules.all()] == ["digest"]
        assert len(await schedules.next("digest", 3)) == 3
        assert (await schedules.pause("digest")).stored.paused
        assert not (await schedules.resume("digest")).stored.paused
        assert (await schedules.run("digest")).stored.run
        clock.advance("1h")
        assert await schedules.backfill("digest", instant(clock.now()), instant(clock.now())) == 1
        async with await queue.receive(10) as batch:
            assert [delivery.body for delivery in batch] == [{"to": "ada"}] * 3
        assert list(schedules.lateness()) == ["digest"]
        assert await schedules.delete("digest")
        assert await schedules.all() == []

    play(scene)


def test_a_connection_knows_triggers_of_ones_own(place: Place) -> None:
    triggers = Triggers()
    soon = triggers.register("soon")(lambda moment: moment + timedelta(minutes=1))

    async def scene() -> None:
        async with await aio.connect(place.url, triggers=triggers) as connection:
            schedules = aio.Schedules(await connection.queue("mail"))
            await schedules.add("digest", soon(), "hello")
            first, second = await schedules.next("digest", 2)
            assert second - first == timedelta(minutes=1)

    asyncio.run(scene())


def test_what_a_block_raised_is_in_the_history(play: Callable[[Scene], None], clock: TimeMachine) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send("bad", key="ada")
        (delivery,) = await queue.receive(1)
        with pytest.raises(LookupError):
            async with delivery:
                raise LookupError(delivery.body)
        clock.advance("5s")
        (failed,) = [event async for event in queue.history(key="ada", kinds=["failed"])]
        assert "raise LookupError(delivery.body)" in failed.trace

    play(scene)


@pytest.mark.every_store
def test_a_rescan_is_awaited(play: Callable[[Scene], None], clock: TimeMachine) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send("first")
        async with await queue.receive():
            pass
        long_ago = clock.now() - HOUR
        late = message_put(0, ids.at(long_ago), encode_plain(long_ago, b'"late"'), sent=long_ago)
        await queue.store.send(Batch("emails:0:0", (late,)))
        told: list[RescanReport] = []
        assert (await queue.rescan(instant(clock.now() - HOUR // 2))).listed == 0
        report = await queue.rescan(progress=told.append)
        assert (report.looked, report.listed, told[-1]) == (1, 1, report)
        assert (await queue.rescan()).listed == 0
        async with await queue.receive(10) as batch:
            assert [delivery.body for delivery in batch] == ["late"]

    play(scene)


def test_what_cannot_be_done_as_asked_is_bad_input(play: Callable[[Scene], None]) -> None:
    async def scene(awaited: aio.MessageQueue) -> None:
        queue: Any = awaited  # wrong types are the point
        for asked in (
            queue.peek("10"),
            queue.delete(key=5),
            queue.reject("receipt", 5),
            queue.send(1, trigger="1h"),
            queue.receive("1"),
        ):
            with pytest.raises(BadInput):
                await asked
        with pytest.raises(BadInput):
            await anext(queue.history(limit=-1))
        await queue.send("body")
        [delivery] = await queue.receive()
        with pytest.raises(BadInput):
            await delivery.reject(5)
        await delivery.ack()

    play(scene)


async def is_refused(call: Awaitable[object]) -> None:
    with pytest.raises(BadInput, match="transaction open"):
        await call


def test_a_call_inside_a_transaction_of_the_thread_of_the_loop_is_refused(tmp_path: Path) -> None:
    """Another thread would carry it out, and wait for the transaction, whose end would wait for the call."""

    async def whole() -> None:
        async with await aio.connect(f"sqlite:///{tmp_path}/mail.db") as connection:
            queue = await connection.queue("emails")
            with queue.blocking.transaction() as tx:
                tx.send("inside")
                for call in (queue.send("beside"), queue.receive(), queue.counts()):
                    await is_refused(call)
            assert [delivery.body for delivery in await queue.receive(10)] == ["inside"]

    asyncio.run(whole())


def test_several_deliveries_are_acked_together(play: Callable[[Scene], None]) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(range(30))
        batch = await queue.receive(10)
        await batch.ack()
        assert queue.stats.acked == 10
        async with aclosing(queue.deliveries(ahead=10)) as deliveries:
            async for delivery in deliveries:
                if delivery.body == 29:
                    await delivery.ack()
                    break
        assert (queue.stats.acked, (await queue.counts()).total) == (30, 0)

    play(scene)
