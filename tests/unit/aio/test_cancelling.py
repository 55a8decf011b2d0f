"""A task that is cancelled while the store works on what it asked for: nothing of it is lost, for it or for others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import aio
from astyqueue.aio.delivery_loop import Deliveries
from astyqueue.errors import NotFound, OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.coordination.activity_log import read_notices
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Read, Request, Send, Steps, arun
from astyqueue.store import Batch, Slice
from astyqueue.stores.async_adapter import Threaded
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine

DEADLINE = 10


class Slow(Faulty):
    """Keeps one request of a kind until it is let go: done already, but not answered."""

    def __init__(self, clock: TimeMachine) -> None:
        super().__init__(MemoryStore(clock))
        self.kept: type[Request] | None = None
        self.entered = threading.Event()
        self.open = threading.Event()
        self.error: Exception | None = None
        self.at_commits: Callable[[], object] = lambda: None

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            self.at_commits()
        answer = super().perform(request)
        if self.kept is not None and isinstance(request, self.kept):
            self.kept = None
            self.entered.set()
            assert self.open.wait(DEADLINE)
            if self.error:
                raise self.error
        return answer

    async def when_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, DEADLINE)


@pytest.fixture
def store(clock: TimeMachine) -> Slow:
    return Slow(clock)


Scene = Callable[[aio.MessageQueue], Awaitable[None]]


@pytest.fixture
def play(clock: TimeMachine, store: Slow) -> Callable[[Scene], None]:
    """Runs a scene with a queue on the slow store."""

    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with (
                await aio.MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).build() as queue
            ):
                await scene(queue)

        asyncio.run(asyncio.wait_for(whole(), timeout=30))

    return run


async def cancelled(task: asyncio.Task[object]) -> None:
    """Once is not enough for some; it ends with the cancellation all the same."""
    task.cancel()
    await asyncio.wait([task], timeout=0)
    task.cancel()
    await asyncio.wait([task], timeout=0)


async def leading(queue: aio.MessageQueue) -> asyncio.Task[object]:
    """A task that leads, and rests."""
    task: asyncio.Task[object] = asyncio.create_task(queue.receive(1, wait="1h"))
    await asyncio.wait([task], timeout=0)
    return task


@pytest.mark.parametrize("error", [None, OutcomeUnknown("no answer")], ids=["answered", "unknown"])
def test_what_a_cancelled_leader_committed_for_others_is_not_told_as_lost(
    play: Callable[[Scene], None], store: Slow, error: Exception | None
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(["a", "b"])
        first, second = await queue.receive(2)
        leader = await leading(queue)
        store.kept, store.error = Commit, error
        acks = [asyncio.create_task(delivery.ack()) for delivery in (first, second)]
        await store.when_entered()
        await cancelled(leader)
        store.open.set()
        await asyncio.gather(*acks)
        assert leader.cancelled()
        assert (queue.stats.lost, queue.stats.acked) == (0, 2)
        assert (await queue.counts()).total == 0

    play(scene)


@pytest.mark.parametrize("lease", [None, 0])
def test_what_was_claimed_for_a_cancelled_consumer_is_delivered_again_at_once(
    play: Callable[[Scene], None], store: Slow, lease: int | None
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        taker = await leading(queue)
        store.kept = Commit
        await queue.send("for somebody", lease=lease)
        await store.when_entered()
        await cancelled(taker)
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await taker
        await queue.run(queue.core.claimer.flush())
        [again] = await queue.receive(1)
        assert (again.body, again.attempt) == ("for somebody", 1)

    play(scene)


def test_what_was_claimed_for_the_only_consumer_of_a_process_is_free_again_once_it_is_cancelled(
    play: Callable[[Scene], None], store: Slow, clock: TimeMachine
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(["a", "b"])
        store.kept = Commit
        receiving = asyncio.create_task(queue.receive(2))
        await store.when_entered()
        await cancelled(receiving)
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        async with await aio.MessageQueue.builder().store(store).name("emails").clock(clock).build() as another:
            again = await another.receive(5)
            assert sorted((str(one.body), one.attempt) for one in again) == [("a", 1), ("b", 1)]

    play(scene)


async def handle(deliveries: Deliveries, handled: list[object]) -> None:
    handled.extend([delivery.body async for delivery in deliveries])


@pytest.mark.parametrize("claiming", [False, True], ids=["waiting", "claiming"])
def test_a_loop_whose_deliveries_another_task_closes_ends_and_takes_nothing_with_it(
    play: Callable[[Scene], None], store: Slow, *, claiming: bool
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        handled: list[object] = []
        deliveries = queue.deliveries(ahead=2)
        loop = asyncio.create_task(handle(deliveries, handled))
        await asyncio.wait([loop], timeout=0)
        if claiming:
            store.kept = Commit
            await queue.send_many(["a", "b"])
            await store.when_entered()
        closing = asyncio.create_task(deliveries.aclose())
        await asyncio.wait([closing], timeout=0)
        store.open.set()
        await closing
        await loop
        if not claiming:
            await queue.send_many(["a", "b"])
        again = await queue.receive(5)
        assert (handled, [(one.body, one.attempt) for one in again]) == ([], [("a", 1), ("b", 1)])

    play(scene)


def test_a_loop_that_is_cancelled_while_another_task_closes_its_deliveries_is_cancelled(
    play: Callable[[Scene], None], store: Slow
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        deliveries = queue.deliveries()
        loop = asyncio.create_task(handle(deliveries, []))
        await asyncio.wait([loop], timeout=0)
        store.kept = Commit
        await queue.send("a")
        await store.when_entered()
        closing = asyncio.create_task(deliveries.aclose())
        await asyncio.wait([closing], timeout=0)
        await cancelled(loop)
        store.open.set()
        await asyncio.wait([loop, closing])
        assert (loop.cancelled(), closing.cancelled()) == (True, False)
        assert [one.body for one in await queue.receive(5)] == ["a"]

    play(scene)


def test_an_ack_that_was_cancelled_stands(play: Callable[[Scene], None], store: Slow) -> None:
    """A task that is cancelled while it waits for a commit has settled the message all the same."""

    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send_many(["a", "b"])
        first, second = await queue.receive(2)
        leader = await leading(queue)
        store.kept = Commit
        acks = [asyncio.create_task(delivery.ack()) for delivery in (first, second)]
        await store.when_entered()
        await cancelled(acks[1])
        store.open.set()
        await acks[0]
        await asyncio.wait([acks[1]])
        assert acks[1].cancelled()
        assert second.settled == "acked"
        leader.cancel()
        await asyncio.wait([leader])
        await queue.send("something else")
        assert [delivery.body for delivery in await queue.receive(5)] == ["something else"]
        assert queue.stats.lost == 0

    play(scene)


@pytest.mark.parametrize("settle", [aio.Delivery.ack, aio.Delivery.release], ids=["acked", "released"])
def test_an_outcome_is_committed_although_its_task_is_cancelled_before_the_commit_and_no_other_one_is_left(
    play: Callable[[Scene], None], store: Slow, clock: TimeMachine, settle: Callable[[aio.Delivery], Awaitable[None]]
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        await queue.send("work")
        [delivery] = await queue.receive(1)
        clock.advance("6s")  # the settings are read before the outcome is committed
        store.kept = Read
        settling = asyncio.ensure_future(settle(delivery))
        await store.when_entered()
        await cancelled(settling)
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await settling
        async with await aio.MessageQueue.builder().store(store).name("emails").clock(clock).build() as another:
            assert (await another.counts()).in_flight == 0

    play(scene)


def test_a_cancelled_ack_does_not_wait_for_what_others_settle_in_other_rows_meanwhile(
    store: Slow, clock: TimeMachine
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        for number in range(60):
            await queue.send(number)
        taken: list[aio.Delivery] = []
        while len(taken) < 60:
            taken += await queue.receive(60, wait="1s")
        mine = taken[0]
        others = [delivery for delivery in taken if delivery.message_id.row != mine.message_id.row]
        clock.advance("6s")  # the settings are read before the outcome is committed
        store.kept = Read
        acking = asyncio.ensure_future(mine.ack())
        await store.when_entered()
        await cancelled(acking)
        before, later = len(others), queue.core.claimer.settle_later
        store.at_commits = lambda: later(others.pop(), ACK) if others else None
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await acking
        with pytest.raises(NotFound):
            await queue.get(mine.message_id)
        assert before - len(others) <= 3 < before

    async def whole() -> None:
        builder = aio.MessageQueue.builder().store(store).name("emails").clock(clock).concurrency_shards(4)
        async with await builder.build() as queue:
            await scene(queue)

    asyncio.run(asyncio.wait_for(whole(), timeout=30))


def test_the_next_send_after_a_cancelled_one_writes_the_notice_for_idle_processes(
    play: Callable[[Scene], None], store: Slow, clock: TimeMachine
) -> None:
    async def scene(queue: aio.MessageQueue) -> None:
        clock.advance("1h")
        began = clock.now()
        store.kept = Send
        sending = asyncio.create_task(queue.send("a"))
        await store.when_entered()
        await cancelled(sending)
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await queue.run(read_notices(began, clock.now())) == []
        await queue.send("b")
        assert [one.queue for one in await queue.run(read_notices(began, clock.now()))] == ["emails"]

    play(scene)


@pytest.mark.parametrize("error", [None, StoreUnavailable("away")], ids=["answered", "failed"])
@pytest.mark.parametrize("last", [True, False], ids=["last request", "more to come"])
def test_steps_learn_the_answer_before_the_cancellation_comes(
    store: Slow, error: Exception | None, *, last: bool
) -> None:
    heard: list[object] = []

    def steps() -> Steps[object]:
        try:
            heard.append((yield Read((Slice("r", 0),))))
        except StoreUnavailable as away:
            heard.append(str(away))
            raise
        if not last:
            yield Send(Batch("r", ()))
        return "done"

    async def whole() -> None:
        store.kept, store.error = Read, error
        task: asyncio.Task[object] = asyncio.create_task(arun(steps(), Threaded(store)))
        await store.when_entered()
        await cancelled(task)
        assert not task.done()
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(whole(), timeout=30))
    assert heard == ["away" if error else [[]]]


class Opening:
    """Opens a store once a test says so, and notes that it was closed."""

    def __init__(self, clock: TimeMachine) -> None:
        self.store = Faulty(MemoryStore(clock))
        self.entered, self.open, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, *_: object, **__: object) -> Faulty:
        self.entered.set()
        assert self.open.wait(DEADLINE)
        return self.store

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.store, "close", self.closed.set)


@pytest.mark.parametrize("opened", [False, True], ids=["while it is opened", "when it is open"])
@pytest.mark.parametrize("way", ["connect", "build"])
def test_a_store_that_is_opened_for_a_cancelled_task_is_closed(
    clock: TimeMachine, monkeypatch: pytest.MonkeyPatch, way: str, *, opened: bool
) -> None:
    opening = Opening(clock)
    opening.watch(monkeypatch)
    monkeypatch.setattr("astyqueue.aio.connection.open_store", opening)
    monkeypatch.setattr("astyqueue.queue.builder.open_store", opening)

    async def whole() -> None:
        threads = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(threads)
        if way == "connect":
            task: asyncio.Future[object] = asyncio.ensure_future(aio.connect("memory://"))
        else:
            task = asyncio.ensure_future(aio.MessageQueue.builder().store("memory://").name("emails").build())
        await asyncio.wait([task], timeout=0)
        assert opening.entered.wait(DEADLINE)
        if opened:
            opening.open.set()
            threads.submit(int).result(DEADLINE)  # done after the opening, of which the loop has not heard
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        opening.open.set()
        assert await asyncio.to_thread(opening.closed.wait, DEADLINE)

    asyncio.run(asyncio.wait_for(whole(), timeout=30))
