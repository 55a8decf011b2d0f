"""The pages of a journal as files: listing, opening, reading one of them, and finding the page of a moment.

A page has a sparse index: where a record begins, every 64 KiB. It can always be made again from the records. Headers
and indexes are cached. A page is read under a shared lock, so that no process reclaims it meanwhile.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self
from zlib import crc32

from astyqueue.journal.disk import NO_SPACE, Disk, DiskFile, can_be_read, read_past_errors
from astyqueue.journal.format import OVERHEAD, RECORDS_AT, Entry, Kind, PageHeader, entries, length_at, next_readable
from astyqueue.journal.records import Damage

_MAGIC: Final = b"astyjidx"
_HEAD: Final = Struct("<8sIIQQqQ")
_MARK: Final = Struct("<QqQ")
_CHECKSUM: Final = Struct("<I")
_VERSION: Final = 1
#: Bytes of a page between two marks: a search reads at most that many in vain.
MARK_EVERY: Final = 64 << 10
#: Read at once: large enough to make system calls cheap, small enough to stay in the caches of a processor.
_CHUNK: Final = 256 << 10
#: Why records cannot be read that are perhaps whole.
BAD_BLOCKS: Final = "the disk cannot read all of its blocks"
#: Indexes in memory: 6 KiB each where pages have 16 MiB.
_INDEXES_KEPT: Final = 64


class By(Enum):
    """What a search compares: sequences, or moments of arrival."""

    SEQUENCE = 0
    ARRIVAL = 1


class Mark(NamedTuple):
    """A record that begins at this offset."""

    sequence: int
    arrived: int
    offset: int


class PageIndex:
    """The marks of one page, and the greatest sequence and moment in it."""

    def __init__(self, number: int, salt: int) -> None:
        """Start without records; `salt` is that of the page, which shows whether an index belongs to it."""
        self.number = number
        self.salt = salt
        self.end = RECORDS_AT
        self.last_sequence = 0
        self.last_arrived = 0
        self.marks: list[Mark] = []
        self.next_mark = RECORDS_AT

    def note(self, sequence: int, arrived: int, offset: int, kind: int) -> None:
        """Take in a record; reading cannot begin at one that only continues here."""
        self.last_sequence = sequence
        self.last_arrived = arrived
        if offset >= self.next_mark and kind in (Kind.WHOLE, Kind.FIRST):
            self.marks.append(Mark(sequence, arrived, offset))
            self.next_mark = offset + MARK_EVERY

    def before(self, offset: int, sequence: int) -> PageIndex:
        """The index without what was noted from this offset on; `sequence` is that of the last record left."""
        found = copy(self)
        found.marks = [mark for mark in self.marks if mark.offset < offset]
        found.next_mark = next((mark.offset for mark in self.marks if mark.offset >= offset), self.next_mark)
        found.last_sequence = sequence
        return found

    def offset_before(self, target: int, by: By) -> int:
        """Where to begin reading so that no record of at least `target` is passed."""
        position = bisect_left(self.marks, target, key=lambda mark: mark[by.value])
        return self.marks[position - 1].offset if position else RECORDS_AT

    def pack(self) -> bytes:
        """The bytes of its file."""
        head = _HEAD.pack(_MAGIC, _VERSION, self.salt, self.number, self.last_sequence, self.last_arrived, self.end)
        body = head + b"".join(_MARK.pack(*mark) for mark in self.marks)
        return body + _CHECKSUM.pack(crc32(body))

    @classmethod
    def parse(cls, data: bytes, header: PageHeader) -> Self | None:
        """The index from the bytes of its file; None if they are damaged, or of another page."""
        body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
        if len(body) < _HEAD.size or _CHECKSUM.unpack(checksum)[0] != crc32(body):
            return None
        magic, version, salt, number, sequence, arrived, end = _HEAD.unpack_from(body)
        if (magic, version, salt, number) != (_MAGIC, _VERSION, header.salt, header.number):
            return None
        found = cls(number, salt)
        found.marks = [Mark(*mark) for mark in _MARK.iter_unpack(body[_HEAD.size :])]
        found.next_mark = found.marks[-1].offset + MARK_EVERY if found.marks else RECORDS_AT
        found.last_sequence, found.last_arrived, found.end = sequence, arrived, end
        return found


class PageReader:
    """One open page and a place in it. `damage` lists what was passed because it is unreadable."""

    def __init__(self, file: DiskFile, header: PageHeader, at: int = RECORDS_AT) -> None:
        """Read from offset `at` on; the reader closes the file."""
        self.header = header
        self.at = at
        self.damage: list[Damage] = []
        self._file = file
        self._last = 0

    def read(self, limit: int | None = None) -> list[Entry]:
        """The next readable records, up to the offset `limit`; none at the end of what is there.

        Unreadable bytes with a readable record behind them are passed; without one they are left, because they may be
        a record that is being written.
        """
        size = _CHUNK
        while True:
            wanted = size if limit is None else max(0, min(size, limit - self.at))
            data = read_past_errors(self._file, self.at, wanted)
            found = entries(data, self.at, self.header)
            if found:
                self.at = found[-1].end
                self._last = found[-1].sequence
                return found
            ended = len(data) < size
            length = length_at(data)
            if not ended and len(data) < length <= self.header.page_size - self.at:
                size = length
            elif not data or not self._pass_unreadable(limit):
                return []

    def _pass_unreadable(self, limit: int | None) -> bool:
        """Go to the next readable record; False without one. It may be here: perhaps it was being written before."""
        rest = (self.header.page_size if limit is None else limit) - self.at
        data = read_past_errors(self._file, self.at, rest)
        if entries(data[: length_at(data)], self.at, self.header):
            return True
        found = next_readable(data, self.at, self.header)
        if found is None:
            return False
        self.damage.append(self._damaged(found.offset - self.at, before=found.sequence))
        self.at = found.offset
        return True

    def _damaged(self, size: int, before: int) -> Damage:
        is_readable = can_be_read(self._file, self.at, self.at + size)
        why = "its bytes do not match their checksum" if is_readable else BAD_BLOCKS
        return Damage(page=self.header.number, offset=self.at, size=size, after=self._last, before=before, reason=why)

    def rest(self, limit: int | None = None) -> Damage | None:
        """The bytes behind the last readable record, up to the offset `limit`, if there are any."""
        size = (self._file.size() if limit is None else limit) - self.at
        return self._damaged(size, before=0) if size > 0 else None

    def is_incomplete(self, rest: Damage) -> bool:
        """Whether `rest`, as it was measured, begins a record of which a part is missing."""
        if rest.reason == BAD_BLOCKS:
            return False
        if rest.size < OVERHEAD:
            return True
        length = length_at(read_past_errors(self._file, rest.offset, OVERHEAD))
        return rest.size < length <= self.header.page_size - rest.offset

    def close(self) -> None:
        """Close the file; the page may be reclaimed then."""
        self._file.close()


@contextlib.contextmanager
def _ignored_without_space() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


class Pages:
    """The pages of one journal. Thread-safe."""

    def __init__(self, disk: Disk, directory: Path, prefix: str) -> None:
        """The pages called `<prefix>-N.page` in this folder; `refresh` lists them."""
        self.disk = disk
        self.directory = directory
        self.prefix = prefix
        self.numbers: tuple[int, ...] = ()
        self._name = re.compile(re.escape(prefix) + r"-([1-9][0-9]{0,17})\.page")
        self._headers: dict[int, PageHeader] = {}
        self._indexes: dict[int, PageIndex] = {}

    def refresh(self) -> tuple[int, ...]:
        """The numbers of all pages that are there now, in order."""
        names = map(self._name.fullmatch, self.disk.names(self.directory))
        self.numbers = tuple(sorted(int(name[1]) for name in names if name))
        return self.numbers

    def path(self, number: int) -> Path:
        """The file of a page."""
        return self.directory / f"{self.prefix}-{number}.page"

    def index_path(self, number: int) -> Path:
        """The file of a page's index."""
        return self.directory / f"{self.prefix}-{number}.index"

    @property
    def lock_path(self) -> Path:
        """The file that the writer has locked."""
        return self.directory / f"{self.prefix}.lock"

    def may_have_writer(self) -> bool:
        """Whether a process has the journal open for writing, as far as this one may know."""
        try:
            file = self.disk.open(self.lock_path)
        except OSError as error:
            return not isinstance(error, FileNotFoundError)
        with contextlib.closing(file):
            return not file.lock(exclusive=False)

    def open(self, number: int) -> DiskFile:
        """The file of a page, for reading and syncing."""
        return self.disk.open(self.path(number))

    def header(self, number: int) -> PageHeader | None:
        """What a page says of itself; None if it is missing, unreadable or not written yet."""
        found = self._headers.get(number)
        if found is None:
            try:
                file = self.open(number)
            except FileNotFoundError:
                return None
            with contextlib.closing(file):
                found = PageHeader.parse(file.read_at(0, RECORDS_AT))
            if found is None or found.number != number:
                return None
            self._headers[number] = found
        return found

    def reader(self, number: int, at: int = RECORDS_AT) -> PageReader | None:
        """A page opened for reading, which keeps it from being reclaimed; None if it is missing or unreadable."""
        try:
            file = self.open(number)
        except FileNotFoundError:
            return None
        header = self.header(number)
        if header is None or not file.lock(exclusive=False) or not file.is_linked():
            file.close()
            return None
        return PageReader(file, header, at)

    def keep_header(self, header: PageHeader) -> None:
        """Know the header of a page that is begun, which is in no file yet."""
        self._headers[header.number] = header

    def reserve(self, number: int) -> None:
        """Leave an empty file at the place of a page, so that no later page gets a smaller number.

        A reader of another process may still be in a page that was removed, and waits for one with a greater number.
        """
        with _ignored_without_space():
            self.disk.open(self.path(number), write=True, create=True).close()

    def remove(self, number: int) -> None:
        """Remove a page and its index."""
        self.disk.remove(self.path(number))
        self.disk.remove(self.index_path(number))
        self.numbers = tuple(other for other in self.numbers if other != number)
        self._headers.pop(number, None)
        self._indexes.pop(number, None)

    def remove_unless_read(self, number: int) -> bool:
        """Remove a page unless a reader of any process is inside it; whether it is gone, also if by another hand."""
        try:
            file = self.open(number)
        except FileNotFoundError:
            self.remove(number)
            return True
        with contextlib.closing(file):
            if not file.lock(exclusive=True):
                return False
            self.remove(number)  # under the lock: a reader that enters before the name is gone would read on alone
        return True

    def seek(
        self, target: int, by: By, numbers: tuple[int, ...], *, last: PageIndex | None = None
    ) -> PageReader | None:
        """A reader placed so that no record with `by` of at least `target` is before it; None without readable pages.

        It searches the pages with these numbers, and starts from the latest that begins with less than `target`:
        records with the same moment may be on both sides of the border of two pages. `last` is the index of the page
        that is written to now.
        """
        later = bisect_left(
            range(len(numbers)),
            1,
            key=lambda at: not self._begins_before(numbers, at, target, by),
        )
        readable = (at for at in range(later - 1, -1, -1) if self.header(numbers[at]) is not None)
        for number in numbers[next(readable, 0) :]:
            index = last if last is not None and last.number == number else self.index(number)
            reader = self.reader(number, index.offset_before(target, by) if index else RECORDS_AT)
            if reader is not None:
                return reader
        return None

    def _begins_before(self, numbers: tuple[int, ...], at: int, target: int, by: By) -> bool:
        """Whether the first record of the page is less than `target`; an unreadable page counts as the one before."""
        for position in range(at, -1, -1):
            header = self.header(numbers[position])
            if header is not None:
                return (header.first_sequence if by is By.SEQUENCE else header.first_arrival) < target
        return True

    def index(self, number: int) -> PageIndex | None:
        """The index of a page: from its file, or else made from the records; None if the page is unreadable."""
        found = self._indexes.get(number)
        if found is None and (header := self.header(number)) is not None:
            found = self._stored_index(header) or self._derived_index(number)
            if found is not None and number != self.numbers[-1]:  # which grows
                if len(self._indexes) >= _INDEXES_KEPT:
                    self._indexes.clear()
                self._indexes[number] = found
        return found

    def _stored_index(self, header: PageHeader) -> PageIndex | None:
        try:
            with contextlib.closing(self.disk.open(self.index_path(header.number))) as file:
                found = PageIndex.parse(file.read_at(0, file.size()), header)
        except OSError:
            return None
        return found if found is not None and self._is_whole(found) else None

    def _is_whole(self, index: PageIndex) -> bool:
        """Whether an index is of all of its page: one from before a crash would hide when its last record arrived."""
        try:
            file = self.disk.open(self.path(index.number))
        except FileNotFoundError:
            return False
        with contextlib.closing(file):
            return file.size() == index.end

    def _derived_index(self, number: int) -> PageIndex | None:
        reader = self.reader(number)
        if reader is None:
            return None
        with contextlib.closing(reader):
            index = PageIndex(number, reader.header.salt)
            while found := reader.read():
                for entry in found:
                    index.note(entry.sequence, entry.arrived, entry.offset, entry.kind)
                index.end = reader.at
        return index

    def has_damaged_index(self, header: PageHeader) -> bool:
        """Whether a page has a file for its index that cannot be used; one that is only behind the page can be.

        An empty file is none: a process was killed after it had created the file and before it wrote.
        """
        try:
            file = self.disk.open(self.index_path(header.number))
        except OSError:
            return False
        with contextlib.closing(file), contextlib.suppress(OSError):
            size = file.size()
            return size > 0 and PageIndex.parse(file.read_at(0, size), header) is None
        return True

    def save_index(self, index: PageIndex) -> None:
        """Store the index of a page. It is a hint: it is not synced, and an error of the disk is ignored."""
        with contextlib.suppress(OSError):
            file = self.disk.open(self.index_path(index.number), write=True, create=True)
            with contextlib.closing(file):
                data = index.pack()
                file.write_at(0, data)
                file.truncate(len(data))
