"""Whether records follow one another without a gap: joins parts of large ones, and compares pages with each other.

What is missing goes to a function as `Damage`. A page says which record is the last before it, so that a missing page
counts as a loss only if it had records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from astyqueue.journal.format import TOTAL, Entry, Kind, PageHeader
from astyqueue.journal.records import Damage

_ENDS: Final = (Kind.WHOLE, Kind.LAST)


class _Incomplete(NamedTuple):
    """A record with a part missing: the first page that lacks one, and whether that is a loss that is not noted yet."""

    sequence: int
    page: int
    is_lost: bool


class PartJoiner:
    """Joins the parts of records that are in several pages, one behind the other."""

    def __init__(self, note: Callable[[Damage], None]) -> None:
        """Wait for no part; records with gaps go to `note`."""
        self._note: Final = note
        self._parts: list[Entry] = []
        self._page = 0
        self._incomplete = _Incomplete(0, 0, is_lost=False)

    def __bool__(self) -> bool:
        """Whether parts wait for others."""
        return bool(self._parts)

    def joined(self, entry: Entry, page: int, *, may_begin_before: bool) -> Entry | None:
        """The whole record that this one completes; `may_begin_before`: no loss if its beginning was not read."""
        previous, self._page = self._page, page
        missing = min(previous + 1, page)
        if entry.kind in (Kind.WHOLE, Kind.FIRST):
            if self._parts and self._parts[0].sequence != entry.sequence:  # else its writer gave up and began again
                self._drop(missing)
            self._parts = [entry] if entry.kind == Kind.FIRST else []
            return entry if entry.kind == Kind.WHOLE else None
        if self._parts and self._parts[0].sequence == entry.sequence:
            if page == previous + 1:
                self._parts.append(entry)
                return self._whole(page) if entry.kind == Kind.LAST else None
            self._drop(missing)
        else:
            self._pass_by(entry, _Incomplete(entry.sequence, page - 1, is_lost=not may_begin_before))
        return None

    def _pass_by(self, entry: Entry, found: _Incomplete) -> None:
        """Pass a part of a record of which an earlier one is missing; the loss is noted at the last."""
        if self._incomplete.sequence != entry.sequence:
            self._incomplete = found
        if entry.kind == Kind.LAST and self._incomplete.is_lost:
            self._note_gaps(entry.sequence, self._incomplete.page)

    def _whole(self, page: int) -> Entry | None:
        content = b"".join(part.payload for part in self._parts)
        if TOTAL.unpack_from(content)[0] != len(content) - TOTAL.size:
            self._drop(page)
            return None
        last, self._parts = self._parts[-1], []
        return last._replace(payload=content[TOTAL.size :])

    def _drop(self, page: int) -> None:
        """Give up the record that was begun; in this page its next part is missing."""
        sequence, self._parts = self._parts[0].sequence, []
        self._incomplete = _Incomplete(sequence, page, is_lost=False)
        self._note_gaps(sequence, page)

    def _note_gaps(self, sequence: int, page: int) -> None:
        self._note(Damage(page, 0, 0, after=sequence - 1, before=0, reason=f"record {sequence} has gaps"))


class PageGaps:
    """Finds the records that are missing between pages, while a reader enters and reads one after another."""

    def __init__(self, note: Callable[[Damage], None]) -> None:
        """Any page may be the first, unless `expect` is called; what is missing goes to `note`."""
        self._note: Final = note
        self._last: int | None = None
        self._page = 0
        self._suspect: tuple[int, str] | None = None
        self._is_reported = False

    def expect(self, sequence: int) -> None:
        """The first record to be read is the one behind this."""
        self._last = sequence

    def read(self, entries: Sequence[Entry]) -> None:
        """Take note of records that were read."""
        self._is_reported = False
        last = next((entry.sequence for entry in reversed(entries) if entry.kind in _ENDS), 0)
        self._last = max(self._last or 0, last)

    def mark_reported(self) -> None:
        """Do not note what is missing before the next page: it was reported already."""
        self._is_reported = True

    def suspect(self, page: int, reason: str) -> None:
        """A page cannot be read: if the next one shows that records are missing, this is why."""
        self._suspect = self._suspect or (page, reason)

    def enter(self, header: PageHeader) -> None:
        """Compare a page with what was read before it."""
        last, before = self._last, header.last_before
        if last is not None and before > last and not self._is_reported:
            usual = (self._page or header.number, "records behind it were removed or lost before they were read")
            page, reason = self._suspect or usual
            self._note(Damage(page, 0, 0, after=last, before=header.first_sequence, reason=reason))
        self._last = before if last is None else max(last, before)
        self._page, self._suspect, self._is_reported = header.number, None, False
