"""Whether the writer of a journal may go on, and whether a caller got the error that keeps it from that."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from astyqueue.errors import Closed
from astyqueue.journal.writing.page_writer import NoRoom
from astyqueue.journal_errors import JournalFailed, JournalFull
from astyqueue.structured_log import log_event, log_safely

T = TypeVar("T")

_log: Final = logging.getLogger("astyqueue.journal")


class _Thread(threading.local):
    """What a thread does with a failure."""

    is_unreported = False


class WriterState:
    """Whether a writer may go on: this process opened it, it was not closed, and its disk did not fail."""

    def __init__(self, place: str) -> None:
        """It may, in this process; `place` is the journal, for errors."""
        self.failed: JournalFailed | None = None
        self.closed = False
        self._was_raised = False
        self._unlogged: str | None = None
        self._lock: Final = threading.Lock()
        self._thread: Final = _Thread()
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
            self._note_raised()
            raise JournalFailed(self.failed.place, self.failed.reason)
        if not self.is_here:
            message = f"journal {self._place} was opened before a fork: open it in the child, once the parent closed it"
            raise Closed(message)

    def was_closed(self) -> Closed:
        """The error of a call after `close`."""
        return Closed(f"journal {self._place} was closed: open it again")

    def fail(self, error: OSError | JournalFailed) -> JournalFailed:
        """Take nothing more: after a failed sync the system may have forgotten what it did not write.

        The first failure is logged, by `log_failure`: perhaps nothing is appended any more that it would be raised to.
        """
        failed = error if isinstance(error, JournalFailed) else JournalFailed(self._place, str(error))
        with self._lock:
            if self.failed is None:
                self.failed, self._unlogged = failed, failed.reason
        self._note_raised()
        return failed

    def _note_raised(self) -> None:
        if not self._thread.is_unreported:
            self._was_raised = True

    def log_failure(self) -> None:
        """Log a failure, once. The caller has no lock of the writer: a handler of the log may append to the journal."""
        if self._unlogged is None or self._thread.is_unreported:
            return
        with self._lock:
            reason, self._unlogged = self._unlogged, None
        if reason is not None:
            self._log_failed(reason)

    @contextlib.contextmanager
    def failure_logged_after(self) -> Iterator[None]:
        """A failure in the block is logged when it has ended: give it before the locks that the block takes."""
        try:
            yield
        finally:
            self.log_failure()

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
        """A failure that is raised in the block reaches no caller: another call, or `check_reported`, raises it.

        It is logged when the block has ended, as one that a handler of the log gets has reached a caller.
        """
        was_unreported = self._thread.is_unreported
        self._thread.is_unreported = True
        try:
            yield
        finally:
            self._thread.is_unreported = was_unreported
            self.log_failure()

    def check_reported(self) -> None:
        """Raise a failure that reached no caller."""
        if self.failed is not None and self.is_here and not self._was_raised:
            self.check()
