"""Walks over the pages of a journal, which grow in this process or in another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from astyqueue.clock import Clock
from astyqueue.journal.format import Entry
from astyqueue.journal.gaps import PageGaps
from astyqueue.journal.pages import By, PageIndex, PageReader, Pages
from astyqueue.journal.records import Damage
from astyqueue.journal.writing import Listeners


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

    def may_be_growing(self) -> bool:
        """Whether bytes behind the last record may be one of which a part is not written yet."""
        ...

    def publish(self) -> bool:
        """Have records that wait in a buffer written; whether there were any."""
        ...


class PageWalk:
    """The page that a reader is in. It is kept from being reclaimed until it is left, or `close`."""

    def __init__(self, source: Source, by: By, note: Callable[[Damage], None]) -> None:
        """Begin with the page that is sought by this; what is passed because it cannot be read goes to `note`."""
        self.number = 0
        self.first_page = 0
        self._source: Final = source
        self._by: Final = by
        self._note: Final = note
        self._gaps: Final = PageGaps(note)
        self._page: PageReader | None = None

    def next_entries(self, start: int) -> list[Entry]:
        """The next records, in the order of the pages; none if there are none now. The first one is before `start`."""
        while self._page is not None or self._open_next_page(start):
            page = self._page
            if page is None:
                continue
            if entries := self._read(page):
                self._gaps.read(entries)
                return entries
            if self._is_tail(page):
                return []
        return []

    def _read(self, page: PageReader) -> list[Entry]:
        entries = page.read(self._source.limit(self.number))
        for damage in page.damage:
            self._note(damage)
        page.damage.clear()
        return entries

    def _is_tail(self, page: PageReader) -> bool:
        """Whether nothing can be read now; if a later page is there, this one is left."""
        if self._source.publish():
            return False
        if self._source.later_page(self.number) is None:
            return True
        # It was finished before the later page was begun; perhaps after the last look at it.
        if not (entries := page.read(self._source.limit(self.number))):
            if rest := page.rest():
                self._note(rest)
                self._gaps.mark_reported()
            self.close()
        else:
            page.at = entries[0].offset
        return False

    def _open_next_page(self, start: int) -> bool:
        """Open the page with the first record of `start`, or the one behind the last page; False if there is none."""
        if not self.number:
            self._source.publish()
            numbers = self._source.numbers()
            self._page = self._source.pages.seek(start, self._by, numbers, last=self._source.index)
            if self._page is None:
                return False
            if self._by is By.SEQUENCE and start > 1:
                self._gaps.expect(start - 1)
            self.number = self.first_page = self._page.header.number
            self._gaps.enter(self._page.header)
            return True
        later = self._source.later_page(self.number)
        if later is None:
            return False
        if later > self.number + 1:
            self._gaps.suspect(self.number + 1, f"pages up to {later - 1} were removed before they were read")
        self._page = self._source.pages.reader(later)
        if self._page is None:
            self._gaps.suspect(later, "its header cannot be read, or it was removed")
        else:
            self._gaps.enter(self._page.header)
        self.number = later
        return True

    def note_rest(self) -> None:
        """Note what is behind the last readable record, except records that have come since, or are being written."""
        page = self._page
        if page is None or (rest := page.rest(self._source.limit(self.number))) is None:
            return
        # Both before the last look: it shows all that a writer wrote which had closed the journal, or died, by then.
        may_be_growing = self._source.may_be_growing()
        if not self._read(page) and not (may_be_growing and page.is_incomplete(rest)):
            self._note(rest)

    def close(self) -> None:
        """Leave the page."""
        page, self._page = self._page, None
        if page is not None:
            page.close()
