"""Reading a journal: from a moment, a sequence or a cursor on, up to an end or for ever.

A reader owns its position; nothing is marked as read. It is an iterator for threads and an async iterator for tasks.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from astyqueue.clock import Clock
from astyqueue.errors import UndecodableRecord
from astyqueue.journal.format import TOTAL, Entry, Kind
from astyqueue.journal.pages import By, PageIndex, PageReader, Pages
from astyqueue.journal.records import Codec, Damage, Position, Record
from astyqueue.journal.writer import Listeners
from astyqueue.printable import facts_line
from astyqueue.units import NEVER, SECOND, MonotonicUs
from astyqueue.waiting import in_thread

T = TypeVar("T")

#: Records that a task takes from its reader at a time, in a thread.
_TAKEN: Final = 256
_log: Final = logging.getLogger("astyqueue.journal")


class Source(Protocol):
    """Where the pages of a journal grow: in this process, or in another one."""

    pages: Pages
    clock: Clock
    listeners: Listeners

    @property
    def is_closed(self) -> bool:
        """Whether the journal was closed in this process."""
        ...

    @property
    def index(self) -> PageIndex | None:
        """The index of the page that is written to; None if another process writes it."""
        ...

    @property
    def poll_us(self) -> int | None:
        """How often a reader looks for new records, in microseconds; None where it is woken."""
        ...

    def limit(self, number: int) -> int | None:
        """The offset up to which a page may be read; None for all of it."""
        ...

    def numbers(self) -> tuple[int, ...]:
        """The pages that may be read now."""
        ...

    def later_page(self, number: int) -> int | None:
        """The next page behind this one; None while records may still be added to this one."""
        ...

    def publish(self) -> bool:
        """Have records that wait in a buffer written; whether there were any."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Which records to read: those with `by` of at least `start()`, until a moment or a sequence.

    `start` is called when reading starts. `until_us` is excluded, `until_sequence` is the last one.
    """

    by: By
    start: Callable[[], int]
    until_us: int = NEVER
    until_sequence: int = NEVER


class PartJoiner:
    """Joins the parts of records that are in several pages; parts of records with gaps go to `note`."""

    def __init__(self, note: Callable[[Damage], None]) -> None:
        """Wait for no part."""
        self._note: Final = note
        self._parts: list[Entry] = []

    def __bool__(self) -> bool:
        """Whether parts wait for others."""
        return bool(self._parts)

    def joined(self, entry: Entry, page: int, *, first_page: int) -> Entry | None:
        """The whole record that this one completes; on the first page that is read, parts may lack their beginning."""
        if entry.kind in (Kind.WHOLE, Kind.FIRST):
            self._drop(page)
            self._parts = [entry] if entry.kind == Kind.FIRST else []
            return entry if entry.kind == Kind.WHOLE else None
        if self._parts and self._parts[0].sequence == entry.sequence:
            self._parts.append(entry)
            return self._whole(page) if entry.kind == Kind.LAST else None
        if page != first_page:
            self._note(
                Damage(
                    page=page,
                    offset=entry.offset,
                    size=entry.end - entry.offset,
                    after=0,
                    before=entry.sequence,
                    reason="a part alone",
                )
            )
        return None

    def _whole(self, page: int) -> Entry | None:
        content = b"".join(part.payload for part in self._parts)
        if TOTAL.unpack_from(content)[0] != len(content) - TOTAL.size:
            self._drop(page)
            return None
        last, self._parts = self._parts[-1], []
        return last._replace(payload=content[TOTAL.size :])

    def _drop(self, page: int) -> None:
        if self._parts:
            first = self._parts[0]
            self._note(
                Damage(
                    page=page,
                    offset=first.offset,
                    size=0,
                    after=first.sequence - 1,
                    before=0,
                    reason=f"record {first.sequence} has gaps",
                )
            )
            self._parts = []


class Reader(Generic[T]):
    """The records of a span, in order. Close it, or read it to its end: until then it keeps its page.

    `position` is the place of the last record returned, and `skipped` what was passed because it cannot be read.
    `close` may be called from any thread and ends the iteration; all else belongs to one thread or task.
    """

    def __init__(self, source: Source, codec: Codec[T], span: Span, *, follow: bool) -> None:
        """With `follow`, wait for records to come; otherwise end where the journal ends."""
        self._returned: Entry | None = None
        self.skipped: list[Damage] = []
        self._source: Final = source
        self._codec: Final = codec
        self._span: Final = span
        self._follow: Final = follow
        self._ready: deque[Entry] = deque()
        self._parts: Final = PartJoiner(self._note)
        self._page: PageReader | None = None
        self._number = 0
        self._first_page = 0
        self._start: int | None = None
        self._is_over = False
        self._is_closed = False
        self._lock: Final = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record[T]:
        while self._is_closed or not self._ready:
            if self._is_closed or self._is_over or not (self._fill() or self._wait()):
                self.close()
                raise StopIteration
        return self._decoded(self._ready.popleft())

    def _decoded(self, entry: Entry) -> Record[T]:
        try:
            value = self._codec.decode(entry.payload)
        except Exception as error:
            raise UndecodableRecord(entry.sequence, f"{type(error).__name__}: {error}") from error
        self._returned = entry
        return Record(entry.sequence, entry.arrived, value)

    @property
    def position(self) -> Position | None:
        """The place of the last record that was returned."""
        return Position(self._returned.sequence, self._returned.arrived) if self._returned else None

    def take(self, limit: int) -> list[Record[T]]:
        """Up to `limit` records that are there now, without waiting for others."""
        records: list[Record[T]] = []
        while not self._is_closed and len(records) < limit and (self._ready or (not self._is_over and self._fill())):
            try:
                records.append(self._decoded(self._ready[0]))
            except UndecodableRecord:
                if records:
                    break
                self._ready.popleft()
                raise
            self._ready.popleft()
        return records

    def has_more(self) -> bool:
        """Whether a record is there now."""
        return bool(self._ready) or self._fill()

    def _fill(self) -> bool:
        """Read on until a record of the span is ready; False if there is none now."""
        with self._lock:
            while not self._ready and not self._is_over:
                entries = self._next_entries()
                if not entries:
                    return False
                self._take_in(entries)
            return bool(self._ready)

    def _take_in(self, entries: list[Entry]) -> None:
        """Make the records of the span ready."""
        if self._are_all_wanted(entries):
            self._ready.extend(entries)
            return
        for entry in entries:
            whole = self._parts.joined(entry, self._number, first_page=self._first_page)
            if whole is not None:
                self._offer(whole)

    def _are_all_wanted(self, entries: list[Entry]) -> bool:
        """Whether all of these are whole and in the span: the usual case, which is decided for all at once."""
        bounds = self._span
        first = entries[0].sequence if bounds.by is By.SEQUENCE else entries[0].arrived
        return (
            self._start is not None
            and first >= self._start
            and entries[-1].arrived < bounds.until_us
            and entries[-1].sequence < bounds.until_sequence
            and not self._parts
            and {entry.kind for entry in entries} == {Kind.WHOLE}
        )

    def _next_entries(self) -> list[Entry]:
        while self._page is not None or self._open_next_page():
            page = self._page
            if page is None:
                continue
            entries = page.read(self._source.limit(self._number))
            self._note(*page.damage)
            page.damage.clear()
            if entries or self._is_tail(page):
                return entries
        return []

    def _is_tail(self, page: PageReader) -> bool:
        """Whether nothing can be read now; if a later page is there, this one is left."""
        if self._source.publish():
            return False
        if self._source.later_page(self._number) is None:
            return True
        # It was finished before the later page was begun; perhaps after the last look at it.
        if not (entries := page.read(self._source.limit(self._number))):
            self._note(page.rest())
            page.close()
            self._page = None
        else:
            page.at = entries[0].offset
        return False

    def _open_next_page(self) -> bool:
        """Open the first page of the span, or the one behind the last page; False if there is none yet."""
        if not self._number:
            self._source.publish()
            if self._start is None:
                self._start = self._span.start()
            numbers = self._source.numbers()
            self._page = self._source.pages.seek(self._start, self._span.by, numbers, last=self._source.index)
            if self._page is None:
                return False
            self._number = self._first_page = self._page.header.number
            return True
        later = self._source.later_page(self._number)
        if later is None:
            return False
        if later > self._number + 1:
            self._note(self._gone(self._number + 1, f"pages up to {later - 1} were removed before they were read"))
        self._page = self._source.pages.reader(later)
        if self._page is None:
            self._note(self._gone(later, "its header cannot be read, or it was removed"))
        self._number = later
        return True

    def _gone(self, number: int, reason: str) -> Damage:
        return Damage(
            page=number,
            offset=0,
            size=0,
            after=self._returned.sequence if self._returned else 0,
            before=0,
            reason=reason,
        )

    def _offer(self, entry: Entry) -> None:
        key = entry.sequence if self._span.by is By.SEQUENCE else entry.arrived
        if self._is_over or self._start is None or key < self._start:
            return
        if entry.arrived >= self._span.until_us or entry.sequence > self._span.until_sequence:
            self._is_over = True
            return
        self._ready.append(entry)
        self._is_over = entry.sequence == self._span.until_sequence

    def _note(self, *damage: Damage | None) -> None:
        for one in filter(None, damage):
            self.skipped.append(one)
            _log.warning(
                facts_line("journal records unreadable", {"journal": self._source.pages.prefix, **one.facts()})
            )

    def _wait(self) -> bool:
        """Wait until there may be records; False if none will come."""
        if not self._follow:
            self._note_rest()
            return False
        with self._source.listeners.listening() as wakeup:
            is_late = self._is_late()
            if self._fill():  # it may have come before this thread listened
                return True
            if is_late or self._is_over or self._source.is_closed:
                return False
            wakeup.wait(self._next_look())
        return True

    def _note_rest(self) -> None:
        with self._lock:
            if self._page is not None and not self._is_over:
                self._note(self._page.rest(self._source.limit(self._number)))

    def _is_late(self) -> bool:
        """Whether all records until the end of the span have come; other processes write theirs within a second."""
        return self._source.clock.now() >= self._span.until_us + (SECOND if self._source.poll_us else 0)

    def _next_look(self) -> MonotonicUs | None:
        """The monotonic moment at which to look without having been woken."""
        left = [self._span.until_us - self._source.clock.now()] if self._span.until_us != NEVER else []
        if self._source.poll_us is not None:
            left = [self._source.poll_us]
        return self._source.clock.monotonic() + left[0] if left else None

    async def __aiter__(self) -> AsyncIterator[Record[T]]:
        """The records for a task: the disk is read in a thread, waits leave the event loop free."""
        with contextlib.closing(self):
            while (records := await in_thread(partial(self.take, _TAKEN))) or await self._awaited():
                for record in records:
                    yield record

    async def _awaited(self) -> bool:
        """As `_wait`, for a task."""
        if self._is_over:
            return False
        if not self._follow:
            self._note_rest()
            return False
        with self._source.listeners.listening() as wakeup:
            is_late = self._is_late()
            if await in_thread(self._fill):
                return True
            if is_late or self._is_over or self._source.is_closed:
                return False
            await wakeup.awaited(self._next_look())
        return True

    def close(self) -> None:
        """Leave the journal; the iteration ends."""
        self._is_over = self._is_closed = True
        self._source.listeners.notify()
        with self._lock:
            if self._page is not None:
                self._page.close()
                self._page = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
