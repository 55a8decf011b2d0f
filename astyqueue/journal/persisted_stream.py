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
from typing import Any, Final, Generic, TypeVar

from astyqueue.errors import Closed
from astyqueue.journal.cursor import Cursor
from astyqueue.journal.reader import Reader
from astyqueue.journal.records import Position, Record
from astyqueue.journal.writing import Listeners
from astyqueue.journal_errors import JournalError, JournalFull
from astyqueue.structured_log import log_event

T = TypeVar("T")

#: Records taken from the journal at a time; the cursor is committed after each lot.
_TAKEN: Final = 256
#: Items of an asynchronous source that wait at most for the thread that appends them.
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
            intake = _Intake[T]()
            threading.Thread(target=self._append_from, args=(intake,), name="astyqueue-persist", daemon=True).start()
            filling = asyncio.create_task(intake.fill(items))
            try:
                yield reader, cursor
            finally:
                filling.cancel()
                self._stop.set()
                self._listeners.notify()
                await intake.appended()

    def _append_from(self, intake: _Intake[T]) -> None:
        """Append what the source gives; runs in a thread, which no cancellation of a task can end."""
        try:
            while batch := intake.waited_for():
                self._append_all(batch)
            self._error = intake.error
        except BaseException as error:  # noqa: BLE001 - the consumer raises it
            self._error = error
            with contextlib.suppress(Exception):  # it is logged
                if rest := intake.refused():
                    self._append_all(rest)
        finally:
            self._end()
            intake.note_appended()

    async def _taken_async(self, reader: Reader[T]) -> list[Record[T]]:
        while True:
            has_ended = self._has_ended
            if records := await asyncio.to_thread(reader.take, _TAKEN):
                return records
            if has_ended:
                return []
            with self._listeners.listening() as wakeup:
                if not self._has_ended and not await asyncio.to_thread(reader.has_more):
                    await wakeup.wait_in_task()

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
    """Items that a task takes from an asynchronous source, for the thread that appends them."""

    def __init__(self) -> None:
        """It belongs to the event loop that runs now."""
        self.error: BaseException | None = None
        self._loop: Final = asyncio.get_running_loop()
        self._changed: Final = threading.Condition()
        self._items: list[T] = []
        self._has_ended = False
        self._filling: asyncio.Task[Any] | None = None
        self._room: Final = asyncio.Event()
        self._appended: Final = asyncio.Event()

    async def fill(self, source: AsyncIterable[T]) -> None:
        """Take items from the source to its end; an error of it is noted."""
        self._filling = asyncio.current_task()
        try:
            async for item in source:
                if not self._put(item):
                    _note_lost(1, "the source gave it after the stream had ended")
                    break
                while len(self._items) >= _WAITING:
                    self._room.clear()
                    await self._room.wait()
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._close()

    def _put(self, item: T) -> bool:
        with self._changed:
            if not self._has_ended:
                self._items.append(item)
                self._changed.notify()
            return not self._has_ended

    def _close(self) -> None:
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def waited_for(self) -> list[T]:
        """All items that wait, at least one unless the source has ended. It blocks the thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._has_ended)
            items, self._items = self._items, []
        if len(items) >= _WAITING:
            self._call_in_loop(self._room.set)
        return items

    def refused(self) -> list[T]:
        """Have the source ended, wait for that, and return what it gave until then."""
        if self._filling is not None:
            self._call_in_loop(self._filling.cancel)
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended)
        return self.waited_for()

    def note_appended(self) -> None:
        """Have `appended` return."""
        self._call_in_loop(self._appended.set)

    def _call_in_loop(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # that loop was closed, so no task waits there
            self._loop.call_soon_threadsafe(call)

    async def appended(self) -> None:
        """Wait until the thread has appended all that was taken; a cancellation meanwhile is raised after that.

        asyncio.run cancels all tasks, and the end of a generator that was left is one: what it took would be lost. The
        thread ends soon after the source, since it waits for no room then; a cancellation ends the wait for the source.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self._appended.is_set():
            try:
                await self._appended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self._close()
        if cancelled is not None:
            raise cancelled


def _note_lost(items: int, why: Exception | str) -> None:
    """Log it. Of an error that a value caused, such as one of the codec, only the type: its text may show the value."""
    reason = why if isinstance(why, JournalError | Closed | str) else type(why).__name__
    log_event(_log, logging.WARNING, "journal_persist_lost_items", items=items, reason=reason)
