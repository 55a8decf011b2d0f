"""What a crash or the disk did to a journal: cutting what was left half written at its end, and examining all of it.

A journal that is opened for writing reads only its end: the last page, or none of it if it was closed in order. What is
damaged before the end is passed and reported by those who read it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.journal.disk import DiskFile
from astyqueue.journal.format import RECORDS_AT, Entry, Kind, PageHeader
from astyqueue.journal.pages import PageIndex, PageReader, Pages
from astyqueue.printable import facts_line
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
    """Where a journal continues: in a page, or in a new one with a number greater than `number`."""

    page: OpenPage | None = None
    number: int = 0
    sequence: int = 0
    arrived: int = 0
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Hint:
    """What a journal noted when it was closed in order. It is never believed without a look at the pages."""

    page_size: int
    number: int
    last: int
    end: int
    #: Whether all pages were on the disk then: durability "none" leaves that to the system.
    is_synced: bool


def hint_path(pages: Pages) -> Path:
    """The file of the hint."""
    return pages.directory / f"{pages.prefix}.meta"


def save_hint(pages: Pages, hint: Hint) -> None:
    """Store the hint; errors of the disk are ignored, because the journal opens without it."""
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
    end = hinted or _scanned_end(pages)
    if hint is None or hinted is None or not hint.is_synced:
        _sync(pages)
    if end.cut_bytes:
        facts = {"journal": pages.directory / pages.prefix, "bytes": end.cut_bytes, "after_record": end.sequence}
        _log.warning(facts_line("journal tail cut", facts))
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
    return End(page, hint.number, last.sequence, last.arrived)


def _scanned_end(pages: Pages) -> End:
    """The end as the pages show it, from the last one backwards until there is a whole record.

    A page whose header is unreadable is removed if it holds nothing else, because no record in it was ever synced;
    otherwise it stays, for readers to report, and the journal continues in a new page.
    """
    cut = unreadable = 0
    for number in reversed(pages.numbers):
        size, found = _content(pages, number)
        if found is None and size > RECORDS_AT:
            unreadable = unreadable or number
        elif found is None or (found.end is None and number != pages.numbers[0]):
            cut += size
            pages.remove(number)
        elif unreadable:
            return End(None, unreadable, found.sequence, found.arrived, cut)
        else:
            return _reopened(pages, found, cut)
    return End(None, unreadable, cut_bytes=cut)


@dataclass
class _Content:
    """The records of a page, up to the end of the last whole one; None where the page has no whole one."""

    header: PageHeader
    index: PageIndex
    size: int
    end: int | None = None

    def note(self, entry: Entry) -> None:
        if entry.kind in (Kind.WHOLE, Kind.LAST):
            self.index.note(entry.sequence, entry.arrived, entry.offset, entry.kind)
            self.end = self.index.end = entry.end

    @property
    def sequence(self) -> int:
        return max(self.index.last_sequence, self.header.first_sequence - 1)

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
        while entries := reader.read():
            for entry in entries:
                found.note(entry)
        return size, found


def _reopened(pages: Pages, found: _Content, cut: int) -> End:
    """The page opened for writing behind its last whole record."""
    end = RECORDS_AT if found.end is None else found.end
    file = pages.disk.open(pages.path(found.header.number), write=True)
    if found.size > end:
        file.truncate(end)
    page = OpenPage(file, found.header, found.index, end)
    return End(page, found.header.number, found.sequence, found.arrived, cut + max(0, found.size - end))


def verified(pages: Pages, numbers: tuple[int, ...], limit: Callable[[int], int | None]) -> list[Finding]:
    """What is damaged, from the first page on; one finding of severity OK if nothing is.

    `limit` gives the offset up to which a page may be read while it is written.
    """
    examination = _Examination(pages)
    for before, number in zip((None, *numbers), numbers, strict=False):
        if before is not None and number != before + 1:
            examination.problem(f"page {number}", f"pages {before + 1} to {number - 1} are missing")
        examination.page(number, limit(number), is_last=number == numbers[-1])
    summary = f"{counted(examination.records, 'record')} in {counted(len(numbers), 'page')} can be read"
    return [*examination.findings, *([] if examination.findings else [ok("journal", summary)])]


class _Examination:
    def __init__(self, pages: Pages) -> None:
        self.findings: list[Finding] = []
        self.records = 0
        self._pages = pages
        self._last: Entry | None = None

    def problem(self, subject: str, fact: str, severity: Severity = Severity.PROBLEM) -> None:
        reason = "the disk lost or changed what was written, or files were changed by hand"
        self.findings.append(Finding(subject, severity, fact, reason, _RESTORE, see=_SEE))

    def page(self, number: int, limit: int | None, *, is_last: bool) -> None:
        subject = f"page {number}"
        reader = self._pages.reader(number)
        if reader is None:
            self._unreadable(number, is_last=is_last)
            return
        with contextlib.closing(reader):
            while entries := reader.read(limit):
                for entry in entries:
                    self._entry(subject, entry)
            for damage in reader.damage:
                self.problem(subject, str(damage))
            rest = reader.rest(limit)
            if rest is not None and is_last:
                self._torn(subject, rest.size)
            elif rest is not None:
                self.problem(subject, str(rest))
        self._index(number)

    def _entry(self, subject: str, entry: Entry) -> None:
        last, self._last = self._last, entry
        self.records += entry.kind in (Kind.WHOLE, Kind.LAST)
        if last is not None and (entry.sequence < last.sequence or entry.arrived < last.arrived):
            self.problem(subject, f"record {entry.sequence} follows record {last.sequence}: they are out of order")

    def _unreadable(self, number: int, *, is_last: bool) -> None:
        with contextlib.suppress(FileNotFoundError), contextlib.closing(self._pages.open(number)) as file:
            if is_last and file.size() <= RECORDS_AT:
                self._torn(f"page {number}", file.size())
            else:
                self.problem(f"page {number}", f"its header cannot be read, {file.size()} bytes are lost")

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
