"""What a crash or the disk did to a journal: cutting what was left half written at its end, and examining all of it.

A journal that is opened for writing reads only its end: the last page, or none of it if it was closed cleanly. What is
damaged before the end is passed and reported by those who read it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.journal.disk import DiskFile, can_be_read
from astyqueue.journal.format import OVERHEAD, RECORDS_AT, Entry, Kind, PageHeader
from astyqueue.journal.gaps import PageGaps
from astyqueue.journal.pages import BAD_BLOCKS, PageIndex, PageReader, Pages
from astyqueue.structured_log import log_event
from astyqueue.text import counted

_SEE: Final = "docs/how-to/journal.md#damage"
_RESTORE: Final = "restore the page from a backup, or accept the loss: readers pass it and go on behind it"
_log: Final = logging.getLogger("astyqueue.journal")


@dataclass
class OpenPage:
    """The page that is written to, its index, and the offset of its end. The file is open for writing."""

    file: DiskFile
    header: PageHeader
    index: PageIndex
    at: int


@dataclass
class End:
    """Where a journal continues: in a page, or in a new one with a number greater than `number`.

    `sequence` is the greatest that may have been given. Behind `last_record`, no record was ever acknowledged.
    """

    page: OpenPage | None = None
    number: int = 0
    sequence: int = 0
    last_record: int = 0
    arrived: int = 0
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Hint:
    """What a journal noted when it was closed cleanly. It is never believed without a look at the pages."""

    page_size: int
    number: int
    last: int
    end: int
    sequence: int
    #: Whether all pages were on the disk then: durability "none" leaves that to the system.
    is_synced: bool


def hint_path(pages: Pages) -> Path:
    """The file of the hint."""
    return pages.directory / f"{pages.prefix}.meta"


def save_hint(pages: Pages, page: OpenPage, *, last: int, sequence: int, is_synced: bool) -> None:
    """Store where the journal ends, in this page; errors of the disk are ignored, because it opens without the hint."""
    header = page.header
    hint = Hint(header.page_size, header.number, last, page.at, sequence, is_synced=is_synced)
    body = json.dumps(asdict(hint))
    data = f"{body}\n{crc32(body.encode())}\n".encode()
    with contextlib.suppress(OSError):
        file = pages.disk.open(hint_path(pages), write=True, create=True)
        with contextlib.closing(file):
            file.write_at(0, data)
            file.truncate(len(data))


def load_hint(pages: Pages) -> Hint | None:
    """The hint; None if it is missing or damaged."""
    try:
        with contextlib.closing(pages.disk.open(hint_path(pages))) as file:
            body, checksum, _ = file.read_at(0, file.size()).decode().split("\n")
            return Hint(**json.loads(body)) if int(checksum) == crc32(body.encode()) else None
    except (OSError, ValueError, TypeError):
        return None


def stored_page_size(pages: Pages) -> int | None:
    """The page size that a journal was created with; None if there is none yet."""
    headers = (pages.header(number) for number in reversed(pages.numbers))
    found = next((header.page_size for header in headers if header is not None), None)
    hint = load_hint(pages) if found is None else None
    return hint.page_size if hint else found


def find_end(pages: Pages) -> End:
    """The end of the last whole record, with all before it on the disk; what is behind it is cut and logged."""
    pages.refresh()
    hint = load_hint(pages)
    hinted = _hinted_end(pages, hint)
    end = hinted or _scanned_end(pages, hint)
    if hint is None or hinted is None or not hint.is_synced:
        _sync(pages)
    if end.cut_bytes:
        log_event(
            _log,
            logging.WARNING,
            "journal_tail_cut",
            journal=pages.directory / pages.prefix,
            bytes=end.cut_bytes,
            after_record=end.last_record,
        )
    return end


def _sync(pages: Pages) -> None:
    """Sync all pages, because an earlier writer may not have; pages without changes take microseconds each."""
    for number in pages.numbers:
        with contextlib.closing(pages.open(number)) as file:
            file.sync()
    pages.disk.sync_directory(pages.directory)


def _hinted_end(pages: Pages, hint: Hint | None) -> End | None:
    """The end that the hint names, if the last record is there and nothing is behind it."""
    if hint is None or not pages.numbers or hint.number != pages.numbers[-1]:
        return None
    index = pages.index(hint.number)
    reader = None if index is None else pages.reader(hint.number, hint.last)
    if reader is None or index is None:
        return None
    with contextlib.closing(reader):
        found = reader.read()
        last = found[0] if found else None
        if last is None or (last.offset, last.end) != (hint.last, hint.end) or reader.rest() is not None:
            return None
    if last.kind not in (Kind.WHOLE, Kind.LAST) or index.last_sequence != last.sequence:
        return None
    file = pages.disk.open(pages.path(hint.number), write=True)
    page = OpenPage(file, reader.header, index, last.end)
    return End(page, hint.number, last.sequence, last.sequence, last.arrived)


def _scanned_end(pages: Pages, hint: Hint | None) -> End:
    """The end as the pages show it, from the last one backwards until there is a whole record."""
    search = _EndSearch(pages, hint)
    for number in reversed(pages.numbers):
        if search.ends_in(number):
            break
    return search.end()


class _EndSearch:
    """Finds the last whole record, and what behind it is to be cut.

    No number of a page is used again once a reader may have seen its header, and no sequence that may be in unreadable
    bytes. A page whose header is unreadable stays if it holds more, for readers to report. So does a page that ends in
    bytes that the disk does not read: a crash leaves no such, and they may have been synced. Pages with parts of an
    unfinished record go. An empty page, or one with a torn header, has never been read: it keeps its place until the
    journal continues in it.
    """

    def __init__(self, pages: Pages, hint: Hint | None) -> None:
        """Pages that the hint knows and that are gone may have been read."""
        self._pages: Final = pages
        known = hint.sequence if hint else 0
        self._end: Final = End(sequence=known, last_record=known)
        self._found: _Content | None = None
        #: The journal continues in a page with at least this number.
        self._least = hint.number + 1 if hint and hint.number > max(pages.numbers, default=0) else 0
        self._lost_records = self._cut_records = 0
        self._unfinished: list[int] = []
        self._empty: list[int] = []

    def ends_in(self, number: int) -> bool:
        """Take in a page; whether it has a whole record, so that the ones before it need no look."""
        size, found = _content(self._pages, number)
        if found is None:
            self._headless(number, size)
            return False
        self._end.sequence = max(self._end.sequence, found.sequence)
        self._end.last_record = max(self._end.last_record, found.last_record)
        self._end.arrived = max(self._end.arrived, found.arrived)
        if not found.can_be_cut:
            self._leave(number, found.size - (found.end or RECORDS_AT))
            return True
        if found.end is None and found.has_parts:
            self._unfinished.append(number)
            self._end.cut_bytes += size
            self._least = max(self._least, number + 1)
            return False
        self._cut(found)
        if number >= self._least and self._found is None:
            self._found, self._least = found, number
        return found.end is not None

    def _headless(self, number: int, size: int) -> None:
        if size > RECORDS_AT:
            self._leave(number, size - RECORDS_AT)
        else:
            self._end.cut_bytes += size
            self._least = max(self._least, number)
            self._empty.append(number)

    def _leave(self, number: int, unreadable: int) -> None:
        """Go on behind a page of which this number of bytes cannot be read."""
        self._least = max(self._least, number + 1)
        self._lost_records += unreadable // OVERHEAD

    def _cut(self, found: _Content) -> None:
        """Cut what is behind the last whole record of a page."""
        end = found.end or RECORDS_AT
        if found.size > end:
            self._end.cut_bytes += found.size - end
            self._cut_records += (found.size - end) // OVERHEAD
            with contextlib.closing(self._pages.disk.open(self._pages.path(found.header.number), write=True)) as file:
                file.truncate(end)

    def end(self) -> End:
        """Remove what is unfinished, and open the page in which the journal continues."""
        if self._found is None and (self._unfinished or self._empty):
            self._pages.reserve(self._least)
        for number in (*self._unfinished, *self._empty):
            if number != self._least:
                self._pages.remove(number)
        self._pages.numbers = tuple(n for n in self._pages.numbers if n not in self._empty)
        self._end.number = max(0, self._least - 1)
        self._end.sequence += self._cut_records + self._lost_records
        if self._lost_records:
            self._end.last_record = self._end.sequence
        if self._found is not None:
            file = self._pages.disk.open(self._pages.path(self._least), write=True)
            self._end.page = OpenPage(file, self._found.header, self._found.index, self._found.end or RECORDS_AT)
            self._end.number = self._least
        return self._end


@dataclass
class _Content:
    """The records of a page, up to the end of the last whole one; None where the page has no whole one.

    `can_be_cut` is whether the disk reads all that is behind the records.
    """

    header: PageHeader
    index: PageIndex
    size: int
    end: int | None = None
    has_parts: bool = False
    can_be_cut: bool = True

    def note_all(self, reader: PageReader) -> None:
        while entries := reader.read():
            for entry in entries:
                self._note(entry)

    def _note(self, entry: Entry) -> None:
        self.has_parts |= entry.kind in (Kind.FIRST, Kind.MIDDLE)
        if entry.kind in (Kind.WHOLE, Kind.LAST):
            self.index.note(entry.sequence, entry.arrived, entry.offset, entry.kind)
            self.end = self.index.end = entry.end

    @property
    def sequence(self) -> int:
        return max(self.index.last_sequence, self.header.first_sequence - 1)

    @property
    def last_record(self) -> int:
        return max(self.index.last_sequence, self.header.last_before)

    @property
    def arrived(self) -> int:
        return max(self.index.last_arrived, self.header.first_arrival)


def _content(pages: Pages, number: int) -> tuple[int, _Content | None]:
    """The size of a page, and what can be read of it."""
    with contextlib.closing(pages.open(number)) as file:
        size = file.size()
        header = pages.header(number)
        if header is None:
            return size, None
        found = _Content(header, PageIndex(number, header.salt), size)
        reader = PageReader(file, header)
        found.note_all(reader)
        found.can_be_cut = can_be_read(file, reader.at, size)
        found.note_all(reader)  # a disk that goes bad may read at the second try what it did not at the first
        return size, found


def verified(
    pages: Pages,
    numbers: tuple[int, ...],
    limit: Callable[[int], int | None],
    cursors: Mapping[str, int],
    unreadable: Mapping[str, OSError | None],
) -> list[Finding]:
    """What is damaged, from the first page on; one finding of severity OK if nothing is.

    `limit` gives the offset up to which a page may be read while it is written, `cursors` the places of those that were
    committed, `unreadable` names those that cannot be read, with the error of the system.
    """
    examination = _Examination(pages)
    for name, error in unreadable.items():
        examination.unreadable_cursor(name, error)
    for name, sequence in cursors.items():
        examination.cursor(name, sequence, numbers)
    last = next((number for number in reversed(numbers) if pages.header(number) is not None), 0)
    for before, number in zip((None, *numbers), numbers, strict=False):
        if before is not None and number != before + 1:
            examination.missing(before + 1, number - 1)
        examination.page(number, limit(number), is_last=number >= last)
    summary = f"{counted(examination.records, 'record')} in {counted(len(numbers), 'page')} can be read"
    return [*examination.findings, *([] if examination.findings else [ok("journal", summary)])]


class _Examination:
    def __init__(self, pages: Pages) -> None:
        self.findings: list[Finding] = []
        self.records = 0
        self._pages = pages
        self._last: Entry | None = None
        self._gaps = PageGaps(lambda damage: self.problem(f"page {damage.page}", str(damage)))

    def cursor(self, name: str, sequence: int, numbers: tuple[int, ...]) -> None:
        header = next(filter(None, map(self._pages.header, numbers)), None)
        if header is not None and header.last_before > sequence:
            fact = f"cursor {name!r} is at record {sequence}, the first record is {header.first_sequence}"
            reason = "records that it has not passed were dropped, reclaimed without cursors, or lost"
            remedy = "its reader goes on with the first record; remove the cursor if none uses it any more"
            self.findings.append(Finding(f"cursor {name}", Severity.WARNING, fact, reason, remedy, see=_SEE))

    def unreadable_cursor(self, name: str, error: OSError | None) -> None:
        fact = f"cursor {name!r} cannot be read: its reader begins again with the first record"
        reason = "the disk lost or changed both of its copies, or its file was changed by hand"
        remedy = "restore its file from a backup, rewind it to a place that you know, or remove it if none uses it"
        if error is not None:
            fact = f"cursor {name!r} cannot be read: {error}"
            reason = "its file belongs to another user, or the disk failed; as none knows its place, its pages are kept"
            remedy = "give the file to the user of the journal (chown), or remove it if no reader uses it"
        self.findings.append(Finding(f"cursor {name}", Severity.WARNING, fact, reason, remedy, see=_SEE))

    def missing(self, first: int, last: int) -> None:
        self._gaps.suspect(first, f"pages {first} to {last} are missing")

    def problem(self, subject: str, fact: str, severity: Severity = Severity.PROBLEM) -> None:
        reason = "the disk lost or changed what was written, or files were changed by hand"
        self.findings.append(Finding(subject, severity, fact, reason, _RESTORE, see=_SEE))

    def page(self, number: int, limit: int | None, *, is_last: bool) -> None:
        subject = f"page {number}"
        reader = self._pages.reader(number)
        if reader is None:
            self._unreadable(number, is_last=is_last)
            self._gaps.mark_reported()
            return
        self._gaps.enter(reader.header)
        with contextlib.closing(reader):
            while entries := reader.read(limit):
                self._gaps.read(entries)
                for entry in entries:
                    self._entry(subject, entry)
            for damage in reader.damage:
                self.problem(subject, str(damage))
            rest = reader.rest(limit)
            if rest is not None and is_last and rest.reason != BAD_BLOCKS:
                self._torn(subject, rest.size)
            elif rest is not None:
                self.problem(subject, str(rest))
                self._gaps.mark_reported()
        self._index(number)

    def _entry(self, subject: str, entry: Entry) -> None:
        last, self._last = self._last, entry
        self.records += entry.kind in (Kind.WHOLE, Kind.LAST)
        if last is not None and (entry.sequence < last.sequence or entry.arrived < last.arrived):
            self.problem(subject, f"record {entry.sequence} follows record {last.sequence}: they are out of order")

    def _unreadable(self, number: int, *, is_last: bool) -> None:
        with contextlib.suppress(FileNotFoundError), contextlib.closing(self._pages.open(number)) as file:
            size = file.size()
            if size > RECORDS_AT or not is_last:
                self.problem(f"page {number}", f"its header cannot be read, {size} bytes are lost")
            elif size:
                self._torn(f"page {number}", size)

    def _torn(self, subject: str, size: int) -> None:
        fact = f"{size} bytes behind the last whole record are not one"
        reason = "a record is being written, or the writer died while it wrote one"
        self.findings.append(note(subject, fact, reason, remedy="they are cut when the journal is opened for writing"))

    def _index(self, number: int) -> None:
        header = self._pages.header(number)
        if header is None or not self._pages.has_damaged_index(header):
            return
        reason = "searches read this page from its start"
        remedy = f"delete {self._pages.index_path(number).name}: it is made again from the records when it is needed"
        self.findings.append(note(f"page {number}", "its index is damaged or of another page", reason, remedy=remedy))
