"""The thread that forwards a spool to the store: in order, in batches, for as long as the store is away."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import AstyqueueError, Closed, JournalError, JournalInUse, StoreError
from astyqueue.journal import Record
from astyqueue.printable import facts_line
from astyqueue.spool.folder import SpoolFolder
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.process_journal import ProcessJournal
from astyqueue.spool.record import SpooledMessage
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: Sends messages to the store, in order; on return all are there. The same messages may come again.
Deliver = Callable[[Sequence[SpooledMessage]], object]

#: Messages of one batch: five full commits of 200 for a row, one look at the queue, one write of the cursor.
LOT: Final = 1_000
#: The pauses while the store is away, the first and the longest.
_FIRST_PAUSE_US: Final = SECOND // 10
_LONGEST_PAUSE_US: Final = 5 * SECOND
#: How often a process looks for what dead processes left.
_ADOPT_EVERY_US: Final = 5 * SECOND
#: After this number of errors of an unexpected type, a message that causes them alone is set aside.
_TRIES: Final = 5
_log: Final = logging.getLogger("astyqueue.spool")


class Outage:
    """Whether forwarding fails, since when and why; logs the beginning and the end."""

    def __init__(self, queue: str, clock: Clock) -> None:
        """Nothing has failed yet."""
        self.last_error = ""
        self.since_us: int | None = None
        self._queue: Final = queue
        self._clock: Final = clock
        self._pause_us = _FIRST_PAUSE_US

    def failed(self, error: Exception) -> int:
        """Note an error; returns for how long to pause, in microseconds."""
        self.last_error = f"{type(error).__name__}: {error}"
        if self.since_us is None:
            self.since_us = self._clock.now()
            facts = {"queue": self._queue, "error": self.last_error, "effect": "messages wait in the spool"}
            _log.warning(facts_line("spool cannot forward", facts))
        pause, self._pause_us = self._pause_us, min(2 * self._pause_us, _LONGEST_PAUSE_US)
        return pause

    def succeeded(self) -> None:
        """Note that the store took messages."""
        if self.since_us is not None:
            away = (self._clock.now() - self.since_us) // SECOND
            _log.warning(facts_line("spool forwards again", {"queue": self._queue, "after_seconds": away}))
        self.since_us = None
        self._pause_us = _FIRST_PAUSE_US


class Forwarder:
    """Forwards the journal of this process, and those that dead processes of the same folder left."""

    def __init__(
        self,
        folder: SpoolFolder,
        options: SpoolOptions,
        own: ProcessJournal,
        *,
        deliver: Deliver,
        clock: Clock,
        files: threading.Lock,
    ) -> None:
        """Forward with `deliver`; nothing happens before `start`. It has the lock `files` while it uses journals."""
        self.outage: Final = Outage(folder.queue, clock)
        self.set_aside = 0
        self._folder: Final = folder
        self._options: Final = options
        self._clock: Final = clock
        self._deliver: Final = deliver
        self._own: Final = own
        self._files: Final = files
        self._adopted: list[ProcessJournal] = []
        self._passed: dict[int, int] = {}
        self._adopt_at: MonotonicUs = BEGINNING
        self._pause_until: MonotonicUs = BEGINNING
        self._tries: tuple[int, int] = (0, 0)
        self._wakeup: Final = Wakeup(clock)
        self._is_resting = False
        self._is_closing = False
        self._has_ended = False
        self._passes = 0
        self._failures = 0
        self._wanted_passes = 0
        self._changed: Final = Wakeup(clock)
        self._thread: Final = threading.Thread(target=self._run, name=f"astyqueue-spool:{folder.queue}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def journals(self) -> list[ProcessJournal]:
        """The journals that this process has open."""
        return [self._own, *self._adopted]

    def appended(self) -> None:
        """Note that there is a new record. Cheap unless the thread rests."""
        if self._is_resting:
            self._wakeup.set()

    def drain(self, timeout_us: int, *, patient: bool) -> bool:
        """Wait until nothing is left that this process may forward; False if that took longer, or the thread ended.

        Unless it is `patient`, the first failure ends it: what waits is safe on the disk.
        """
        until = self._clock.monotonic() + timeout_us
        failures, wanted = self._failures, self._passes + 2  # a pass that runs now began before the last append
        self._wanted_passes = wanted
        self._adopt_at = self._pause_until = BEGINNING
        self._wakeup.set()
        while self._passes < wanted and not self._has_ended:
            if self._clock.monotonic() >= until or (self._failures > failures and not patient):
                return False
            self._changed.wait(until)
        return self._passes >= wanted

    def close(self, patience_us: int) -> bool:
        """End the thread, and have it close the journals; False if it is still in a request to the store."""
        self._is_closing = True
        self._wakeup.set()
        self._thread.join(patience_us / SECOND)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._pass()
        finally:
            for journal in self.journals:
                with self._files, contextlib.suppress(JournalError):
                    journal.close()
            self._has_ended = True
            self._changed.set()

    def _pass(self) -> None:
        """Forward a batch of each journal; rest if there was none, or if the store is away."""
        wanted = self._wanted_passes
        try:
            self._adopt()
            moved = [self._forward(journal) for journal in self.journals]
            self._leave_empty()
        except Exception as error:  # noqa: BLE001 - the thread must outlive what a driver or a disk raises
            if self._is_closing:
                return
            if not isinstance(error, AstyqueueError | OSError):
                _log.exception("spool of queue %s: unexpected error; it tries again", self._folder.queue)
            pause = self.outage.failed(error)
            self._failures += 1
            self._changed.set()
            if self._wanted_passes == wanted:  # else `drain` was called during this try, and the next one is at once
                self._rest(self._clock.monotonic() + pause)
            return
        if not any(moved):
            self._passes += 1
            self._changed.set()
            self._rest_until_appended()

    def _rest_until_appended(self) -> None:
        self._is_resting = True
        with self._files:
            has_more = any(journal.has_more() for journal in self.journals)
        if self._passes >= self._wanted_passes and not has_more:
            self._wakeup.wait(self._adopt_at)
        self._is_resting = False

    def _rest(self, until: MonotonicUs) -> None:
        """Wait after a failure; `drain` and `close` end it."""
        self._pause_until = until
        while not self._is_closing and self._clock.monotonic() < self._pause_until:
            self._wakeup.wait(self._pause_until)

    def _forward(self, journal: ProcessJournal) -> bool:
        """Forward the next batch; False if there is none. Around a message that is refused, batches get smaller."""
        with self._files:
            left = journal.pending(LOT)
        size, found = len(left), bool(left)
        while left and not self._is_closing:
            part = left[:size]
            reason = self._refusal(part)
            if reason is not None and len(part) > 1:
                size = -(-len(part) // 2)
                continue
            if reason is not None:
                self._set_aside(journal, part[0], reason)
            with self._files:
                journal.confirm(part[-1])
            left = left[len(part) :]
            size = min(2 * size, LOT)
        return found

    def _refusal(self, part: Sequence[Record[bytes]]) -> str | None:
        """Deliver records; why they are refused for ever, or None. What may pass with time is raised."""
        try:
            self._deliver([SpooledMessage.parse(record.value) for record in part])
        except (StoreError, JournalError, Closed, OSError):
            raise
        except (AstyqueueError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:
            if len(part) > 1:
                return str(error)
            sequence, tries = self._tries
            self._tries = (part[0].sequence, tries + 1 if sequence == part[0].sequence else 1)
            if self._tries[1] < _TRIES:
                raise
            return f"{type(error).__name__}: {error}"
        self.outage.succeeded()
        return None

    def _set_aside(self, journal: ProcessJournal, record: Record[bytes], reason: str) -> None:
        with self._files:
            journal.refuse(record, reason)
        self.set_aside += 1
        self.outage.last_error = reason
        facts = {"queue": self._folder.queue, "journal": journal.folder, "record": record.sequence, "reason": reason}
        _log.error(facts_line("spool message set aside", facts))

    def _adopt(self) -> None:
        """Open the journals that dead processes left; one that was empty, or cannot be opened, is passed until used."""
        if self._clock.monotonic() < self._adopt_at:
            return
        self._adopt_at = self._clock.monotonic() + _ADOPT_EVERY_US
        here = {journal.number for journal in self.journals}
        for number in self._folder.numbers():
            used = self._folder.last_used(number)
            if number not in here and self._passed.get(number) != used and self._folder.was_written(number):
                self._open_left(number, used)

    def _open_left(self, number: int, used: int) -> None:
        try:
            with self._files:
                self._adopted.append(self._folder.open(number, replace(self._options, cap=None), self._clock))
        except JournalInUse:
            return
        except (JournalError, OSError) as error:
            self._passed[number] = used
            facts = {"queue": self._folder.queue, "journal": number, "error": error}
            _log.warning(facts_line("spool journal of another process unreadable", facts))

    def _leave_empty(self) -> None:
        """Close the adopted journals of which nothing is left, for the next process."""
        with self._files:
            for journal in [one for one in self._adopted if not one.has_more()]:
                self._adopted.remove(journal)
                self._passed[journal.number] = self._folder.last_used(journal.number)
                journal.close()
