"""A stream through a journal: its source is read as fast as it gives, its consumer takes at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Sequence
from typing import Final, Generic, TypeVar

from astyqueue.journal.cursor import Cursor
from astyqueue.journal.reader import Reader
from astyqueue.journal.records import Position, Record
from astyqueue.journal.writer import Listeners

T = TypeVar("T")

#: Records taken from the journal at a time; the cursor is committed after each lot.
_TAKEN: Final = 256
#: Items of an asynchronous source that wait for the thread that appends them.
_WAITING: Final = 1024


class PersistedStream(Generic[T]):
    """One run of a stream: a reader behind a cursor, and what appends the items."""

    def __init__(
        self,
        reader: Reader[T],
        cursor: Cursor,
        append: Callable[[Sequence[T], threading.Event], Position],
        listeners: Listeners,
    ) -> None:
        """`append` appends items unless the event is set while it waits for room; `listeners` hear of new records."""
        self._reader: Final = reader
        self._cursor: Final = cursor
        self._append: Final = append
        self._listeners: Final = listeners
        self._stop: Final = threading.Event()
        self._last = 0
        self._has_ended = False
        self._error: BaseException | None = None
        self._done: Record[T] | None = None

    def run(self, items: Iterable[T]) -> Generator[T, None, None]:
        """The items in order. Closing it stops the thread that reads their source, after the item it waits for."""
        threading.Thread(target=self._feed, args=(items,), name="astyqueue-persist", daemon=True).start()
        try:
            while records := self._taken():
                for record in records:
                    yield record.value
                    self._done = record
                self._commit()
            self._raise_error()
        finally:
            self._leave()

    def _feed(self, items: Iterable[T]) -> None:
        """Append the items; runs in a thread of its own."""
        source = iter(items)
        try:
            for item in source:
                if self._stop.is_set():
                    break
                self._last = self._append((item,), self._stop).sequence
        except BaseException as error:  # noqa: BLE001 - the consumer raises it
            self._error = error
        finally:
            if isinstance(source, Generator):
                source.close()
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._listeners.notify()

    def _taken(self) -> list[Record[T]]:
        """The next records, waited for; none at the end of the stream."""
        while True:
            has_ended = self._has_ended
            if records := self._reader.take(_TAKEN):
                return records
            if has_ended:
                return []
            with self._listeners.listening() as wakeup:
                if not self._has_ended and not self._reader.has_more():
                    wakeup.wait()

    async def run_async(self, items: AsyncIterable[T]) -> AsyncGenerator[T, None]:
        """As `run`, for a task: appends and reads of the disk run in threads."""
        feeding = asyncio.create_task(self._feed_async(items))
        try:
            while records := await self._taken_async():
                for record in records:
                    yield record.value
                    self._done = record
                await asyncio.to_thread(self._commit)
            self._raise_error()
        finally:
            feeding.cancel()
            self._stop.set()
            self._listeners.notify()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding
            self._leave()

    async def _feed_async(self, items: AsyncIterable[T]) -> None:
        waiting: asyncio.Queue[T] = asyncio.Queue(_WAITING)
        reading = asyncio.create_task(_read_into(waiting, items))
        try:
            while not reading.done() or not waiting.empty():
                batch = await _next_batch(waiting, reading)
                if batch:
                    self._last = (await asyncio.to_thread(self._append, batch, self._stop)).sequence
            await reading
        except Exception as error:  # noqa: BLE001 - the consumer raises it
            self._error = error
        finally:
            reading.cancel()
            self._end()

    async def _taken_async(self) -> list[Record[T]]:
        while True:
            has_ended = self._has_ended
            if records := await asyncio.to_thread(self._reader.take, _TAKEN):
                return records
            if has_ended:
                return []
            with self._listeners.listening() as wakeup:
                if not self._has_ended and not await asyncio.to_thread(self._reader.has_more):
                    await wakeup.awaited()

    def _commit(self) -> None:
        if self._done is not None:
            self._cursor.commit(self._done)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _leave(self) -> None:
        """Stop the source; the item that the consumer had last was not finished, so the one before is committed."""
        self._stop.set()
        self._listeners.notify()
        self._reader.close()
        with contextlib.closing(self._cursor):
            self._commit()


async def _read_into(waiting: asyncio.Queue[T], items: AsyncIterable[T]) -> None:
    async for item in items:
        await waiting.put(item)


async def _next_batch(waiting: asyncio.Queue[T], reading: asyncio.Task[None]) -> list[T]:
    """All items that wait, at least one unless the source ends first."""
    getting = asyncio.ensure_future(waiting.get())
    await asyncio.wait((getting, reading), return_when=asyncio.FIRST_COMPLETED)
    if not getting.done():
        getting.cancel()
        return []
    batch = [getting.result()]
    while not waiting.empty():
        batch.append(waiting.get_nowait())
    return batch
