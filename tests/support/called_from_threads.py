"""A store for tasks with verbs for threads: so one suite tests both kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from astyqueue.store import AsyncStore, Batch, Column, Expectation, Outcome, Spread, Wanted

T = TypeVar("T")


class CalledFromThreads:
    """The verbs of an `AsyncStore`, called by threads and carried out by tasks of an event loop of its own."""

    spread = Spread()
    at_once = 64

    def __init__(self, store: AsyncStore) -> None:
        """Start the event loop; `close` closes the store, and ends it."""
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tasks", daemon=True)
        self._thread.start()

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        return self._carried_out(self._store.read(wanted, exact=exact))

    def send(self, batch: Batch, *more: Batch) -> None:
        self._carried_out(self._store.send(batch, *more))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        return self._carried_out(self._store.commit(batch, expects))

    def close(self) -> None:
        """Close the store; later verbs are carried out by a loop for each, so that they raise what they should."""
        self._carried_out(self._store.close())
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _carried_out(self, verb: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            return asyncio.run(verb)
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()
