"""The verbs of any store as coroutines: its own if it offers them, otherwise run in threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from astyqueue.store import AsyncCapableStore, AsyncStore, Batch, Column, Expectation, Outcome, Store, Wanted
from astyqueue.stores.threadsafe_calls import LoopCalls, PerLoop

T = TypeVar("T")
U = TypeVar("U")


def as_async(store: Store) -> AsyncStore:
    """The store for tasks of event loops; closing it closes `store`."""
    return store.as_async() if isinstance(store, AsyncCapableStore) else Threaded(store)


async def opened_in_thread(opening: Callable[[], Store]) -> Store:
    """The store that a call opens, made in a thread.

    A task that is cancelled meanwhile stops at once, and the store is closed when it is open.
    """
    kept = _Opening(opening)
    try:
        return await asyncio.to_thread(kept.open)
    except asyncio.CancelledError:
        if (unwanted := kept.give_up()) is not None:
            asyncio.get_running_loop().run_in_executor(None, unwanted.close)
        raise


class _Opening:
    """A store that a thread opens for a task, which may give it up meanwhile: one of both closes it then."""

    def __init__(self, opening: Callable[[], Store]) -> None:
        self._opening = opening
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._given_up = False

    def open(self) -> Store:
        """Open it, in a thread; close it if it was given up before."""
        store = self._opening()
        with self._lock:
            self._store, unwanted = store, self._given_up
        if unwanted:
            store.close()
        return store

    def give_up(self) -> Store | None:
        """Have the thread close it once it is open; returns it if it is open now: then the caller closes it."""
        with self._lock:
            self._given_up = True
            return self._store


class Inline:
    """The verbs of a store that waits for nothing, as coroutines: they are carried out in the event loop, at once."""

    def __init__(self, store: Store) -> None:
        """Adapt `store`; `close` closes it."""
        self._store = store

    def __repr__(self) -> str:
        """The store that it adapts."""
        return repr(self._store)

    async def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """See `Store.read`."""
        return self._store.read(wanted, exact=exact)

    async def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`."""
        self._store.send(batch, *more)

    async def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        return self._store.commit(batch, expects)

    async def close(self) -> None:
        """See `Store.close`."""
        self._store.close()


class Threaded:
    """The verbs of a store as coroutines, run in threads, also after a fork.

    Cancelling a task does not cancel a request that a thread has begun: its result is dropped.
    """

    def __init__(self, store: Store) -> None:
        """Adapt `store`; `close` closes it."""
        self._store = store
        self._threads = self._new_threads()
        self._process = os.getpid()
        self._calls = PerLoop(LoopCalls)
        self._closed = False

    def __repr__(self) -> str:
        """The store that it adapts."""
        return f"<Threaded {self._store!r}>"

    async def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """See `Store.read`."""
        return await self._run(partial(self._store.read, wanted, exact=exact))

    async def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`."""
        await self._run(partial(self._store.send, batch, *more))

    async def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        return await self._run(partial(self._store.commit, batch, expects))

    async def close(self) -> None:
        """See `Store.close`."""
        if not self._closed:
            await self._run(self._store.close)
            self._closed = True
            self._threads.shutdown(wait=False)

    async def _run(self, verb: Callable[[], T]) -> T:
        if self._closed:
            return verb()
        if self._process != os.getpid():  # a fork copies no threads, and an executor does not notice
            self._threads, self._process = self._new_threads(), os.getpid()
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        calls = self._calls.here()
        try:
            self._threads.submit(_carry_out, verb, outcome, calls)
        except RuntimeError:
            if self._closed:  # by a task of another loop, meanwhile
                return verb()
            raise
        return await outcome

    def _new_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._store.at_once, thread_name_prefix="astyqueue-store")


def _carry_out(verb: Callable[[], T], outcome: asyncio.Future[T], calls: LoopCalls) -> None:
    """Carry out a verb in this thread and have the event loop set its outcome; one that was cancelled is not begun."""
    if outcome.cancelled():
        return
    try:
        result = verb()
    except BaseException as error:  # noqa: BLE001 - it reaches the task that awaits the verb
        calls.add(partial(_set, outcome, outcome.set_exception, error))
    else:
        calls.add(partial(_set, outcome, outcome.set_result, result))


def _set(outcome: asyncio.Future[T], setter: Callable[[U], None], value: U) -> None:
    """Set the outcome, unless the task was cancelled meanwhile."""
    if not outcome.done():
        setter(value)
