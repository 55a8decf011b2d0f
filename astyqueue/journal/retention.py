"""Which pages may go: those that are old enough and that every cursor has passed; at the cap, the oldest.

Pages go from the oldest on and as a whole. The page that is written to always stays.
"""

from __future__ import annotations

from typing import Final

from astyqueue.clock import Clock
from astyqueue.journal.cursor import stored_cursors
from astyqueue.journal.pages import Pages
from astyqueue.journal.settings import Settings
from astyqueue.units import NEVER


class Retention:
    """Removes pages of one journal. Its caller has the lock of the writer."""

    def __init__(self, pages: Pages, settings: Settings, clock: Clock) -> None:
        """Remove pages as these settings say, with ages by this clock."""
        self.dropped_records = 0
        self._pages: Final = pages
        self._settings: Final = settings
        self._clock: Final = clock

    def is_beyond_cap(self, more: int, page_size: int) -> bool:
        """Whether `more` further pages exceed the cap; each page counts as a full one."""
        cap = self._settings.cap
        return cap is not None and (len(self._pages.numbers) + more) * page_size > cap

    def reclaim(self, active: int, *, ignore_cursors: bool = False) -> int:
        """Remove the pages that may go, and return how many.

        With `retain`, pages whose records are all older; if there are cursors, only pages that all of them have passed;
        without both, none.
        """
        passed = None if ignore_cursors else self._slowest()
        retain = self._settings.retain_us
        if retain is None and passed is None:
            return 0
        oldest = NEVER if retain is None else self._clock.now() - retain
        removed = 0
        for number in self._pages.numbers:
            if number >= active or not self._may_go(number, oldest, NEVER if passed is None else passed):
                break
            if not self._pages.remove_unless_read(number):
                break
            removed += 1
        return removed

    def drop_oldest(self, active: int) -> bool:
        """Remove the oldest page, though it may not have been read; False if only the active one is left.

        A reader inside it reads on to its end: the bytes stay until that reader leaves the page.
        """
        first, *others = self._pages.numbers or (active,)
        if first >= active:
            return False
        header = self._pages.header(first)
        following = self._pages.header(others[0]) if others else None
        if header is not None and following is not None:
            self.dropped_records += following.first_sequence - header.first_sequence
        self._pages.remove(first)
        return True

    def _slowest(self) -> int | None:
        """The sequence that every cursor has passed; None without cursors."""
        cursors = stored_cursors(self._pages.disk, self._pages.directory, self._pages.prefix)
        return min((position.sequence if position else 0 for _, position in cursors), default=None)

    def _may_go(self, number: int, oldest: int, passed: int) -> bool:
        index = self._pages.index(number)
        if index is not None:
            return index.last_arrived < oldest and index.last_sequence <= passed
        later = (self._pages.header(other) for other in self._pages.numbers if other > number)
        following = next((header for header in later if header is not None), None)
        return following is not None and following.first_arrival < oldest and following.first_sequence <= passed
