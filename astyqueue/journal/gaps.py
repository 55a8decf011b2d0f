"""Whether records follow one another without a gap: joins parts of large ones, and compares pages with each other.

What is missing goes to a function as `Damage`. A page says which record is the last before it, so that a missing page
counts as a loss only if it had records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from astyqueue.journal.format import TOTAL, Entry, Kind, PageHeader
from astyqueue.journal.records import Damage

_ENDS: Final = (Kind.WHOLE, Kind.LAST)


class PartJoiner:
    """Joins the parts of records that are in several pages, one behind the other."""

    def __init__(self, note: Callable[[Damage], None]) -> None:
        """Wait for no part; records with gaps go to `note`."""
        self._note: Final = note
        self._parts: list[Entry] = []
        self._page = 0

    def __bool__(self) -> bool:
        """Whether parts wait for others."""
        return bool(self._parts)

    def joined(self, entry: Entry, page: int, *, first_page: int) -> Entry | None:
        """The whole record that this one completes; on the first page that is read, parts may lack their beginning."""
        previous, self._page = self._page, page
        if entry.kind in (Kind.WHOLE, Kind.FIRST):
            if self._parts and self._parts[0].sequence != entry.sequence:  # else its writer gave up and began again
                self._drop(page)
            self._parts = [entry] if entry.kind == Kind.FIRST else []
            return entry if entry.kind == Kind.WHOLE else None
        if self._parts and self._parts[0].sequence == entry.sequence and page == previous + 1:
            self._parts.append(entry)
            return self._whole(page) if entry.kind == Kind.LAST else None
        if page != first_page:
            self._note(
                Damage(
                    page, entry.offset, entry.end - entry.offset, after=0, before=entry.sequence, reason="a part alone"
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
        first = self._parts[0]
        self._note(
            Damage(
                page, first.offset, 0, after=first.sequence - 1, before=0, reason=f"record {first.sequence} has gaps"
            )
        )
        self._parts = []


class PageGaps:
    """Finds the records that are missing between pages, while a reader enters and reads one after another."""

    def __init__(self, note: Callable[[Damage], None]) -> None:
        """Any page may be the first, unless `expect` is called; what is missing goes to `note`."""
        self._note: Final = note
        self._last: int | None = None
        self._page = 0
        self._suspect: tuple[int, str] | None = None
        self._is_told = False

    def expect(self, sequence: int) -> None:
        """The first record to be read is the one behind this."""
        self._last = sequence

    def read(self, entries: Sequence[Entry]) -> None:
        """Take note of records that were read."""
        self._is_told = False
        last = next((entry.sequence for entry in reversed(entries) if entry.kind in _ENDS), 0)
        self._last = max(self._last or 0, last)

    def told(self) -> None:
        """What is missing before the next page was reported already."""
        self._is_told = True

    def suspect(self, page: int, reason: str) -> None:
        """A page cannot be read: if the next one shows that records are missing, this is why."""
        self._suspect = self._suspect or (page, reason)

    def enter(self, header: PageHeader) -> None:
        """Compare a page with what was read before it."""
        last, before = self._last, header.last_before
        if last is not None and before > last and not self._is_told:
            usual = (self._page or header.number, "records behind it were removed or lost before they were read")
            page, reason = self._suspect or usual
            self._note(Damage(page, 0, 0, after=last, before=header.first_sequence, reason=reason))
        self._last = before if last is None else max(last, before)
        self._page, self._suspect, self._is_told = header.number, None, False
