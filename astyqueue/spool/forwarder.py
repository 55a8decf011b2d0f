"""The thread that forwards a spool to the store: in order, in batches, for as long as the store is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import AstyqueueError, BadSetting, Closed, NotFound, StoreError
from astyqueue.journal.records import Damage
from astyqueue.journal_errors import JournalError, JournalFailed
from astyqueue.observe.events import SpoolForwarded, SpoolRefused
from astyqueue.observe.observers import Observers
from astyqueue.spool.open_journals import OpenJournals
from astyqueue.spool.outage import Outage
from astyqueue.spool.process_journal import ProcessJournal
from astyqueue.spool.record import PendingMessage, SpooledMessage
from astyqueue.spool.room import Room
from astyqueue.structured_log import log_event, log_safely
from astyqueue.text import reason_of
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: Sends messages to the store, those of a row in order, and returns the errors of rows that failed; the messages of the
#: other rows are there then. What it raises concerns no message: all wait. Only NotFound says that the queue takes none
#: of them any more. The same messages may come again.
Deliver = Callable[[Sequence[SpooledMessage]], Mapping[str, Exception]]

#: How often a process looks for what dead processes left.
_ADOPT_EVERY_US: Final = 5 * SECOND
#: How often it looks, while rows are held, for messages of other rows.
_LOOK_EVERY_US: Final = SECOND
#: After this number of errors of an unexpected type, a message that causes them alone is set aside.
_TRIES: Final = 5
#: Errors of a row that may pass. BadSetting is one of opening the store again (a password file is missing, say).
_MAY_PASS: Final = (StoreError, JournalError, Closed, OSError, BadSetting)
_log: Final = logging.getLogger("astyqueue.spool")


class _NoneSentError(Exception):
    """`deliver` raised this error, which concerns no message."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Forwarder:
    """Forwards the journal of this process, and those that dead processes of the same folder left.

    A row that cannot be written now is held: its messages wait, and those of other rows and journals go on.
    """

    def __init__(
        self, journals: OpenJournals, *, deliver: Deliver, clock: Clock, observers: Observers, room: Room
    ) -> None:
        """Forward with `deliver`; nothing happens before `start`. Sends that wait in `room` hear of pages that went."""
        self.outage: Final = Outage(journals.folder.queue, clock)
        self.last_refusal = ""
        self.unreadable = 0
        self.journals: Final = journals
        self._queue: Final = journals.folder.queue
        self._files: Final = journals.files
        self._clock: Final = clock
        self._deliver: Final = deliver
        self._observers: Final = observers
        self._room: Final = room
        self._held: set[str] = set()
        self._errors: list[Exception] = []
        self._has_moved = False
        self._tries: dict[PendingMessage, int] = {}
        self._adopt_at: MonotonicUs = BEGINNING
        self._retry_at: MonotonicUs = BEGINNING
        self._wakeup: Final = Wakeup(clock)
        self._is_resting = False
        self._is_closing = False
        self._has_ended = False
        self._passes = 0
        self._failures = 0
        self._wanted_passes = 0
        self._drains = 0
        self._changed: Final = Wakeup(clock)
        self._thread: Final = threading.Thread(target=self._run, name=f"astyqueue-spool:{self._queue}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def appended(self) -> None:
        """Note that there is a new record, or that an append failed. Cheap unless the thread rests."""
        if self._is_resting:
            self._wakeup.set()

    def drain(self, timeout_us: int, *, patient: bool) -> bool:
        """Wait until nothing is left that this process may forward; False if that took longer, or the thread ended.

        Unless it is `patient`, the first failure ends it: what waits is safe on the disk.
        """
        until = self._clock.monotonic() + timeout_us
        failures, wanted = self._failures, self._passes + 2  # a pass that runs now began before the last append
        self._wanted_passes = wanted
        self._drains += 1
        self._adopt_at = self._retry_at = BEGINNING
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
            self.journals.close()
            self._has_ended = True
            self._changed.set()

    def _pass(self) -> None:
        """Forward a batch of each journal; rest if there was none, or if all that was tried failed."""
        drains = self._drains
        self._errors, self._has_moved = [], False
        if self._clock.monotonic() >= self._retry_at:
            self._held.clear()
        if self._clock.monotonic() >= self._adopt_at:
            self._adopt_at = self._clock.monotonic() + _ADOPT_EVERY_US
            self._try(self.journals.adopt)
        for journal in self.journals.all:
            self._try(partial(self._forward_or_reopen, journal))
        self._try(self.journals.leave_empty)
        if self._is_closing:
            return
        if self._errors:
            self._note_failure(drains)
        elif not self._held:
            self.outage.ended(self.journals.own.folder)
            self._tries.clear()
        if not self._has_moved:
            self._rest()

    def _try(self, step: Callable[[], None]) -> None:
        """Do this, and note an error, because the other steps of a pass go on."""
        try:
            step()
        except (JournalError, OSError) as error:
            self._errors.append(error)
        except Exception as error:  # noqa: BLE001 - the thread must outlive a defect
            _log_unexpected(self._queue, error)
            self._errors.append(error)

    def _note_failure(self, drains: int) -> None:
        pause = self.outage.failed(self._errors[0], self.journals.own.folder)
        self._retry_at = self._clock.monotonic() + pause
        # If `drain` was called during this pass, the next try is at once: also if its own change came just before ours.
        if self._drains != drains:
            self._retry_at = BEGINNING
        self._failures += 1
        self._changed.set()

    def _rest(self) -> None:
        """Wait until there is something to do; after a failure until the next try, or the next look at other rows."""
        if self._errors or self._held:
            look_at = self._clock.monotonic() + _LOOK_EVERY_US if self._held else self._retry_at
            # Sends do not end this: with the store away, each would wake the thread in vain. `drain` ends it.
            while not self._is_closing and self._clock.monotonic() < (until := min(look_at, self._retry_at)):
                self._wakeup.wait(until)
            return
        self._passes += 1
        self._changed.set()
        self._is_resting = True
        if self._passes >= self._wanted_passes and not self.journals.have_more():
            self._wakeup.wait(self._adopt_at)
        self._is_resting = False

    def _forward_or_reopen(self, journal: ProcessJournal) -> None:
        """Forward the next batch of a journal. If its disk fails, open it again: only then it takes messages."""
        try:
            if journal.failure is None:
                # Those of other rows go in this pass, because `drain` has each pass begin with the held rows again.
                while self._forward(journal) and not self._is_closing:
                    pass
                return
            failure = journal.failure
        except JournalFailed as error:
            failure = error
        except OSError as error:
            failure = JournalFailed(str(journal.folder), str(error))
        self._errors.append(failure)
        self.journals.reopen(journal, failure)
        self._adopt_at = BEGINNING  # the next try opens one that a dead process left, too

    def _forward(self, journal: ProcessJournal) -> bool:
        """Forward the next batch, and report what could not be read; returns whether all of it waits for its rows."""
        with self._files:
            batch, before = journal.pending(self._held), journal.unreadable
            damage = journal.damage()
            self.unreadable += journal.unreadable - before
        for one in damage:
            _log_damage(self._queue, journal, one)
        try:
            errors = self._sent(batch)
            self._confirm(journal, [one for one in batch if one.row not in errors])
            for row, error in errors.items():
                self._resolve(journal, [one for one in batch if one.row == row], error)
        except _NoneSentError as none_sent:
            self._hold_all({one.row for one in batch if one.message is not None}, none_sent.error)
            return False
        return bool(batch) and all(one.row in self._held for one in batch)

    def _sent(self, part: Sequence[PendingMessage]) -> dict[str, Exception]:
        """Send messages to the store; returns the errors of the rows that failed. _NoneSentError if all wait."""
        errors: dict[str, Exception] = {one.row: ValueError(one.problem) for one in part if one.message is None}
        messages = [one.message for one in part if one.message is not None]
        if messages:
            try:
                errors |= self._deliver(messages)
            except NotFound as error:
                errors |= dict.fromkeys((one.id.row for one in messages), error)
            except Exception as error:
                raise _NoneSentError(error) from error
        return errors

    def _resolve(self, journal: ProcessJournal, part: Sequence[PendingMessage], error: Exception | None) -> None:
        """Confirm messages of one row that were sent; after an error hold the row, or find the one that is refused."""
        if error is None:
            self._confirm(journal, part)
        elif self._may_pass(part, error):
            self._hold(part[0].row, error)
        elif len(part) == 1:
            self._set_aside(journal, part[0], error)
        else:
            middle = len(part) // 2
            for half in (part[:middle], part[middle:]):
                if half[0].row not in self._held and not self._is_closing:
                    self._resolve(journal, half, self._sent(half).get(half[0].row))

    def _may_pass(self, part: Sequence[PendingMessage], error: Exception) -> bool:
        """Whether an error may pass with time; one of an unexpected type may, a few times."""
        if isinstance(error, _MAY_PASS):
            return True
        if isinstance(error, AstyqueueError | ValueError) or len(part) > 1:
            return False
        _log_unexpected(self._queue, error)
        self._tries[part[0]] = self._tries.get(part[0], 0) + 1
        return self._tries[part[0]] < _TRIES

    def _hold(self, row: str, error: Exception) -> None:
        self._held.add(row)
        self._errors.append(error)

    def _hold_all(self, rows: set[str], error: Exception) -> None:
        """Hold these rows. The traceback of an error of an unexpected type is logged once while that lasts."""
        if not isinstance(error, AstyqueueError | OSError) and reason_of(error) != self.outage.last_error:
            _log_unexpected(self._queue, error)
        for row in rows - self._held:
            self._hold(row, error)

    def _confirm(self, journal: ProcessJournal, part: Sequence[PendingMessage]) -> None:
        if not part:
            return
        self._note_done(journal, part)
        if self._observers.on:
            sent = tuple(one.message.id for one in part if one.message)
            self._observers.notify(SpoolForwarded(self._queue, sent))

    def _note_done(self, journal: ProcessJournal, part: Sequence[PendingMessage]) -> None:
        with self._files:
            has_made_room = journal.confirm(part)
        self._has_moved = True
        if has_made_room:
            self._room.look_again()

    def _set_aside(self, journal: ProcessJournal, one: PendingMessage, error: Exception) -> None:
        reason = one.problem or reason_of(error)
        try:
            with self._files:
                journal.refuse(one, reason)
        except JournalFailed:
            raise
        except (AstyqueueError, OSError) as refusing:  # the journal of refused messages has no room, or is in use
            self._hold(one.row, refusing)
            return
        self._note_done(journal, [one])
        self.last_refusal = reason
        self.outage.passed_one()
        _log_refusal(self._queue, journal, one, reason)
        if self._observers.on:
            self._observers.notify(SpoolRefused(self._queue, one.message and one.message.id, reason))


@log_safely
def _log_unexpected(queue: str, error: Exception) -> None:
    effect = "the spool tries again"
    log_event(_log, logging.ERROR, "spool_unexpected_error", exc_info=error, queue=queue, effect=effect)


@log_safely
def _log_damage(queue: str, journal: ProcessJournal, damage: Damage) -> None:
    log_event(_log, logging.ERROR, "spool_messages_unreadable", queue=queue, journal=journal.folder, damage=damage)


@log_safely
def _log_refusal(queue: str, journal: ProcessJournal, one: PendingMessage, reason: str) -> None:
    log_event(
        _log,
        logging.ERROR,
        "spool_message_set_aside",
        queue=queue,
        journal=journal.folder,
        record=one.sequence,
        reason=reason,
    )
