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
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from astyqueue.journal.format import Entry, Kind
from astyqueue.journal.gaps import PartJoiner
from astyqueue.journal.page_walk import PageWalk, Source
from astyqueue.journal.pages import By, Pages
from astyqueue.journal.records import Codec, Damage, Position, Record
from astyqueue.journal_errors import UndecodableRecord
from astyqueue.structured_log import log_event
from astyqueue.units import NEVER, SECOND, MonotonicUs
from astyqueue.waiting import in_thread

T = TypeVar("T")

#: Records that a task takes from its reader at a time, in a thread.
_TAKEN: Final = 256
_log: Final = logging.getLogger("astyqueue.journal")


@dataclass(frozen=True, slots=True)
class Span:
    """Which records to read: those with `by` of at least `start()`, until a moment or a sequence.

    `start` and `until` are called when reading starts. The moment `until` is excluded, the record `until_sequence` is
    the last.
    """

    by: By
    start: Callable[[], int]
    until: Callable[[], int] = lambda: NEVER
    until_sequence: int = NEVER


class LossLog:
    """Logs what cannot be read, each place once. Readers that look at the same records repeatedly share one."""

    def __init__(self) -> None:
        """Nothing is logged yet."""
        self._logged: Final[set[tuple[Path, int, int]]] = set()

    def log(self, pages: Pages, damage: Damage) -> None:
        """Log a loss in these pages, unless that was done."""
        place = (pages.directory / pages.prefix, damage.page, damage.offset)
        if place not in self._logged:
            self._logged.add(place)
            facts = {"journal": pages.prefix, **damage.facts()}
            log_event(_log, logging.WARNING, "journal_records_unreadable", **facts)  # type: ignore[arg-type]  # none is `exc_info`


class _Losses:
    """What a reader passed because it cannot be read, each logged once.

    The parts of a reader note it here. If they referred to the reader, one that is dropped half way would stay in its
    page, and keep it from being reclaimed, until the interpreter looks for cycles.
    """

    def __init__(self, pages: Pages) -> None:
        self.found: Final[list[Damage]] = []
        self.log = LossLog()
        self._pages: Final = pages

    def note(self, damage: Damage) -> None:
        self.found.append(damage)
        self.log.log(self._pages, damage)


class Reader(Generic[T]):
    """The records of a span, in order. Close it, drop it or read it to its end: until then it keeps its page.

    `position` is the place of the last record returned, and `skipped` what was passed because it cannot be read. A line
    is logged of each.
    `close` may be called from any thread and ends the iteration; all else belongs to one thread or task.
    """

    def __init__(self, source: Source, codec: Codec[T], span: Span, *, follow: bool) -> None:
        """With `follow`, wait for records to come; otherwise end where the journal ends."""
        self._position: tuple[int, int] | None = None
        self._source: Final = source
        self._codec: Final = codec
        self._span: Final = span
        self._follow: Final = follow
        self._ready: deque[Entry] = deque()
        self._losses: Final = _Losses(source.pages)
        self._parts: Final = PartJoiner(self._losses.note)
        self._walk: Final = PageWalk(source, span.by, self._losses.note)
        self._start: int | None = None
        self._until_us = NEVER
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
        record = self._decoded(self._ready.popleft())
        self._position = record.sequence, record.arrived_us
        return record

    def _decoded(self, entry: Entry) -> Record[T]:
        try:
            value = self._codec.decode(entry.payload)
        except Exception as error:
            raise UndecodableRecord(entry.sequence, f"{type(error).__name__}: {error}") from error
        return Record(entry.sequence, entry.arrived, value)

    @property
    def position(self) -> Position | None:
        """The place of the last record that was returned; None before the first."""
        return Position(*self._position) if self._position else None

    @property
    def skipped(self) -> list[Damage]:
        """What was passed because it cannot be read."""
        return self._losses.found

    def share_log(self, log: LossLog) -> None:
        """Log in `log` what cannot be read; without this the reader has a log of its own."""
        self._losses.log = log

    def take(self, limit: int, size: int = NEVER) -> list[Record[T]]:
        """Up to `limit` records that are there now, without waiting for others; the one that reaches `size` ends them.

        `size` counts the bytes of the records as they were appended.
        After an error the next call returns the same records again, except one that the codec refuses.
        """
        records = self._taken(limit, size)
        if records:
            self._position = records[-1].sequence, records[-1].arrived_us
        return records

    def _taken(self, limit: int, size: int = NEVER) -> list[Record[T]]:
        """As `take`, without a change of `position`: a task gets them one at a time."""
        records: list[Record[T]] = []
        taken: list[Entry] = []
        try:
            while not self._is_closed and len(records) < limit and size > 0 and self._is_ready():
                entry = self._ready[0]
                records.append(self._decoded(entry))
                size -= len(entry.payload)
                taken.append(entry)
                self._ready.popleft()
        except UndecodableRecord:
            if not records:
                self._ready.popleft()
                raise
        except BaseException:
            self._ready.extendleft(reversed(taken))
            raise
        return records

    def _is_ready(self) -> bool:
        return bool(self._ready) or (not self._is_over and self._fill())

    def has_more(self) -> bool:
        """Whether a record is there now."""
        return bool(self._ready) or self._fill()

    def _fill(self) -> bool:
        """Read on until a record of the span is ready; False if there is none now."""
        with self._lock:
            if self._start is None and not self._is_over:
                self._start, self._until_us = self._span.start(), self._span.until()
            while not self._ready and not self._is_over:
                entries = self._walk.next_entries(self._start or 0)
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
            whole = self._parts.joined(entry, self._walk.number, may_begin_before=self._may_begin_before(entry))
            if whole is not None:
                self._offer(whole)

    def _are_all_wanted(self, entries: list[Entry]) -> bool:
        """Whether all of these are whole and in the span: the usual case, which is decided for all at once."""
        bounds = self._span
        first = entries[0].sequence if bounds.by is By.SEQUENCE else entries[0].arrived
        return (
            self._start is not None
            and first >= self._start
            and entries[-1].arrived < self._until_us
            and entries[-1].sequence < bounds.until_sequence
            and not self._parts
            and {entry.kind for entry in entries} == {Kind.WHOLE}
        )

    def _may_begin_before(self, entry: Entry) -> bool:
        """Whether a part may be of a record that begins before the first page, and is not wanted for all we know."""
        is_behind_another = (
            self._span.by is By.SEQUENCE and self._start is not None and 1 < self._start <= entry.sequence
        )
        return self._walk.number == self._walk.first_page and not is_behind_another

    def _offer(self, entry: Entry) -> None:
        key = entry.sequence if self._span.by is By.SEQUENCE else entry.arrived
        if self._is_over or self._start is None or key < self._start:
            return
        if entry.arrived >= self._until_us or entry.sequence > self._span.until_sequence:
            self._is_over = True
            return
        self._ready.append(entry)
        self._is_over = entry.sequence == self._span.until_sequence

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
            if not self._is_over:
                self._walk.note_rest()

    def _is_late(self) -> bool:
        """Whether all records until the end of the span have come; other processes write theirs within a second."""
        return self._source.clock.now() >= self._until_us + (SECOND if self._source.poll_us else 0)

    def _next_look(self) -> MonotonicUs | None:
        """The monotonic moment at which to look without having been woken."""
        left = [self._until_us - self._source.clock.now()] if self._until_us != NEVER else []
        if self._source.poll_us is not None:
            left = [self._source.poll_us]
        return self._source.clock.monotonic() + left[0] if left else None

    async def __aiter__(self) -> AsyncIterator[Record[T]]:
        """The records for a task: the disk is read in a thread, waits leave the event loop free."""
        with contextlib.closing(self):
            while (records := await in_thread(partial(self._taken, _TAKEN))) or await self._awaited():
                for record in records:
                    self._position = record.sequence, record.arrived_us
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
            await wakeup.wait_in_task(self._next_look())
        return True

    def close(self) -> None:
        """Leave the journal; the iteration ends."""
        self._is_over = self._is_closed = True
        self._source.listeners.notify()
        with self._lock:
            self._walk.close()

    def abandon(self) -> None:
        """As `close`, in a forked child, where another thread of the parent may have locked this object for ever."""
        self._is_over = self._is_closed = True
        self._walk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
