"""Whether the writer of a journal may go on, and whether a caller got the error that keeps it from that."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from astyqueue.errors import Closed
from astyqueue.journal.writing.page_writer import NoRoom
from astyqueue.journal_errors import JournalFailed, JournalFull
from astyqueue.structured_log import log_event, log_safely

T = TypeVar("T")

_log: Final = logging.getLogger("astyqueue.journal")


class WriterState:
    """Whether a writer may go on: this process opened it, it was not closed, and its disk did not fail."""

    def __init__(self, place: str) -> None:
        """It may, in this process; `place` is the journal, for errors."""
        self.failed: JournalFailed | None = None
        self.closed = False
        self._was_raised = False
        self._place: Final = place
        self._process: Final = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this process opened it."""
        return self._process == os.getpid()

    def check(self) -> None:
        """Raise Closed or JournalFailed unless it may go on."""
        if self.closed:
            raise self.was_closed()
        if self.failed is not None:
            self._was_raised = True
            raise JournalFailed(self.failed.place, self.failed.reason)
        if not self.is_here:
            message = f"journal {self._place} was opened before a fork: open it in the child, once the parent closed it"
            raise Closed(message)

    def was_closed(self) -> Closed:
        """The error of a call after `close`."""
        return Closed(f"journal {self._place} was closed: open it again")

    def fail(self, error: OSError | JournalFailed) -> JournalFailed:
        """Take nothing more: after a failed sync the system may have forgotten what it did not write.

        The first failure is logged: perhaps nothing is appended any more that it would be raised to.
        """
        is_first = self.failed is None
        self.failed = failed = error if isinstance(error, JournalFailed) else JournalFailed(self._place, str(error))
        self._was_raised = True
        if is_first:
            self._log_failed(failed.reason)
        return failed

    @log_safely
    def _log_failed(self, reason: str) -> None:
        log_event(_log, logging.ERROR, "journal_failed", journal=self._place, reason=reason)

    def carry_out(self, write: Callable[[], T]) -> T:
        """Write; JournalFull without room, JournalFailed after any other error of the disk."""
        try:
            return write()
        except NoRoom as full:
            raise JournalFull(self._place, str(full)) from full
        except (OSError, JournalFailed) as error:
            raise self.fail(error) from error

    @contextlib.contextmanager
    def unreported(self) -> Iterator[None]:
        """A failure that is raised in the block reaches no caller: another call, or `check_reported`, raises it."""
        was_raised = self._was_raised
        try:
            yield
        except JournalFailed:
            self._was_raised = was_raised
            raise

    def check_reported(self) -> None:
        """Raise a failure that reached no caller."""
        if self.failed is not None and self.is_here and not self._was_raised:
            self.check()
