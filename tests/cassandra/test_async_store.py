"""The Cassandra store as tasks use it, on a real node: faults on the way, and that nothing blocks their loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import thread as executor
from pathlib import Path

import pytest
from cassandra.cluster import Session

from astyqueue import aio, ids, stores
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput, Closed, OutcomeUnknown, StoreUnavailable
from astyqueue.store import AsyncStore, Batch, Committed, Expectation, Name, Named, Put, Slice, Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.async_adapter import as_async
from astyqueue.stores.cassandra import CassandraStore
from astyqueue.stores.cassandra.requests.loop_requests import IN_FLIGHT
from astyqueue.stores.cassandra.requests.queries import NAMES, PAGE
from astyqueue.stores.cassandra.store import AsyncCassandraStore
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import Contacts
from astyqueue.units import SECOND
from tests.support.forks import beside_threads, in_a_fork
from tests.support.proxy import Proxy

CLOCK = SystemClock()
ROW = "changed row"
HEADER = Name(0, 0, ids.LEAST, 0)
MESSAGE = Name(2, 0, ids.first_at(0), 1)
SEND = Batch(ROW, puts=(Put(MESSAGE, b"sent"),))
COMMIT = (Batch(ROW, puts=(Put(HEADER, b"1"),)), (Expectation(HEADER, None),))
DEADLINE = 60
STORES = str(Path(stores.__file__).parent)

Scene = Callable[[AsyncStore], Awaitable[None]]
Change = Callable[[AsyncStore], Awaitable[object]]
CHANGES: dict[str, Change] = {"send": lambda store: store.send(SEND), "commit": lambda store: store.commit(*COMMIT)}


@pytest.fixture
def proxy(cassandra: Contacts) -> Iterator[Proxy]:
    with Proxy(cassandra.contact_points[0], cassandra.port) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy, url: str) -> Iterator[Store]:
    """An empty store, by way of the proxy."""
    store = open_store(f"cassandra://{proxy.host}:{proxy.port}/{url.rpartition('/')[2]}", clock=CLOCK)
    yield store
    store.close()


@pytest.fixture
def unblocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Where the store made a thread wait that runs an event loop; none at the end, or the test has failed.

    That an executor waits for its new thread to start does not count.
    """
    waits: list[str] = []

    def in_store(file: str) -> bool:
        return file.startswith(STORES)

    def watched(wait: Callable[..., object]) -> Callable[..., object]:
        def waiting(*arguments: object, **named: object) -> object:
            files = {frame.filename for frame in traceback.extract_stack()}
            runs_loop = asyncio._get_running_loop() is not None  # noqa: SLF001 - the public one raises
            if runs_loop and executor.__file__ not in files and any(map(in_store, files)):
                waits.append("".join(traceback.format_stack()))
            return wait(*arguments, **named)

        return waiting

    monkeypatch.setattr(threading.Condition, "wait", watched(threading.Condition.wait))
    yield waits
    assert waits == []


@pytest.fixture
def play(store: Store, unblocked: list[str]) -> Callable[[Scene], None]:
    """Runs a scene in an event loop of its own, which must not block."""
    del unblocked

    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with asyncio.timeout(DEADLINE):
                await scene(as_async(store))

        asyncio.run(whole())

    return run


async def count(store: AsyncStore) -> int:
    """How many of the two columns are there."""
    ((*columns,),) = await store.read((Named(ROW, (HEADER, MESSAGE)),), exact=True)
    return len(columns)


def test_the_store_for_tasks_needs_no_threads(store: Store) -> None:
    assert isinstance(as_async(store), AsyncCassandraStore)
    assert as_async(store) is as_async(store)


def test_a_blocking_call_in_a_loop_would_be_noticed(store: Store, proxy: Proxy, unblocked: list[str]) -> None:
    async def blocking() -> None:
        proxy.hold_answers()
        with pytest.raises(OutcomeUnknown):
            store.send(SEND)

    asyncio.run(blocking())
    assert unblocked
    unblocked.clear()


def test_a_change_whose_answer_is_held_is_unknown_after_two_seconds_while_other_tasks_go_on(
    play: Callable[[Scene], None], proxy: Proxy
) -> None:
    async def scene(store: AsyncStore) -> None:
        proxy.hold_answers()
        began = CLOCK.monotonic()
        changes = [asyncio.ensure_future(change(store)) for change in CHANGES.values()]
        turns = 0
        while not all(change.done() for change in changes):
            await asyncio.wait(changes, timeout=0.01)
            turns += 1
        assert [type(change.exception()) for change in changes] == [OutcomeUnknown] * 2
        assert CLOCK.monotonic() - began >= 2 * SECOND
        assert turns > 10
        proxy.pass_on()
        assert await count(store) == 2

    play(scene)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_whose_answer_is_cut_off_is_unknown_and_was_made(
    play: Callable[[Scene], None], proxy: Proxy, change: Change
) -> None:
    async def scene(store: AsyncStore) -> None:
        proxy.cut_at_next_answer(ROW.encode())
        with pytest.raises(OutcomeUnknown):
            await change(store)
        assert await count(store) == 1

    play(scene)


def test_reads_outlive_a_broken_connection_and_changes_find_the_new_one(
    play: Callable[[Scene], None], proxy: Proxy
) -> None:
    async def scene(store: AsyncStore) -> None:
        for there, change in enumerate(CHANGES.values()):
            proxy.cut()
            assert await count(store) == there
            await change(store)
        assert await count(store) == 2

    play(scene)


def test_what_was_asked_by_a_cancelled_task_is_done_and_its_answer_dropped(
    play: Callable[[Scene], None], proxy: Proxy
) -> None:
    async def scene(store: AsyncStore) -> None:
        proxy.hold_answers()
        tasks = [asyncio.ensure_future(change(store)) for change in CHANGES.values()]
        await asyncio.wait(tasks, timeout=0.1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        proxy.pass_on()
        assert await count(store) == 2

    play(scene)


def test_a_loop_that_ends_with_requests_under_way_leaves_nothing_behind(
    store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def begun() -> None:
        asyncio.ensure_future(as_async(store).send(SEND))  # noqa: RUF006 - the loop cancels it when it ends
        await asyncio.wait([asyncio.ensure_future(as_async(store).commit(*COMMIT))], timeout=0.1)

    proxy.hold_answers()
    asyncio.run(begun())
    proxy.pass_on()
    assert asyncio.run(count(as_async(store))) == 2
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_more_columns_than_a_page_holds_are_read_whole_and_no_page_too_many(
    play: Callable[[Scene], None], store: Store
) -> None:
    async def scene(tasks: AsyncStore) -> None:
        assert isinstance(store, CassandraStore)
        names = tuple(Name(2, 0, id_, 1) for id_ in ids.IdSource(CLOCK).block(2 * PAGE + 10))
        parts = [names[start : start + 200] for start in range(0, len(names), 200)]
        await tasks.send(*(Batch(ROW, puts=tuple(Put(name, b"") for name in part)) for part in parts))
        asked = (Slice(ROW, 2, 0), Slice(ROW, 2), Slice(ROW, 2, after=names[10].id, limit=5), Named(ROW, names[::-1]))
        before = store.counters.requests
        whole, of_type, some, named = ([column.name for column in columns] for columns in await tasks.read(asked))
        assert whole == of_type == named == list(names)
        assert some == list(names[10:15])
        assert store.counters.requests - before == 3 + 3 + 1 + -(-len(names) // NAMES)

    play(scene)


def test_an_invalid_batch_is_refused_and_a_closed_store_says_so(play: Callable[[Scene], None]) -> None:
    async def scene(store: AsyncStore) -> None:
        with pytest.raises(BadInput):
            await store.send(Batch(ROW, puts=(Put(MESSAGE, b"1"),), deletes=(MESSAGE,)))
        await store.close()
        await store.close()
        for verb in (count(store), *(change(store) for change in CHANGES.values())):
            with pytest.raises(Closed):
                await verb

    play(scene)


@pytest.mark.full
def test_ten_thousand_requests_at_a_time_are_bounded_and_all_answered(play: Callable[[Scene], None]) -> None:
    async def scene(store: AsyncStore) -> None:
        names = [Name(2, 0, id_, 1) for id_ in ids.IdSource(CLOCK).block(10_000)]
        sent = asyncio.gather(*(store.send(Batch(ROW, puts=(Put(name, b""),))) for name in names))
        most = 0
        while not sent.done():
            await asyncio.wait([sent], timeout=0.01)
            most = max(most, _in_flight(store))
        await sent
        assert 0 < most <= IN_FLIGHT
        assert [column.name for (columns,) in [await store.read((Slice(ROW, 2),))] for column in columns] == names

    play(scene)


def _in_flight(store: AsyncStore) -> int:
    assert isinstance(store, AsyncCassandraStore)
    return store._requests.here()._in_flight  # noqa: SLF001 - nothing else shows it


@beside_threads
def test_both_sides_of_a_fork_go_on(store: Store) -> None:
    def committed(expected: bytes | None, value: bytes) -> bool:
        batch = Batch(ROW, puts=(Put(HEADER, value),))
        return asyncio.run(as_async(store).commit(batch, (Expectation(HEADER, expected),))) == Committed()

    assert committed(None, b"parent")
    assert in_a_fork(lambda: committed(b"parent", b"child"))
    assert committed(b"child", b"parent again")


def test_several_loops_of_a_process_use_one_store(store: Store) -> None:
    def sent(number: int) -> None:
        name = MESSAGE._replace(id=ids.first_at(number))
        asyncio.run(as_async(store).send(Batch(ROW, puts=(Put(name, b""),))))

    threads = [threading.Thread(target=sent, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.read((Slice(ROW, 2),))[0]) == 8


@pytest.mark.usefixtures("unblocked", "session")
def test_a_queue_for_tasks_works_on_it(url: str) -> None:
    async def scene() -> None:
        async with asyncio.timeout(DEADLINE), await aio.connect(url, clock=CLOCK) as connection:
            queue = await connection.queue("emails", time_shards=1, concurrency_shards=1)
            assert isinstance(queue.store, AsyncCassandraStore)
            await asyncio.gather(*(queue.send(number) for number in range(50)))
            bodies: list[object] = []
            while len(bodies) < 50:
                async with await queue.receive(10, wait="10s") as batch:
                    bodies += [delivery.body for delivery in batch]
            assert sorted(bodies, key=str) == sorted(range(50), key=str)
            assert (await queue.counts()).total == 0

    asyncio.run(scene())


def test_a_session_that_is_passed_in_serves_tasks_too(session: Session, keyspace: str, url: str) -> None:
    del url
    lent = CassandraStore(session, keyspace)
    asyncio.run(as_async(lent).send(SEND))
    assert asyncio.run(count(as_async(lent))) == 1
    asyncio.run(as_async(lent).close())


def test_tasks_wait_for_a_frozen_node_without_blocking_their_loop(node: LocalCassandra, unblocked: list[str]) -> None:
    with administer(node.url("jobs"), clock=CLOCK) as administration:
        administration.migrate()
    store = open_store(node.url("jobs"), clock=CLOCK)

    async def scene() -> None:
        tasks = as_async(store)
        await tasks.commit(*COMMIT)
        node.stop(1)
        try:
            with pytest.raises(OutcomeUnknown):
                await tasks.commit(Batch(ROW, puts=(Put(HEADER, b"2"),)), (Expectation(HEADER, b"1"),))
            with pytest.raises(StoreUnavailable):
                await count(tasks)
        finally:
            node.cont(1)
        until = CLOCK.monotonic() + DEADLINE * SECOND
        while CLOCK.monotonic() < until:
            try:
                assert await count(tasks) == 1
            except StoreUnavailable:
                continue  # it waits for a connection itself, two seconds at most
            return

    try:
        asyncio.run(scene())
    finally:
        waits = list(unblocked)
        store.close()
    assert waits == []
