"""Packs records into a buffer and writes the buffer to the last page; begins pages, and cuts large records into parts.

Nothing here is thread-safe: the caller has the lock of the writer.

A handler of signals may raise in the middle of all this, as that of Ctrl-C does, and other threads go on. Python runs
it at calls and at the end of a round of a loop. So what belongs together changes in a run of assignments without those.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final, NoReturn
from zlib import crc32

from astyqueue.clock import instant
from astyqueue.journal.cursor import Retention
from astyqueue.journal.disk import NO_SPACE, DiskFile
from astyqueue.journal.format import BODY, MASK, OVERHEAD, PREFIX, RECORDS_AT, TOTAL, Kind, PageHeader, packed
from astyqueue.journal.pages import MARK_EVERY, Mark, PageIndex, Pages
from astyqueue.journal.records import Position
from astyqueue.journal.recovery import End, OpenPage, save_hint
from astyqueue.journal.settings import Durability, Settings
from astyqueue.journal.writing.syncs import Syncs, Unsynced
from astyqueue.journal_errors import JournalFailed
from astyqueue.structured_log import log_event
from astyqueue.text import iso
from astyqueue.units import NEVER, SECOND

#: The buffer is written when it holds this much; a larger one was not faster.
_BUFFER: Final = 256 << 10
#: Records that fill the buffer if they are empty.
_AT_ONCE: Final = _BUFFER // OVERHEAD
#: A clock this far behind the last record, in microseconds, is logged: it once ran ahead.
_BEHIND_US: Final = 3_600 * SECOND
_log: Final = logging.getLogger("astyqueue.journal")


class NoRoom(Exception):
    """The cap or the disk leaves no room: its text says which. `done` payloads of the call were accepted."""

    done: int = 0


class LeftOut:
    """Sequences that no record gets, because a reader may have seen them in bytes that are damaged or were cut."""

    def __init__(self, last_record: int, upto: int) -> None:
        """`last_record` is the last real one; those behind it, up to `upto`, are left out."""
        self._last_record = last_record
        self._upto = upto

    def skip(self, last_record: int, upto: int) -> None:
        """Leave out those behind the last real record, up to `upto`. `last_record` itself may be left out already."""
        self._last_record, self._upto = self.last_before(last_record), upto

    def last_before(self, sequence: int) -> int:
        """The last real record up to this sequence, which is the last that was given to a record or left out."""
        return self._last_record if sequence == self._upto else sequence


class ClockBehind:
    """Logs that records arrive at a moment of the future, where their ages and `retain` go wrong."""

    def __init__(self, pages: Pages) -> None:
        """Name this journal in the log."""
        self._pages: Final = pages
        self._is_logged = False

    def note(self, last: int, now: int) -> None:
        """Log once that the clock is an hour or more behind the last record."""
        if last - now > _BEHIND_US and not self._is_logged:
            self._is_logged = True
            journal = self._pages.directory / self._pages.prefix
            log_event(
                _log,
                logging.WARNING,
                "journal_clock_behind",
                journal=journal,
                last_record=iso(instant(last)),
                clock=iso(instant(now)),
            )


class PageWriter:
    """The end of a journal: the page that is written to, and the records that wait in the buffer.

    `sequence` is the last record accepted, `written` the last that readers of all processes can see. `published` is the
    page and the offset that it ends at; no offset is the end of that page.
    """

    def __init__(self, pages: Pages, settings: Settings, retention: Retention, end: End, *, lock: DiskFile) -> None:
        """Continue at this end, which is on the disk. `lock` is the file that keeps other writers out."""
        self.number = end.number
        self.sequence = self.written = end.sequence
        self.published: tuple[int, int | None] = (end.number, end.page.at if end.page else None)
        self._arrived = end.arrived
        self._page = end.page
        self._pages: Final = pages
        self._lock: Final = lock
        self._settings: Final = settings
        self._retention: Final = retention
        self._page_size: Final = settings.page_size
        self._capacity: Final = settings.page_size - RECORDS_AT
        self._unwritten_limit: Final = settings.batch_records if settings.durability is Durability.BATCH else NEVER
        self._buffer: list[bytes] = []
        self._end = end.page.at if end.page else 0
        self._last_at = 0
        self._was_seen = False
        self._clock_behind: Final = ClockBehind(pages)
        self._left_out: Final = LeftOut(end.last_record, end.sequence)
        self.syncs: Final = Syncs(pages, settings.durability, end.sequence)

    @property
    def has_unwritten(self) -> bool:
        """Whether records wait in the buffer."""
        return self.sequence != self.written

    @property
    def index(self) -> PageIndex | None:
        """The index of the page that is written to."""
        return self._page.index if self._page else None

    def add(self, payloads: Sequence[bytes], done: int, now: int, *, write_now: bool) -> Position:
        """Accept the payloads from number `done` on; returns the place of the last.

        With `write_now` they are written when this returns, and none of them waits in the buffer after NoRoom, which
        says how many were accepted. Otherwise they may wait there.
        """
        arrived = max(now, self._arrived)
        if arrived != now:
            self._clock_behind.note(arrived, now)
        is_own = not (write_now and self.has_unwritten)
        try:
            if not is_own:  # the records of earlier calls, which are not to be taken back with those of this one
                self.flush()
                is_own = True
            while done < len(payloads):
                done = self._add_some(payloads, done, arrived)
            if write_now:
                self.flush()
        except NoRoom as full:
            full.done = done - (self._take_back() if write_now and is_own else 0)
            raise
        return Position(self.sequence, self._arrived)

    def _add_some(self, payloads: Sequence[bytes], done: int, arrived: int) -> int:
        length = len(payloads[done]) + OVERHEAD
        if length > self._capacity:
            self._add_large(payloads[done], arrived)
            return done + 1
        buffered = self._end - self._page.at if self._page else 0
        if buffered >= _BUFFER or self.sequence - self.written >= self._unwritten_limit:
            self.flush()
        if self._page is None or self._end + length > self._page_size:
            self.roll(1, arrived)
        return self._pack(payloads, done, arrived)

    def _pack(self, payloads: Sequence[bytes], done: int, arrived: int) -> int:
        """Pack as many as the page and the buffer take. This loop is most of what an append costs."""
        page, limit = self._opened(), self._page_size
        made: list[bytes] = []
        marks: list[Mark] = []
        index, salt, end, sequence = page.index, page.header.salt, self._end, self.sequence
        pack_body, pack_prefix, kind, overhead = BODY.pack, PREFIX.pack, int(Kind.WHOLE), OVERHEAD
        full, next_mark, last_at, before = page.at + _BUFFER, index.next_mark, self._last_at, sequence
        for payload in payloads[done : done + _AT_ONCE]:
            length = len(payload) + overhead
            if end + length > limit or end >= full:
                break
            sequence += 1
            body = pack_body(sequence, arrived, kind)
            made += (pack_prefix(length, crc32(payload, crc32(body, (salt + end) & MASK))), body, payload)
            if end >= next_mark:
                marks.append(Mark(sequence, arrived, end))
                next_mark = end + MARK_EVERY
            last_at = end
            end += length
        self._buffer += made
        self._end, self.sequence, self._arrived, self._last_at = end, sequence, arrived, last_at
        index.marks += marks
        index.next_mark, index.last_sequence, index.last_arrived = next_mark, sequence, arrived
        return done + sequence - before

    def _opened(self) -> OpenPage:
        assert self._page is not None  # noqa: S101 - for types: a page was begun before
        return self._page

    def _add_large(self, payload: bytes, arrived: int) -> None:
        """Write a record over several new pages. Readers of this process see it when all of it is written.

        Readers pass the parts of one that was interrupted; the next record has its sequence. With its last part in the
        buffer it is accepted.
        """
        parts = _parts(payload, self._capacity - OVERHEAD)
        self.roll(len(parts), arrived)
        first, sequence = self.number, self.sequence + 1
        try:
            for position, part in enumerate(parts):
                if position:
                    self._write()
                    self._seal()
                    self._begin_page(arrived)
                last = Kind.LAST if position == len(parts) - 1 else Kind.MIDDLE
                self._pack_part(part, last if position else Kind.FIRST, sequence, arrived)
            self._write()
        except OSError as error:
            self._remove_pages_from(first)
            _raise_no_room(error)
        self._publish()

    def _pack_part(self, part: bytes, kind: Kind, sequence: int, arrived: int) -> None:
        page, at = self._opened(), self._end
        data = packed(kind, sequence, arrived, part, page.header.salt + at)
        end, is_last = at + len(data), kind is Kind.LAST
        page.index.note(sequence, arrived, at, kind)
        self._buffer += (data,)
        self._end, self._last_at = end, at
        if is_last:
            self.sequence, self._arrived = sequence, arrived

    def flush(self) -> None:
        """Write the buffer, for readers of all processes to see. NoRoom leaves it as it is."""
        if self._buffer:
            try:
                self._write()
            except OSError as error:
                _raise_no_room(error)
        if self._page is not None and self.published != (self.number, self._page.at):
            self._publish()

    def _write(self) -> None:
        page = self._opened()
        data = b"".join(self._buffer)
        end = page.at + len(data)
        try:
            page.file.write_at(page.at, data)
        except OSError as error:
            if error.errno in NO_SPACE:
                self._was_seen |= _cut(page, self._pages)
            raise
        page.at, self._buffer, self._was_seen = end, [], False

    def _publish(self) -> None:
        """Let readers see what was written: the last step, so that they never see a part of it."""
        page = self._opened()
        self.published, self.written = (self.number, page.at), self.sequence

    def unsynced(self) -> Unsynced:
        """What has been written and not synced."""
        return self.syncs.unsynced(self._page.file if self._page else None, self.written)

    def _take_back(self) -> int:
        """Forget the records in the buffer, and return how many; a page header before them stays."""
        count, page = self.sequence - self.written, self._page
        if count and page is not None:
            end, kept = page.at or RECORDS_AT, self._buffer[: 0 if page.at else 1]
            page.index = page.index.before(end, self.written)
            if self._was_seen:
                self._leave_seen(page)
            else:
                self._buffer, self._end, self.sequence = kept, end, self.written
        return count

    def _leave_seen(self, page: OpenPage) -> None:
        """Go on in a new page, behind the sequences taken back: readers of other processes may have seen a part."""
        if page.at:
            self.syncs.finish(page, self.written)
        synced = self.sequence if self.syncs.synced == self.written else self.syncs.synced
        self._left_out.skip(self.written, self.sequence)
        self._page, self._buffer, self._was_seen = None, [], False
        self.syncs.synced, self.written = synced, self.sequence
        self.syncs.retire(page.file)
        self._pages.reserve(self.number + 1)
        if not page.at:
            self._pages.remove(self.number)

    def roll(self, needed: int, arrived: int) -> None:
        """Go on in a new page, if the cap leaves room for all that are needed; JournalFailed without a lock."""
        _check_lock(self._lock, self._pages)
        self.flush()
        if self._settings.retain_us is not None:
            self._retention.reclaim(self.number)
        if self._retention.is_beyond_cap(needed, self._page_size):
            reason = f"its cap is {self._settings.cap} bytes"
            raise NoRoom(reason)
        self._seal()
        try:
            self._begin_page(arrived)
        except OSError as error:
            _raise_no_room(error)

    def _begin_page(self, arrived: int) -> None:
        number = self.number + 1
        file = self._pages.disk.open(self._pages.path(number), write=True, create=True)
        before, arrived = self._left_out.last_before(self.sequence), max(arrived, self._arrived)
        header = PageHeader(
            number, self._page_size, secrets.randbits(32), self.sequence + 1, arrived, last_before=before
        )
        page, packed_header = OpenPage(file, header, PageIndex(number, header.salt), 0), header.pack()
        self._pages.keep_header(header)
        self.syncs.page_made()
        self._page, self.number, self._buffer, self._end = page, number, [packed_header], RECORDS_AT
        self._pages.numbers = (*self._pages.numbers, number)

    def _seal(self) -> None:
        """Finish the page: nothing is written to it any more."""
        page = self._page
        if page is not None:
            self.syncs.finish(page, self.written)
            self._page = None
            self.syncs.retire(page.file)

    def _remove_pages_from(self, first: int) -> None:
        """Remove the pages of what did not fit. Their numbers are not used again."""
        page = self._page
        self._page, self._buffer, self.sequence = None, [], self.written
        if page is not None:
            self.syncs.retire(page.file)
        self._pages.reserve(self.number + 1)
        for number in range(self.number, first - 1, -1):
            self._pages.remove(number)

    def close(self) -> None:
        """Note where the journal ends, and close its files."""
        page = self._page
        if page is not None:
            if page.at > RECORDS_AT and not self._buffer and self._last_at >= RECORDS_AT:
                page.index.end = page.at
                self._pages.save_index(page.index)
                is_synced = self.syncs.synced == self.sequence
                save_hint(self._pages, page, last=self._last_at, sequence=self.sequence, is_synced=is_synced)
            page.file.close()
        self.syncs.close_retired()


def flushed_renewal(out: PageWriter, now: int) -> Callable[[], None] | None:
    """Flush the buffer, so that all records are in pages; NoRoom as `flush`.

    Returns a call that begins a new page and syncs it, so that the present one may be removed; None if that has no
    record.
    """
    out.flush()
    if out.index is None or not out.index.last_sequence:
        return None

    def renew() -> None:
        out.roll(1, now)
        out.flush()
        if (file := out.unsynced().file) is not None:  # it alone says which sequences were given
            out.syncs.sync_file(file)

    return renew


def _check_lock(lock: DiskFile, pages: Pages) -> None:
    if not lock.is_linked():
        reason = f"{pages.lock_path.name} was removed, so that another process may be writing too"
        raise JournalFailed(str(pages.directory), reason)


def _parts(payload: bytes, size: int) -> list[bytes]:
    """The length of a payload and the payload itself, cut into parts of this size."""
    content = TOTAL.pack(len(payload)) + payload
    return [content[at : at + size] for at in range(0, len(content), size)]


def _cut(page: OpenPage, pages: Pages) -> bool:
    """Remove what a full disk took of a write; whether there was something that readers may have seen.

    JournalFailed if the disk does not do so: the write may have left whole records.
    """
    try:
        was_seen = page.file.size() > max(page.at, RECORDS_AT)
        page.file.truncate(page.at)
    except OSError as error:
        reason = f"a part of a write cannot be cut: {error}"
        raise JournalFailed(str(pages.directory), reason) from error
    return was_seen


def _raise_no_room(error: OSError) -> NoReturn:
    """Raise NoRoom if the disk is full, and the error itself otherwise."""
    if error.errno in NO_SPACE:
        reason = f"the disk has no space: {error.strerror}"
        raise NoRoom(reason) from error
    raise error
