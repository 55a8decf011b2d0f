"""What every process may do with a journal: read it, keep cursors, look at it and verify it.

Its pages grow in this process, which wakes its readers, or in another one, which is polled.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, overload

from astyqueue.clock import Clock, SystemClock
from astyqueue.durations import as_microseconds, instant_of
from astyqueue.errors import BadInput, Closed, NotFound
from astyqueue.findings import Finding
from astyqueue.journal.cursor import Cursor, cursor_path, stored_cursors, unreadable_cursors
from astyqueue.journal.disk import Disk, LocalDisk
from astyqueue.journal.page_drawing import page_picture
from astyqueue.journal.pages import By, PageIndex, Pages
from astyqueue.journal.reader import Reader, Span
from astyqueue.journal.records import JSON, Codec, Place, check_codec, checked_place
from astyqueue.journal.recovery import verified
from astyqueue.journal.settings import checked_name
from astyqueue.journal.writing import Listeners, Writer
from astyqueue.units import NEVER, SECOND

T = TypeVar("T")

#: A journal has one of these files, also before its first record.
_FILE: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_-]{0,99})(?:-[1-9][0-9]*\.page|\.lock|\.meta)")
#: A moment to read from or up to: aware, or that long before reading starts ("1h"), or a function that is called then.
Since = datetime | timedelta | str | Callable[[], datetime]
#: A reader in another process notices a record this late at most; a look is two system calls.
_POLL_US: Final = SECOND // 50


class WrittenHere:
    """A journal that this process writes: readers see what the writer has published, and are woken."""

    poll_us = None

    def __init__(self, pages: Pages, clock: Clock, listeners: Listeners, writer: Writer) -> None:
        """`writer` publishes."""
        self.pages = pages
        self.clock = clock
        self.listeners = listeners
        self.is_closed = False
        self._writer: Final = writer

    @property
    def index(self) -> PageIndex | None:
        """The index of the page that is written to."""
        return self._writer.index

    def limit(self, number: int) -> int | None:
        """The offset that the writer has published, for its page."""
        page, offset = self._writer.published
        return offset if number >= page else None

    def later_page(self, number: int) -> int | None:
        """The next page that the writer has published."""
        published, _ = self._writer.published
        return _after(number, self.pages.numbers, up_to=published)

    def numbers(self) -> tuple[int, ...]:
        """The pages up to the one that the writer has published."""
        published, _ = self._writer.published
        return tuple(number for number in self.pages.numbers if number <= published)

    def may_be_growing(self) -> bool:
        """False: what the writer has published is all written."""
        return False

    def publish(self) -> bool:
        """Write the buffer; without room or after a failure, records stay invisible."""
        before = self._writer.published
        if not self.is_closed:
            self._writer.publish()
        return self._writer.published != before


class WrittenElsewhere:
    """A journal that another process writes, or none: the folder shows what is there."""

    poll_us = _POLL_US
    index = None

    def __init__(self, pages: Pages, clock: Clock, listeners: Listeners) -> None:
        """Readers are polled, and woken when they are closed."""
        self.pages = pages
        self.clock = clock
        self.listeners = listeners
        self.is_closed = False

    def limit(self, _number: int) -> int | None:
        """None: the system shows the bytes of a file only once they are there, and checksums show torn ones."""
        return None

    def later_page(self, number: int) -> int | None:
        """The next page in the folder; the last one counts once its header is written."""
        found = _after(number, self.pages.numbers)
        if found is None or self.pages.header(found) is None:  # there may be later ones, and this one may be gone
            found = _after(number, self.pages.refresh())
        if found is not None and found == self.pages.numbers[-1] and self.pages.header(found) is None:
            return None
        return found

    def numbers(self) -> tuple[int, ...]:
        """The pages that are in the folder now."""
        return self.pages.refresh()

    def may_be_growing(self) -> bool:
        """Whether a process may be writing."""
        return self.pages.may_have_writer()

    def publish(self) -> bool:
        """False: another process writes them."""
        return False


def _after(number: int, numbers: tuple[int, ...], *, up_to: int | None = None) -> int | None:
    """The smallest of these numbers that is greater."""
    position = bisect_right(numbers, number)
    found = numbers[position] if position < len(numbers) else None
    return None if found is None or (up_to is not None and found > up_to) else found


@dataclass(frozen=True, slots=True)
class Stat:
    """A journal at one moment. Sequences are 0 where there is no record.

    `synced_sequence` is the last record that is known to be on the disk with all before it, `cursors` has the last
    sequence that each committed, and `dropped_records` counts those that made room since the journal was opened.
    """

    pages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    synced_sequence: int
    dropped_records: int
    cursors: dict[str, int]


class Readable(Generic[T]):
    """What journals open for writing and for reading have in common."""

    def __init__(self, source: WrittenHere | WrittenElsewhere, codec: Codec[T]) -> None:
        """Read the pages of this source; `codec` decodes values."""
        self._source: Final = source
        self._pages: Final = source.pages
        self._codec: Final = codec
        self._cursors: dict[str, Cursor] = {}
        self._cursor_lock: Final = threading.Lock()
        self._readers: Final = weakref.WeakSet[Reader[T]]()

    def read(
        self,
        *,
        since: Since | None = None,
        after: Place | int | None = None,
        cursor: Cursor | str | None = None,
        until: Since | Place | None = None,
        follow: bool = False,
    ) -> Reader[T]:
        """The records that arrived at or after `since`, or those behind a place or a cursor; by default all.

        It ends before the moment `until`, or with the record `until`. A moment is an aware datetime, a time before
        reading starts, or a function that is called then. With `follow` it waits for records to come, otherwise it ends
        where the journal ends.
        """
        if sum(given is not None for given in (since, after, cursor)) > 1:
            message = "since, after and cursor exclude each other: give one of them"
            raise BadInput(message)
        by, start = By.SEQUENCE, _from_first
        if since is not None:
            by, start = By.ARRIVAL, _moment(since, self._source.clock)
        elif cursor is not None:
            start = _behind_cursor(cursor if isinstance(cursor, Cursor) else self.cursor(cursor))
        elif after is not None:
            start = _behind(
                after if isinstance(after, int) else checked_place(after, "after", ", or a number").sequence
            )
        end, last = _never, NEVER
        if until is not None and (isinstance(until, datetime | timedelta | str) or callable(until)):
            end = _moment(until, self._source.clock)
        elif until is not None:
            last = checked_place(until, "until", ', or a moment: an aware datetime, or "1h" before now').sequence
        reader = Reader(self._source, self._codec, Span(by, start, end, last), follow=follow)
        self._readers.add(reader)
        return reader

    @property
    def place(self) -> str:
        """The absolute path of its folder, and its prefix."""
        return f"{self._pages.directory.resolve()}/{self._pages.prefix}"

    def cursor(self, name: str) -> Cursor:
        """The durable cursor of this name, made if it is new. One process has it at a time, others get JournalInUse.

        Closed if this journal was closed.
        """
        with self._cursor_lock:
            if self._source.is_closed:
                message = f"journal {self._pages.directory} was closed: open it again"
                raise Closed(message)
            found = self._cursors.get(checked_name(name, "cursor"))
            if found is None or found.is_closed:
                path = cursor_path(self._pages.directory, self._pages.prefix, name)
                found = Cursor(
                    self._pages.disk, path, name=name, before_commit=self._sync_records, after_commit=self._committed
                )
                self._cursors[name] = found
            return found

    def _sync_records(self, after: int, upto: int) -> None:
        """Sync the pages with these records, which another process may have written without a sync."""
        for number in reversed(self._source.numbers()):
            header = self._pages.header(number)
            if header is not None and header.first_sequence <= upto:
                with contextlib.suppress(FileNotFoundError), contextlib.closing(self._pages.open(number)) as file:
                    file.sync()
                if header.first_sequence <= after:
                    break
        self._pages.disk.sync_directory(self._pages.directory)

    def _committed(self) -> None:
        self._source.listeners.notify()

    def verify(self) -> list[Finding]:
        """Read every record, index and cursor, and say what is damaged; one finding of severity OK if nothing is."""
        self._source.publish()
        stored = stored_cursors(self._pages.disk, self._pages.directory, self._pages.prefix)
        committed = {name: position.sequence for name, position in stored if position}
        unreadable = unreadable_cursors(self._pages.disk, self._pages.directory, self._pages.prefix)
        return verified(self._pages, self._source.numbers(), self._source.limit, committed, unreadable)

    def _stat(self, last: int, synced: int, dropped: int) -> Stat:
        numbers, size = self._source.numbers(), 0
        for number in numbers:
            with contextlib.suppress(FileNotFoundError), contextlib.closing(self._pages.open(number)) as file:
                size += file.size()
        first = next((header for header in map(self._pages.header, numbers) if header), None)
        cursors = stored_cursors(self._pages.disk, self._pages.directory, self._pages.prefix)
        return Stat(
            pages=len(numbers),
            bytes=size,
            first_sequence=first.first_sequence if first and last >= first.first_sequence else 0,
            last_sequence=last,
            synced_sequence=synced,
            dropped_records=dropped,
            cursors={name: position.sequence if position else 0 for name, position in cursors},
        )

    def abandon(self) -> None:
        """Close the files that this process inherited by a fork, so that their locks end with the parent.

        A lock lasts until every process has closed the file: a child that lives on keeps cursors from being opened, and
        the pages that readers are in from being reclaimed. Call it in the child; it takes no lock of a thread.
        """
        for cursor in tuple(self._cursors.values()):
            cursor.abandon()
        for reader in tuple(self._readers):
            reader.abandon()

    def _close_cursors(self) -> None:
        """Hand out no cursor any more, close those that were handed out, and end readers."""
        with self._cursor_lock:
            self._source.is_closed = True
            cursors = tuple(self._cursors.values())
        for cursor in cursors:
            cursor.close()
        self._source.listeners.notify()


class ReadOnlyJournal(Readable[T]):
    """A journal that this process reads, while another one may write it. Cursors can be committed."""

    @overload
    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        codec: Codec[T],
        prefix: str = ...,
        clock: Clock = ...,
        disk: Disk = ...,
    ) -> ReadOnlyJournal[T]: ...

    @overload
    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], *, prefix: str = ..., clock: Clock = ..., disk: Disk = ...
    ) -> ReadOnlyJournal[Any]: ...

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        codec: Codec[Any] = JSON,
        prefix: str = "journal",
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> ReadOnlyJournal[Any]:
        """Open it for reading; a folder without a journal reads as an empty one, a missing folder raises."""
        check_codec(codec, "decode")
        clock = clock or SystemClock()
        pages = Pages(disk or LocalDisk(), Path(directory).absolute(), checked_name(prefix, "journal"))
        pages.refresh()
        return cls(WrittenElsewhere(pages, clock, Listeners(clock)), codec)

    def stat(self) -> Stat:
        """Sizes, sequences and cursors. It reads the last page; what is synced is not known here."""
        numbers = self._source.numbers()
        header = next(filter(None, map(self._pages.header, reversed(numbers))), None)
        index = self._pages.index(header.number) if header else None
        last = max(index.last_sequence if index else 0, header.last_before if header else 0)
        return self._stat(last, 0, 0)

    def picture(self, page: int | None = None) -> str:
        """A page as SVG, by default the last: how full it is, and the fields of its first records. NotFound if none."""
        return page_picture(self._pages, page)

    def close(self) -> None:
        """Close its cursors; its readers end."""
        self._close_cursors()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def check_there(directory: str | os.PathLike[str], prefix: str, *, option: str) -> None:
    """NotFound unless the folder has a journal of this name; it lists those that are there, for `option`."""
    files = map(_FILE.fullmatch, os.listdir(directory))  # noqa: PTH208 - names are needed, not paths
    names = sorted({found[1] for found in files if found})
    if prefix not in names:
        there = f"there are: {', '.join(names)}; name one with {option}" if names else "it has none"
        message = f"folder {os.fspath(directory)} has no journal {prefix!r}; {there}"
        raise NotFound(message)


def _from_first() -> int:
    return 0


def _behind(sequence: int) -> Callable[[], int]:
    return lambda: sequence + 1


def _behind_cursor(cursor: Cursor) -> Callable[[], int]:
    return lambda: cursor.position.sequence + 1 if cursor.position else 0


def _never() -> int:
    return NEVER


def _moment(given: Since, clock: Clock) -> Callable[[], int]:
    """A moment in microseconds since 1970, as it is known when reading starts."""
    if callable(given):
        return lambda: instant_of(given())
    if isinstance(given, datetime):
        moment = instant_of(given)
        return lambda: moment
    ago = as_microseconds(given)
    return lambda: clock.now() - ago
