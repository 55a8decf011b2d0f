"""A store that blocks, awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, get_ident

import pytest

from astyqueue import aio
from astyqueue.errors import BadInput, Closed
from astyqueue.store import (
    AsyncStore,
    Batch,
    Column,
    Committed,
    Expectation,
    Name,
    Named,
    Put,
    Refused,
    Slice,
    Store,
    Wanted,
)
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import Threaded, as_async
from astyqueue.stores.cassandra import CassandraStore
from astyqueue.stores.threadsafe_calls import LoopCalls, PerLoop
from astyqueue.testing import TimeMachine
from tests.support.forks import beside_threads, in_a_fork

NAME = Name(2, 0, bytes(16), 1)
DEADLINE = 60
WANTED = (Named("row", (NAME,)),)


@pytest.fixture(params=["memory://", "sqlite:///{directory}/threaded.db"])
def store(request: pytest.FixtureRequest, clock: TimeMachine, tmp_path: Path) -> Iterator[Store]:
    store = open_store(request.param.format(directory=tmp_path), clock=clock)
    yield store
    store.close()


def test_the_verbs_do_what_the_stores_verbs_do(store: Store) -> None:
    async def use(awaited: AsyncStore) -> None:
        await awaited.send(Batch("row", puts=(Put(NAME, b"1"),)))
        assert (await awaited.read(WANTED, exact=True))[0][0].value == b"1"
        batch = Batch("row", deletes=(NAME,))
        assert await awaited.commit(batch, (Expectation(NAME, None),)) == Refused({NAME: b"1"})
        assert await awaited.commit(batch, (Expectation(NAME, b"1"),)) == Committed()
        assert await awaited.read(WANTED) == [[]]
        with pytest.raises(BadInput):
            await awaited.send(Batch("row", puts=(Put(NAME, b"1"),), deletes=(NAME,)))
        await awaited.close()

    asyncio.run(use(Threaded(store)))


def test_after_close_every_verb_says_so(store: Store) -> None:
    async def use(awaited: AsyncStore) -> None:
        await awaited.close()
        await awaited.close()
        for verb in (awaited.read(WANTED), awaited.send(Batch("row")), awaited.commit(Batch("row"), ())):
            with pytest.raises(Closed):
                await verb

    asyncio.run(use(Threaded(store)))


def test_a_verb_that_begins_while_a_task_of_another_loop_closes_it_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited, here = Threaded(store), PerLoop.here

    def closed_meanwhile(per_loop: PerLoop[LoopCalls]) -> LoopCalls:
        monkeypatch.setattr(PerLoop, "here", here)
        closing = threading.Thread(target=lambda: asyncio.run(awaited.close()))
        closing.start()
        closing.join(DEADLINE)
        return here(per_loop)

    async def use() -> None:
        with pytest.raises(Closed):
            await awaited.read(WANTED)

    monkeypatch.setattr(PerLoop, "here", closed_meanwhile)
    asyncio.run(use())


def test_many_tasks_use_it_at_once(store: Store) -> None:
    async def use(awaited: AsyncStore) -> None:
        names = [Name(2, 0, bytes(15) + bytes((number,)), 1) for number in range(50)]
        await asyncio.gather(*(awaited.send(Batch("row", puts=(Put(name, name.id),))) for name in names))
        (columns,) = await awaited.read((Named("row", tuple(names)),))
        assert [column.value for column in columns] == [name.id for name in names]
        await awaited.close()

    asyncio.run(use(Threaded(store)))


@pytest.mark.parametrize("at_once", [3, 64])
def test_as_many_verbs_run_at_once_as_the_store_says(store: Store, at_once: int) -> None:
    together = Barrier(at_once)

    class Waiting:
        """A store whose reads are answered once `at_once` wait."""

        def __init__(self) -> None:
            self.at_once = at_once

        def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
            together.wait(timeout=30)
            return store.read(wanted, exact=exact)

        send, commit, close, spread = store.send, store.commit, store.close, store.spread

    async def use(awaited: AsyncStore) -> None:
        assert await asyncio.gather(*(awaited.read(WANTED) for _ in range(at_once))) == [[[]]] * at_once
        await awaited.close()

    asyncio.run(use(Threaded(Waiting())))


def test_a_store_says_how_many_verbs_are_worth_calling_at_once(store: Store) -> None:
    assert store.at_once < CassandraStore.at_once == 64


def test_the_event_loop_is_not_blocked(store: Store) -> None:
    loop_thread = get_ident()
    seen: set[int] = set()

    class Watched:
        def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
            seen.add(get_ident())
            return store.read(wanted, exact=exact)

        send, commit, close, spread, at_once = store.send, store.commit, store.close, store.spread, store.at_once

    async def use(awaited: AsyncStore) -> None:
        await awaited.read(WANTED)
        await awaited.close()

    asyncio.run(use(Threaded(Watched())))
    assert seen
    assert loop_thread not in seen


@beside_threads
def test_a_child_process_makes_threads_of_its_own(clock: TimeMachine, tmp_path: Path) -> None:
    def sent(number: int) -> bool:
        names = [Name(2, 0, bytes(14) + bytes((number, each)), 1) for each in range(8)]

        async def use() -> None:
            async with asyncio.timeout(DEADLINE):
                await asyncio.gather(*(awaited.send(Batch("row", puts=(Put(name, b""),))) for name in names))

        asyncio.run(use())
        return True

    store = open_store(f"sqlite:///{tmp_path}/forked.db", clock=clock)
    awaited = as_async(store)
    assert sent(1)
    assert in_a_fork(lambda: sent(2))
    assert sent(3)
    assert len(store.read((Slice("row", 2),))[0]) == 24
    store.close()


def test_the_queues_of_a_connection_share_its_threads(tmp_path: Path) -> None:
    async def use() -> None:
        async with await aio.connect(f"sqlite:///{tmp_path}/shared.db") as connection:
            queues = [await connection.queue(f"queue{number}") for number in range(5)]
            await asyncio.gather(*(queue.send(number) for number in range(10) for queue in queues))
            started = {thread for thread in threading.enumerate() if thread.name.startswith("astyqueue-store")} - before
            assert 0 < len(started) <= connection.blocking.store.at_once

    before = set(threading.enumerate())
    asyncio.run(use())
