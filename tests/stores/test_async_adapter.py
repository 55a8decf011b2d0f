"""A store that blocks, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, get_ident

import pytest

from astyqueue.errors import BadInput, Closed
from astyqueue.store import AsyncStore, Batch, Column, Committed, Expectation, Name, Named, Put, Refused, Store, Wanted
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import Threaded
from astyqueue.stores.cassandra import CassandraStore
from astyqueue.testing import TimeMachine

NAME = Name(2, 0, bytes(16), 1)
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
