"""Finding the end of a journal when it is opened for writing, and cutting what a crash left half written there.

Only the end is read: the last page, or none of it if the journal was closed in order. What is damaged before the end is
passed and reported by those who read it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from astyqueue.journal.disk import DiskFile
from astyqueue.journal.format import RECORDS_AT, Entry, Kind, PageHeader
from astyqueue.journal.index import PageIndex
from astyqueue.journal.pages import PageReader, Pages
from astyqueue.printable import facts_line

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
