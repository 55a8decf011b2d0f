"""A journal open for writing: values appended to pages on the local disk, in order, each with the moment it arrived."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypedDict, TypeVar, Unpack, overload

from astyqueue.clock import Clock, SystemClock
from astyqueue.durations import Duration
from astyqueue.errors import BadInput, BadSetting
from astyqueue.journal.cursor import Cursor, cursor_path, stored_cursors
from astyqueue.journal.disk import Disk, DiskFile, LocalDisk, make_durable_directory
from astyqueue.journal.pages import Pages
from astyqueue.journal.read_only_journal import Readable, Stat, WrittenHere
from astyqueue.journal.reader import Reader
from astyqueue.journal.records import JSON, Codec, Position, check_codec
from astyqueue.journal.recovery import find_end, stored_page_size
from astyqueue.journal.settings import Settings, Size, checked_name, checked_settings, with_page_size
from astyqueue.journal.writing import Listeners, Writer
from astyqueue.journal_errors import JournalFull, JournalInUse
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

if TYPE_CHECKING:
    from astyqueue.journal.persisted_stream import PersistedStream

T = TypeVar("T")

#: How long a look at the lock of a journal takes at most, usually.
_LOOK_US: Final = SECOND // 100


class Options(TypedDict, total=False):
    """The options of a journal that is opened for writing; docs/how-to/journal.md explains them."""

    prefix: str
    page_size: Size
    durability: str
    batch_records: int
    batch_delay: Duration
    cap: Size | None
    when_full: str
    retain: Duration | None
    clock: Clock
    disk: Disk


class Journal(Readable[T]):
    """A journal open for writing, by this object alone: the system frees its lock however the process ends.

    Thread-safe. A child that was forked must not use it. Close it, or use it in a `with` block: records that wait in
    its buffer are written then. A program that ends without that, but is not killed, writes them at its end.
    """

    def __init__(self, source: WrittenHere, codec: Codec[T], writer: Writer, lock: DiskFile, *, batch: int) -> None:
        """Use `Journal.open`."""
        super().__init__(source, codec)
        self._writer: Final = writer
        self._lock: Final = lock
        self._batch: Final = batch
        self._streams: Final[set[str]] = set()

    @overload
    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, codec: Codec[T], **options: Unpack[Options]) -> Journal[T]: ...

    @overload
    @classmethod
    def open(cls, directory: str | os.PathLike[str], **options: Unpack[Options]) -> Journal[Any]: ...

    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], *, codec: Codec[Any] = JSON, **options: Unpack[Options]
    ) -> Journal[Any]:
        """Open the journal in this folder, or create it; what a crash left half written at its end is cut.

        JournalInUse if it is open for writing elsewhere. A journal keeps the page size it was created with.
        """
        check_codec(codec, "encode", "decode")
        clock, disk = options.get("clock") or SystemClock(), options.get("disk") or LocalDisk()
        asked = _settings(options)
        pages = Pages(disk, Path(directory).absolute(), checked_name(options.get("prefix", "journal"), "journal"))
        make_durable_directory(disk, pages.directory)
        lock = _locked(pages)
        try:
            pages.refresh()
            settings = with_page_size(asked, stored_page_size(pages))
            listeners = Listeners(clock)
            end = find_end(pages)
            cursors = stored_cursors(pages.disk, pages.directory, pages.prefix)
            end.sequence = max(end.sequence, *(position.sequence for _, position in cursors if position), 0)
            writer = Writer(pages, settings, clock, end, listeners=listeners, lock=lock)
        except BaseException:
            lock.close()
            raise
        return cls(WrittenHere(pages, clock, listeners, writer), codec, writer, lock, batch=settings.batch_records)

    def append(self, value: T) -> Position:
        """Append a value; returns its place.

        With durability "each" it is on the disk then, with "batch" soon (`sync` waits for it). Without room it waits,
        raises JournalFull or drops the oldest page, as `when_full` says.
        """
        return self._writer.append((self._encoded(value),))

    def append_many(self, values: Iterable[T]) -> Position | None:
        """Append the values in order, a batch at a time; returns the place of the last, None if there is none.

        With durability "each" it syncs once for a batch. Values of other threads may come between two batches.
        """
        position, appended = None, 0
        payloads = map(self._codec.encode, values)
        while some := list(islice(payloads, self._batch)):
            if set(map(type, some)) != {bytes}:
                some = [_checked(payload) for payload in some]
            try:
                position = self._writer.append(some)
            except JournalFull as full:
                raise JournalFull(full.place, full.reason, appended=appended + full.appended) from full
            appended += len(some)
        return position

    def append_and_flush(self, values: Iterable[T]) -> Position:
        """Append at least one value, in order; returns the place of the last when the operating system has them all.

        So they survive the end of this process. A full disk has this call wait, drop the oldest page or raise
        JournalFull, as `when_full` says, and of what it refuses nothing stays in the buffer, to be written later.
        """
        return self._writer.append([self._encoded(value) for value in values], write_now=True)

    def _encoded(self, value: T) -> bytes:
        return _checked(self._codec.encode(value))

    def flush(self) -> None:
        """Return when the operating system has all that was appended before: then it survives the end of this process.

        JournalFull if there is no room.
        """
        self._writer.flush()

    def sync(self) -> None:
        """Return when all that was appended before is on the disk, at any durability. Threads share syncs."""
        self._writer.sync()

    def reclaim(self, *, ignore_cursors: bool = False, last_page: bool = False) -> int:
        """Remove the pages that may go, and return how many.

        A page may go when all its records are older than `retain` (if that is set) and every cursor has passed it;
        without `retain` and cursors none may. A page with a reader inside stays, and those behind it. So does the last,
        which says what sequences were given; with `last_page` it may go, and a new one is begun before. A cursor that
        cannot be read has passed no page, and a page that cannot be read or removed stays; both are logged once.
        """
        return self._writer.reclaim(ignore_cursors=ignore_cursors, last_page=last_page)

    def stat(self) -> Stat:
        """Sizes, sequences and cursors."""
        return self._stat(self._writer.sequence, self._writer.synced, self._writer.retention.dropped_records)

    def persist(self, items: Iterable[T], *, cursor: str = "persist") -> Generator[T, None, None]:
        """The items, each after it went through the journal: the disk takes what the consumer is too slow for.

        Items are read from their source in a thread, in order. What an earlier run left behind the cursor comes first,
        so an item comes at least once. An error of the source is raised after the items that it gave before. A consumer
        that leaves early leaves what was taken from the source behind the cursor, unless the journal is full. The first
        item raises JournalInUse if another stream, or another process, has the cursor.
        """
        if not isinstance(items, Iterable) and not hasattr(type(items), "__getitem__"):
            is_async = isinstance(items, AsyncIterable)
            remedy = "use persist_async" if is_async else "give a list, a generator or another iterable"
            _refuse_source("persist reads an iterable", items, remedy)
        return self._stream(cursor).run(items)

    def persist_async(self, items: AsyncIterable[T], *, cursor: str = "persist") -> AsyncGenerator[T, None]:
        """As `persist`, for a task."""
        if not isinstance(items, AsyncIterable):
            is_plain = isinstance(items, Iterable)
            remedy = "use persist, without await" if is_plain else "give an async generator or another async iterable"
            _refuse_source("persist_async reads an async iterable", items, remedy)
        return self._stream(cursor).run_async(items)

    def _stream(self, name: str) -> PersistedStream[T]:
        from astyqueue.journal.persisted_stream import PersistedStream  # noqa: PLC0415 - it loads asyncio

        def append(values: Iterable[T], stop: threading.Event) -> Position:
            return self._writer.append([self._encoded(value) for value in values], stop=stop)

        checked_name(name, "cursor")
        return PersistedStream(partial(self._streaming, name), append, self._source.listeners)

    @contextlib.contextmanager
    def _streaming(self, name: str) -> Iterator[tuple[Reader[T], Cursor]]:
        """Have one stream alone use this cursor; JournalInUse if another one does."""
        with self._cursor_lock:
            if name in self._streams:
                what, path = f"cursor {name!r}", cursor_path(self._pages.directory, self._pages.prefix, name)
                raise JournalInUse(what, str(path), "another stream of this process")
            self._streams.add(name)
        try:
            with contextlib.closing(self.cursor(name)) as cursor, self.read(cursor=cursor) as reader:
                yield reader, cursor
        finally:
            with self._cursor_lock:
                self._streams.remove(name)

    def _sync_records(self, after: int, upto: int) -> None:  # noqa: ARG002 - the writer knows what it synced
        self._writer.sync_to(upto)

    def close(self) -> None:
        """Write what waits, sync it unless durability is "none", and let other processes open the journal.

        Appends are refused from its beginning on, and its readers end. It is closed also if this raises. JournalFull
        cost the records in the buffer, and so did JournalFailed if they could not be written; if a sync failed, the
        system has the records since the last one, and the disk perhaps not.
        """
        try:
            self._writer.close()
        finally:
            try:
                self._close_cursors()
            finally:
                self._lock.close()

    def abandon(self) -> None:
        """As that of `ReadOnlyJournal`, and the lock of the writer too. Nothing is written."""
        super().abandon()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def _checked(payload: object) -> bytes:
    if not isinstance(payload, bytes):
        message = f"the codec made {type(payload).__name__} of a value, not bytes: that value was not appended"
        raise BadInput(message)
    return payload


def _refuse_source(what: str, given: object, remedy: str) -> NoReturn:
    """Raise the error for what cannot be iterated; it shows no more of it than its type: it may be an item."""
    remedy = "call it, and give what it returns" if callable(given) else remedy
    message = f"{what}, not one {type(given).__name__}: {remedy}"
    raise BadInput(message)


def _settings(options: Options) -> Settings:
    if unknown := [name for name in options if name not in Options.__annotations__]:
        names = sorted({"codec", *Options.__annotations__} - {"disk"})  # the disk is for tests
        message = f"unknown option {unknown[0]!r}: a journal has {', '.join(names)}"
        raise BadSetting(message)
    return checked_settings(
        page_size=options.get("page_size", "16MiB"),
        durability=options.get("durability", "batch"),
        batch_records=options.get("batch_records", 256),
        batch_delay=options.get("batch_delay", "10ms"),
        cap=options.get("cap"),
        when_full=options.get("when_full", "block"),
        retain=options.get("retain"),
    )


def _is_free_soon(lock: DiskFile) -> bool:
    """Try once more: a process that only looks whether a writer lives has the lock for a moment."""
    real = SystemClock()
    Wakeup(real).wait(real.monotonic() + _LOOK_US)
    return lock.lock(exclusive=True)


def _locked(pages: Pages) -> DiskFile:
    """The file whose lock the writer of a journal has; it names the process, for the error of another one."""
    path = pages.lock_path
    while True:
        lock = pages.disk.open(path, write=True, create=True)
        if not (lock.lock(exclusive=True) or _is_free_soon(lock)):
            holder = lock.read_at(0, 100).decode(errors="replace").strip()
            lock.close()
            what = "journal"
            raise JournalInUse(what, str(path), holder)
        if lock.is_linked():
            break
        lock.close()  # it was removed meanwhile: others lock the new one
    with contextlib.suppress(OSError):  # on a full disk the lock holds without a name in it
        lock.truncate(0)
        lock.write_at(0, f"process {os.getpid()}\n".encode())
    return lock
