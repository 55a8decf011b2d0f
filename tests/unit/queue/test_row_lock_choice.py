"""Saying which lock is wanted, in threads and in tasks, and the error when it cannot be one."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from astyqueue import MessageQueue, aio
from astyqueue.errors import BadSetting
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from benchmarks.processes.consumers import FileLocks
from tests.unit.queue.lock_managers import Broken, Shelf, Silent


class Awaited:
    async def acquire(self, row: str) -> bool:
        return bool(row)

    async def release(self, row: str) -> None:
        del row


@pytest.mark.parametrize("lock", ["guard", "columns", Shelf()], ids=["guard", "columns", "manager"])
@pytest.mark.every_store
def test_a_queue_works_under_each_lock(builder: QueueBuilder[MessageQueue], lock: str) -> None:
    with builder.row_lock(lock).build() as queue:
        queue.send_many(range(5))
        with queue.receive(limit=10, wait="20s") as batch:
            assert [delivery.body for delivery in batch] == [0, 1, 2, 3, 4]
        assert queue.counts().total == 0


def test_tasks_do_not_wait_in_their_loop_for_a_manager(store: Store, clock: TimeMachine) -> None:
    manager = Silent()

    async def scene() -> None:
        builder = aio.MessageQueue.builder().store(store).name("emails").clock(clock)
        async with await builder.row_lock(manager).build() as queue:
            await queue.send("one")
            taking = asyncio.create_task(_first(queue))
            assert await asyncio.to_thread(manager.asked.wait, 10)
            assert not taking.done()
            manager.answers.set()
            assert await taking == "one"

    asyncio.run(asyncio.wait_for(scene(), timeout=30))
    assert manager.done.wait(10)
    assert manager.taken == set()


async def _first(queue: aio.MessageQueue) -> object:
    async with await queue.receive(wait="20s") as batch:
        return next(iter(batch)).body


def test_a_task_that_is_cancelled_while_it_waits_for_a_manager_leaves_no_row_locked(
    store: Store, clock: TimeMachine
) -> None:
    manager = Silent()

    async def scene() -> None:
        builder = aio.MessageQueue.builder().store(store).name("emails").clock(clock)
        async with await builder.row_lock(manager).build() as queue:
            await queue.send("one")
            taking = asyncio.create_task(_first(queue))
            assert await asyncio.to_thread(manager.asked.wait, 10)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            manager.answers.set()

    asyncio.run(asyncio.wait_for(scene(), timeout=30))
    assert manager.done.wait(10)
    assert manager.taken == set()


def test_what_a_manager_raises_reaches_no_consumer(builder: QueueBuilder[MessageQueue]) -> None:
    with builder.row_lock(Broken()).build() as queue:
        queue.send("one")
        assert list(queue.receive()) == []
        assert queue.stats.busy_rows == 1


def test_the_thread_that_asks_a_manager_ends_with_its_queue(store: Store, clock: TimeMachine) -> None:
    before = set(threading.enumerate())
    with MessageQueue.builder().store(store).name("emails").clock(clock).row_lock(Shelf()).build() as queue:
        queue.send("one")
        queue.receive()
        [asking] = set(threading.enumerate()) - before
    del queue
    gc.collect()
    asking.join(10)
    assert not asking.is_alive()


def test_locks_of_files_keep_out_whoever_else_asks(tmp_path: Path) -> None:
    ann, bob = FileLocks(str(tmp_path)), FileLocks(str(tmp_path))
    assert ann.acquire("emails:0:0")
    assert not bob.acquire("emails:0:0")
    assert bob.acquire("emails:0:1")
    ann.release("emails:0:0")
    assert bob.acquire("emails:0:0")
    for row in ("emails:0:0", "emails:0:1"):
        bob.release(row)


@pytest.mark.parametrize(
    ("lock", "told"),
    [
        ("column", r"'column' is not a row lock: give \"guard\", \"columns\""),
        (Shelf, "is not a row lock"),
        (object(), r"an object with acquire\(row\) -> bool and release\(row\)"),
        (None, "is not a row lock"),
        (Awaited(), "ordinary functions"),
    ],
    ids=["misspelled", "a class", "an object", "none", "awaited"],
)
def test_what_is_no_lock_is_refused_when_it_is_named(builder: QueueBuilder[MessageQueue], lock: str, told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        builder.row_lock(lock)


@pytest.mark.parametrize("timeout", ["99ms", "11m", 0])
def test_a_timeout_that_would_stop_rows_too_long_or_not_at_all_is_refused(
    builder: QueueBuilder[MessageQueue], timeout: str
) -> None:
    with pytest.raises(BadSetting, match="must be from 100ms to 10m"):
        builder.row_lock("columns", timeout=timeout)
