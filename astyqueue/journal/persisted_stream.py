"""A stream through a journal: its source is read as fast as it gives, its consumer takes at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

from astyqueue.journal.cursor import Cursor
from astyqueue.journal.reader import Reader
from astyqueue.journal.records import Position, Record
from astyqueue.journal.writer import Listeners
from astyqueue.journal_errors import JournalFull
from astyqueue.structured_log import log_event

T = TypeVar("T")

#: Records taken from the journal at a time; the cursor is committed after each lot.
_TAKEN: Final = 256
#: Items of an asynchronous source that wait for the thread that appends them.
_WAITING: Final = 1024
_log: Final = logging.getLogger("astyqueue.journal")


class PersistedStream(Generic[T]):
    """One run of a stream: a reader behind a cursor, and what appends the items."""

    def __init__(
        self,
        begin: Callable[[], AbstractContextManager[tuple[Reader[T], Cursor]]],
        append: Callable[[Sequence[T], threading.Event], Position],
        listeners: Listeners,
    ) -> None:
        """`begin` has this stream alone use the cursor until it ends, and reads behind it.

        `append` appends items; once the event is set, it raises JournalFull instead of waiting for room. `listeners`
        hear of new records.
        """
        self._begin: Final = begin
        self._append: Final = append
        self._listeners: Final = listeners
        self._stop: Final = threading.Event()
        self._has_ended = False
        self._error: BaseException | None = None
        self._done: Record[T] | None = None

    def run(self, items: Iterable[T]) -> Generator[T, None, None]:
        """The items in order. Closing it stops the thread that reads their source, after the item it waits for."""
        with self._begin() as (reader, cursor), self._left(cursor):
            threading.Thread(target=self._feed, args=(items,), name="astyqueue-persist", daemon=True).start()
            while records := self._taken(reader):
                for record in records:
                    yield record.value
                    self._done = record
                self._commit(cursor)
            self._raise_error()

    def _feed(self, items: Iterable[T]) -> None:
        """Append the items; runs in a thread of its own. What was taken from the source is appended in any case."""
        try:
            self._append_each(iter(items))
        except BaseException as error:  # noqa: BLE001 - the consumer raises it
            self._error = error
        finally:
            self._end()

    def _append_each(self, source: Iterator[T]) -> None:
        with contextlib.closing(source) if isinstance(source, Generator) else contextlib.nullcontext():
            for item in source:
                self._append_all((item,))
                if self._stop.is_set():
                    break

    def _append_all(self, items: Sequence[T]) -> None:
        """Append items; those that the journal does not take are lost, and logged: the consumer may have left."""
        try:
            self._append(items, self._stop)
        except JournalFull as full:
            _note_lost(len(items) - full.appended, full)
            raise
        except Exception as error:
            _note_lost(len(items), error)
            raise

    def _end(self) -> None:
        self._has_ended = True
        self._listeners.notify()

    def _taken(self, reader: Reader[T]) -> list[Record[T]]:
        """The next records, waited for; none at the end of the stream."""
        while True:
            has_ended = self._has_ended
            if records := reader.take(_TAKEN):
                return records
            if has_ended:
                return []
            with self._listeners.listening() as wakeup:
                if not self._has_ended and not reader.has_more():
                    wakeup.wait()

    async def run_async(self, items: AsyncIterable[T]) -> AsyncGenerator[T, None]:
        """As `run`, for a task: appends and reads of the disk run in threads."""
        async with self._fed(items) as (reader, cursor):
            while records := await self._taken_async(reader):
                for record in records:
                    yield record.value
                    self._done = record
                await asyncio.to_thread(self._commit, cursor)
            self._raise_error()

    @contextlib.asynccontextmanager
    async def _fed(self, items: AsyncIterable[T]) -> AsyncIterator[tuple[Reader[T], Cursor]]:
        with self._begin() as (reader, cursor), self._left(cursor):
            feeding = asyncio.create_task(self._feed_async(items))
            try:
                yield reader, cursor
            finally:
                feeding.cancel()
                self._stop.set()
                self._listeners.notify()
                with contextlib.suppress(asyncio.CancelledError):
                    await feeding

    async def _feed_async(self, items: AsyncIterable[T]) -> None:
        intake = _Intake[T]()
        filling = asyncio.create_task(intake.fill(items))
        appending: set[asyncio.Task[None]] = set()
        try:
            while batch := await intake.waited_for():
                appending = {asyncio.create_task(asyncio.to_thread(self._append_all, batch))}
                await asyncio.shield(*appending)
            await filling
        except Exception as error:  # noqa: BLE001 - the consumer raises it
            self._error = error
        finally:
            filling.cancel()
            try:
                await asyncio.wait({filling, *appending})
                await asyncio.gather(filling, *appending, return_exceptions=True)
                await self._append_rest(intake.taken())
            finally:
                if left := intake.taken():
                    _note_lost(len(left), "the task was cancelled again before they were appended")
                self._end()

    async def _append_rest(self, items: list[T]) -> None:
        """Append what was taken from the source when the consumer left."""
        if items:
            with contextlib.suppress(Exception):  # it is logged
                await asyncio.to_thread(self._append_all, items)

    async def _taken_async(self, reader: Reader[T]) -> list[Record[T]]:
        while True:
            has_ended = self._has_ended
            if records := await asyncio.to_thread(reader.take, _TAKEN):
                return records
            if has_ended:
                return []
            with self._listeners.listening() as wakeup:
                if not self._has_ended and not await asyncio.to_thread(reader.has_more):
                    await wakeup.awaited()

    def _commit(self, cursor: Cursor) -> None:
        if self._done is not None:
            cursor.commit(self._done)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def _left(self, cursor: Cursor) -> Iterator[None]:
        """Stop the source at the end; the item that the consumer had last was not finished: the one before counts."""
        try:
            yield
        finally:
            self._stop.set()
            self._listeners.notify()
            self._commit(cursor)


class _Intake(Generic[T]):
    """Items that were taken from an asynchronous source and wait for being appended. It belongs to an event loop."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._arrived: Final = asyncio.Event()
        self._room: Final = asyncio.Event()
        self._has_ended = False

    async def fill(self, source: AsyncIterable[T]) -> None:
        try:
            async for item in source:
                self._items.append(item)
                self._arrived.set()
                while len(self._items) >= _WAITING:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._has_ended = True
            self._arrived.set()

    async def waited_for(self) -> list[T]:
        """All items that wait, at least one unless the source has ended."""
        while not self._items and not self._has_ended:
            self._arrived.clear()
            await self._arrived.wait()
        return self.taken()

    def taken(self) -> list[T]:
        items, self._items = self._items, []
        self._room.set()
        return items


def _note_lost(items: int, reason: Exception | str) -> None:
    log_event(_log, logging.WARNING, "journal_persist_lost_items", items=items, reason=reason)
