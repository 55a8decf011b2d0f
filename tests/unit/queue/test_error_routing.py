"""One thread or task leads for all of a process: whose error is it, and what becomes of its work when it is stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import MessageQueue, aio
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable, Undecodable
from astyqueue.model.message import Message
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Read, Request, Steps, perform, run
from astyqueue.queue.consuming.leader_follower import Leadership
from astyqueue.queue.consuming.waiters import Waiters
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.hooks import HookNotifier
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Batch, Named, Put
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Rest, Wakeup

DEADLINE = 10


class Stubborn(Faulty):
    """Keeps the next request of a kind waiting until it is let go, and fails those that `refuses` names."""

    def __init__(self, clock: TimeMachine) -> None:
        super().__init__(MemoryStore(clock))
        self.kept: type[Request] | None = None
        self.refuses: Callable[[Request], bool] = lambda _: False
        self.entered = threading.Event()
        self.open = threading.Event()

    def perform(self, request: Request) -> object:
        if self.kept is not None and isinstance(request, self.kept):
            self.kept = None
            self.entered.set()
            assert self.open.wait(DEADLINE)
        if self.refuses(request):
            message = "not now"
            raise StoreUnavailable(message)
        return super().perform(request)

    def spoil(self, row: str) -> None:
        """Have no claim go through in a row; settles need no header."""
        self.send(Batch(row, (Put(HEADER, b"nonsense"),)))


@pytest.fixture
def store(clock: TimeMachine) -> Stubborn:
    return Stubborn(clock)


@pytest.fixture
def queue(clock: TimeMachine, store: Stubborn) -> MessageQueue:
    return MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).build()


def test_an_ack_that_leads_is_not_told_that_a_claim_failed(
    queue: MessageQueue, store: Stubborn, clock: TimeMachine
) -> None:
    """The thread that acks is kept waiting until another one wants messages; then it leads, and claims for that one."""
    queue.send("one")
    [held] = queue.receive()
    assert not queue.receive(), "claims and settles take turns, and the next is a claim"
    store.spoil(held.row)
    clock.advance("6s")
    store.kept = Read
    with ThreadPoolExecutor(2) as threads:
        acking = threads.submit(held.ack)
        assert store.entered.wait(DEADLINE)
        taking = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        store.open.set()
        acking.result(DEADLINE)
        with pytest.raises(Undecodable):
            taking.result(DEADLINE)
    assert queue.stats.acked == 1


def test_a_task_that_acks_is_not_told_that_a_claim_failed(store: Stubborn, clock: TimeMachine) -> None:
    async def scene() -> None:
        async with (
            await aio.MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).build() as queue
        ):
            await queue.send("one")
            [held] = await queue.receive()
            assert not await queue.receive()
            store.spoil(held.row)
            clock.advance("6s")
            store.kept = Read
            acking = asyncio.create_task(held.ack())
            assert await asyncio.to_thread(store.entered.wait, DEADLINE)
            taking = asyncio.create_task(queue.receive(1, wait="1h"))
            await asyncio.wait([taking], timeout=0)
            store.open.set()
            await acking
            with pytest.raises(Undecodable):
                await taking

    asyncio.run(asyncio.wait_for(scene(), timeout=3 * DEADLINE))


def commits(request: Request) -> bool:
    return isinstance(request, Commit)


def test_a_thread_that_waits_for_messages_is_not_told_that_an_ack_failed(
    queue: MessageQueue, store: Stubborn, clock: TimeMachine
) -> None:
    queue.send("one")
    [held] = queue.receive()
    with ThreadPoolExecutor(1) as threads:
        taking = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        store.refuses = commits
        with pytest.raises(StoreUnavailable):
            held.ack()
        store.refuses = lambda _: False
        held.ack()
        queue.send("two")
        assert [delivery.body for delivery in taking.result(DEADLINE)] == ["two"]


def test_a_task_that_waits_for_messages_is_not_told_that_an_ack_failed(store: Stubborn, clock: TimeMachine) -> None:
    async def scene() -> None:
        async with (
            await aio.MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).build() as queue
        ):
            await queue.send("one")
            [held] = await queue.receive()
            taking = asyncio.create_task(queue.receive(1, wait="1h"))
            await asyncio.wait([taking], timeout=0)
            store.refuses = commits
            with pytest.raises(StoreUnavailable):
                await held.ack()
            store.refuses = lambda _: False
            await held.ack()
            await queue.send("two")
            assert [delivery.body for delivery in await taking] == ["two"]

    asyncio.run(asyncio.wait_for(scene(), timeout=3 * DEADLINE))


def test_an_ack_is_not_told_that_an_outcome_of_another_row_failed(store: Stubborn, clock: TimeMachine) -> None:
    """One outcome that no thread waits for could not be recorded; it is recorded later."""
    builder = MessageQueue.builder().store(store).name("emails").lease("30s").concurrency_shards(2).clock(clock)
    queue = builder.build()
    for body in ("one", "two"):
        queue.send(body)
    first, second = [queue.receive(1)[0] for _ in range(2)]
    assert first.row != second.row
    store.refuses = lambda request: isinstance(request, Commit) and request.batch.row == first.row
    queue.core.claimer.settle_later(first, ACK)
    with pytest.raises(StoreUnavailable):
        queue.run(queue.core.claimer.flush())
    second.ack()
    store.refuses = lambda _: False
    queue.run(queue.core.claimer.flush())
    assert (queue.stats.acked, queue.counts().total) == (2, 0)


class Process:
    """Two waiters of one process, each carried out step by step."""

    def __init__(self, clock: TimeMachine) -> None:
        self.store = MemoryStore(clock)
        self.core = QueueRuntime(Settings(name="mail", layout=Layout(concurrency_shards=8)), clock, ())
        self.got: list[BaseDelivery] = []

    def taker(self) -> Steps[None]:
        return self.core.claimer.serve(Waiter(lambda: 1, self.got.extend), lambda: False)

    def go_on(self, steps: Steps[None], *, until: Callable[[Request], bool]) -> None:
        """Carry out requests up to one such as this."""
        request = next(steps)
        while not until(request):
            request = steps.send(perform(request, self.store))

    def send(self) -> None:
        run(self.core.send_many([None], Message(None)), self.store)


def rests(request: Request) -> bool:
    return isinstance(request, Rest)


def knows(request: Request) -> bool:
    """Whether it begins to look at a row."""
    return isinstance(request, Read) and request.exact and isinstance(request.wanted[0], Named)


def test_the_row_that_a_stopped_leader_was_reading_is_read_by_the_next_leader_at_once(clock: TimeMachine) -> None:
    process = Process(clock)
    first, second = process.taker(), process.taker()
    process.go_on(first, until=rests)
    process.go_on(second, until=rests)
    clock.advance("3s")
    process.send()
    process.go_on(first, until=knows)
    first.close()
    process.go_on(second, until=rests)
    assert len(process.got) == 1
    second.close()


class Meddled(TimeMachine):
    """A clock at whose next reading something happens."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: Callable[[], None] | None = None

    def monotonic(self) -> MonotonicUs:
        happens, self.happens = self.happens, None
        if happens:
            happens()
        return super().monotonic()


def test_a_waiter_may_leave_while_the_leader_counts_shares() -> None:
    clock = Meddled()
    seats, credit = Waiters(clock), [0]
    stays, leaves = Waiter(lambda: credit[0], lambda _: None), Waiter(lambda: 0, lambda _: None)
    seats.add(stays)
    seats.add(leaves)
    assert seats.shares() == {}
    clock.advance("1s")
    credit[0] = 1
    clock.happens = lambda: seats.remove(leaves)
    assert seats.shares() == {stays: 1}
    assert seats.full_for == SECOND


def test_a_waiter_that_leaves_has_no_other_asked_for_credit() -> None:
    """Only the leader does: a dispatcher's line is not to be asked from two threads at once."""
    seats = Waiters(TimeMachine())
    asked: list[str] = []

    def credit() -> int:
        asked.append("credit")
        return 1

    stays, leaves = Waiter(credit, lambda _: None), Waiter(lambda: 0, lambda _: None)
    seats.add(stays)
    seats.add(leaves)
    seats.remove(leaves)
    assert asked == []


def test_the_time_for_which_a_lone_waiter_is_away_counts_as_without_credit() -> None:
    clock = TimeMachine()
    seats, seat = Waiters(clock), Waiter(lambda: 1, lambda _: None)
    for _ in range(2):
        seats.add(seat)
        assert seats.shares() == {seat: 1}
        seats.remove(seat)
        clock.advance("2s")
    assert seats.full_for == 2 * SECOND


class Next(Wakeup):
    """A waiter; records when it becomes the leader."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(SystemClock())
        self._told = told

    def set(self) -> None:
        self._told.append("the next one leads")
        super().set()


def test_what_an_error_undoes_is_undone_before_another_waiter_leads() -> None:
    """Otherwise the next one commits what its owner learned to have failed, and may try again."""
    told: list[str] = []

    def fails(me: Wakeup, until: MonotonicUs | None) -> Steps[None]:
        yield Rest(me, until)
        raise ConnectionError

    lead = Leadership(SystemClock(), fails, HookNotifier(()))
    first = lead.take_part(lambda: False, Wakeup(SystemClock()), until=None, undo=lambda: told.append("undone"))
    next(first)
    following = lead.take_part(lambda: False, Next(told), until=None)
    next(following)
    with pytest.raises(ConnectionError):
        next(first)
    assert told == ["undone", "the next one leads"]
