"""Where the pages of a journal grow: in this process, which wakes its readers, or in another one, which is polled."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import JournalError
from astyqueue.journal.index import PageIndex
from astyqueue.journal.pages import Pages
from astyqueue.journal.wakeups import Listeners
from astyqueue.journal.writer import Writer
from astyqueue.units import SECOND

#: A reader in another process notices a record this late at most; a look is two system calls.
_POLL_US: Final = SECOND // 50


class WrittenHere:
    """A journal that this process writes: readers see what the writer has published, and are woken."""

    poll_us = None

    def __init__(self, pages: Pages, clock: Clock, listeners: Listeners, writer: Writer) -> None:
        """`writer` publishes."""
        self.pages = pages
        self.clock = clock
        self.listeners = listeners
        self.is_closed = False
        self._writer: Final = writer

    @property
    def index(self) -> PageIndex | None:
        """The index of the page that is written to."""
        return self._writer.index

    def limit(self, number: int) -> int | None:
        """The offset that the writer has published, for its page."""
        page, offset = self._writer.published
        return offset if number >= page else None

    def later_page(self, number: int) -> int | None:
        """The next page that the writer has published."""
        published, _ = self._writer.published
        return _after(number, self.pages.numbers, up_to=published)

    def numbers(self) -> tuple[int, ...]:
        """The pages up to the one that the writer has published."""
        published, _ = self._writer.published
        return tuple(number for number in self.pages.numbers if number <= published)

    def publish(self) -> bool:
        """Write the buffer; without room or after a failure, records stay invisible."""
        before = self._writer.published
        with contextlib.suppress(JournalError):
            if not self.is_closed:
                self._writer.flush()
        return self._writer.published != before


class WrittenElsewhere:
    """A journal that another process writes, or none: the folder shows what is there."""

    poll_us = _POLL_US
    index = None

    def __init__(self, pages: Pages, clock: Clock, listeners: Listeners) -> None:
        """Readers are polled, and woken when they are closed."""
        self.pages = pages
        self.clock = clock
        self.listeners = listeners
        self.is_closed = False

    def limit(self, _number: int) -> int | None:
        """None: the system shows the bytes of a file only once they are there, and checksums show torn ones."""
        return None

    def later_page(self, number: int) -> int | None:
        """The next page in the folder; the last one counts once its header is written."""
        found = _after(number, self.pages.numbers) or _after(number, self.pages.refresh())
        if found is not None and found == self.pages.numbers[-1] and self.pages.header(found) is None:
            return None
        return found

    def numbers(self) -> tuple[int, ...]:
        """The pages that are in the folder now."""
        return self.pages.refresh()

    def publish(self) -> bool:
        """False: another process writes them."""
        return False


def _after(number: int, numbers: tuple[int, ...], *, up_to: int | None = None) -> int | None:
    """The smallest of these numbers that is greater."""
    position = bisect_right(numbers, number)
    found = numbers[position] if position < len(numbers) else None
    return None if found is None or (up_to is not None and found > up_to) else found
