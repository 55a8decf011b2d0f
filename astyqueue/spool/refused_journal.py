"""The journal `refused` beside that of a process: messages that the store refuses for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from astyqueue.clock import Clock
from astyqueue.journal import BYTES, Journal
from astyqueue.journal.pages import Pages
from astyqueue.journal.recovery import stored_page_size
from astyqueue.journal.settings import least_cap
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.record import RefusedMessage

REFUSED: Final = "refused"


class RefusedJournal:
    """It is opened by the first message. Not thread-safe."""

    def __init__(self, folder: Path, options: SpoolOptions, clock: Clock) -> None:
        """Nothing is opened or created yet."""
        self._folder: Final = folder
        self._options: Final = options
        self._clock: Final = clock
        self._journal: Journal[bytes] | None = None
        self._page_size = 0
        self._cap: int | None = None

    def append(self, reason: str, message: bytes) -> None:
        """Append a message, durably; JournalFull if those before it, or the disk, leave no room.

        JournalInUse while another process has the journal open for writing.
        """
        record = RefusedMessage(reason, self._clock.now(), message).pack()
        self._opened_for(len(record)).append(record)

    def _opened_for(self, size: int) -> Journal[bytes]:
        """The journal, with a cap under which a record of this size fits if it is alone."""
        found = self._journal
        if found is not None and (self._cap is None or self._cap >= least_cap(size, self._page_size)):
            return found
        self.close()
        options = self._options.of_refused
        self._page_size = self._stored(REFUSED) or self._stored("journal") or options["page_size"]
        cap = self._options.cap
        self._cap = None if cap is None else max(cap, least_cap(size, self._page_size))
        own = options | {"page_size": self._page_size, "cap": self._cap}
        self._journal = Journal.open(self._folder, codec=BYTES, prefix=REFUSED, clock=self._clock, **own)
        return self._journal

    def _stored(self, prefix: str) -> int | None:
        """The page size of a journal in the folder; that of the process does not depend on who forwards it."""
        pages = Pages(self._options.disk, self._folder, prefix)
        pages.refresh()
        return stored_page_size(pages)

    def abandon(self) -> None:
        """Close its files in a forked child."""
        if self._journal is not None:
            self._journal.abandon()

    def close(self) -> None:
        """Close it; the next message opens it again."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()
