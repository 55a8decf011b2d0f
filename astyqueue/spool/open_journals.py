"""The journals of a spool that one process has open: its own, and those that dead processes left."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from typing import Final

from astyqueue.clock import Clock
from astyqueue.journal_errors import JournalError, JournalFailed, JournalInUse
from astyqueue.spool.folder import SpoolFolder, Traces
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.outage import forget_outage
from astyqueue.spool.process_journal import ProcessJournal
from astyqueue.structured_log import log_event

_log: Final = logging.getLogger("astyqueue.spool")


class OpenJournals:
    """The journals of one folder that this process has open. After the first, the forwarder opens and closes them.

    `files` is held while a thread opens, locks or closes files: so a fork finds each of them in `all`, and the child
    can close it. A file that it does not close stays locked for as long as the child lives.
    """

    def __init__(self, folder: SpoolFolder, options: SpoolOptions, clock: Clock, files: threading.Lock) -> None:
        """Claim a journal that no process has open, with what is in it. The caller has the lock `files`."""
        self.folder: Final = folder
        self.files: Final = files
        self._options: Final = options
        self._clock: Final = clock
        self.own = folder.claim(options, clock)
        self._adopted: list[ProcessJournal] = []
        self._passed: dict[int, Traces] = {}
        self._failed: set[int] = set()

    @property
    def all(self) -> list[ProcessJournal]:
        """The own journal, and those that were adopted."""
        return [self.own, *self._adopted]

    def have_more(self) -> bool:
        """Whether there is something to forward, or an error to note."""
        with self.files:
            try:
                return any(journal.failure or journal.has_more() for journal in self.all)
            except Exception:  # noqa: BLE001 - the next pass meets it where it is logged
                return True

    def adopt(self) -> None:
        """Open the journals that dead processes left; one that was left empty is passed until it is used.

        One that cannot be opened, or looked at, is logged, and tried again by the next call. Raises the error of one
        whose disk failed while this process had it.
        """
        here = {journal.number for journal in self.all}
        tried = [self._try_to_adopt(number) for number in self.folder.numbers() if number not in here]
        for error in filter(None, tried):
            raise error

    def _try_to_adopt(self, number: int) -> Exception | None:
        """Open a journal; returns the error if its disk failed while this process had it, and fails again."""
        try:
            self._adopt_left(number)
        except JournalInUse:
            pass
        except (JournalError, OSError) as error:
            self.folder.note_unreadable(number, error)
            return error if number in self._failed else None
        self._failed.discard(number)
        return None

    def _adopt_left(self, number: int) -> None:
        if self._passed.get(number) != self.folder.traces(number) and self.folder.was_written(number):
            with self.files:
                self._adopted.append(self.folder.open(number, replace(self._options, cap=None), self._clock))

    def leave_empty(self) -> None:
        """Close the adopted journals of which nothing is left, for the next process."""
        with self.files:
            for journal in [one for one in self._adopted if not one.has_more()]:
                self._passed[journal.number] = self.folder.traces(journal.number)
                self._adopted.remove(journal)
                forget_outage(journal.folder)
                journal.close()

    def reopen(self, journal: ProcessJournal, failure: JournalFailed) -> None:
        """Close a journal whose disk failed, and open it again; an adopted one is adopted again later.

        Raises what the disk does then: the own journal takes no messages until this succeeds.
        """
        with self.files:
            journal.discard(failure)
            if journal is not self.own:
                self._adopted.remove(journal)
                self._failed.add(journal.number)
                return
            try:
                self.own = self.folder.open(journal.number, self._options, self._clock)
            except JournalInUse:  # a process took it meanwhile, and forwards what is in it
                self.own = self.folder.claim(self._options, self._clock)
        log_event(
            _log,
            logging.WARNING,
            "spool_journal_reopened",
            queue=self.folder.queue,
            journal=self.own.folder,
            error=failure.reason,
        )

    def abandon(self) -> None:
        """Close all files without a write and without a lock: then their locks end with another process."""
        for journal in self.all:
            journal.abandon()

    def close(self) -> None:
        """Let other processes have them."""
        for journal in self.all:
            with self.files, contextlib.suppress(JournalError, OSError):
                journal.close()
