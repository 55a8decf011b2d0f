"""The writer of a journal for many threads: group commits, waits for room, wake-ups, and an orderly end.

One lock guards the buffer and the page, and is held while the buffer is written. One thread at a time syncs, without
the lock: appends go on meanwhile, and the next sync is for all of them. The sync at the end of a page is under it.

A thread that a signal interrupts, as Ctrl-C does, must keep no other from going on. So locks are plain ones in `with`:
Python runs no handler of signals between taking such a lock and the block. `threading.Condition` is not made so.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import Closed
from astyqueue.journal.cursor import Retention
from astyqueue.journal.disk import DiskFile
from astyqueue.journal.pages import PageIndex, Pages
from astyqueue.journal.records import Position
from astyqueue.journal.recovery import End
from astyqueue.journal.settings import Durability, Settings, WhenFull, check_fits
from astyqueue.journal.writing.batch_timer import BatchTimer
from astyqueue.journal.writing.page_writer import NoRoom, PageWriter, flushed_renewal
from astyqueue.journal.writing.syncs import Unsynced
from astyqueue.journal.writing.writer_state import WriterState
from astyqueue.journal_errors import JournalError, JournalFailed, JournalFull
from astyqueue.structured_log import log_event, log_safely
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: An append that waits for room looks this often for what no signal announces: cursors of other processes, disk space.
_ROOM_POLL_US: Final = SECOND
_log: Final = logging.getLogger("astyqueue.journal")


class Listeners:
    """The readers and writers of this process that wait for new records, or for room. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """`clock` decides when a wait ends without a signal."""
        self._clock = clock
        self._lock = threading.Lock()
        self._wakeups: frozenset[Wakeup] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._wakeups)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Wakeup]:
        """A wake-up that every `notify` sets; look once more at what you wait for before the first wait."""
        wakeup = Wakeup(self._clock)
        with self._lock:
            self._wakeups |= {wakeup}
        try:
            yield wakeup
        finally:
            with self._lock:
                self._wakeups -= {wakeup}

    def notify(self) -> None:
        """Wake all of them."""
        for wakeup in self._wakeups:
            wakeup.set()


class Room:
    """Where appends wait for room. Logs when one has waited for a second, and when one has found room after that."""

    def __init__(self, place: str, clock: Clock, listeners: Listeners) -> None:
        """`place` is the journal, for the log; `listeners` hear of pages that went and of cursors."""
        self._place: Final = place
        self._clock: Final = clock
        self._listeners: Final = listeners
        self._lock: Final = threading.Lock()
        self._is_logged = self._is_unwritten = False

    def wait(self, reason: str, ends: Callable[[], object]) -> None:
        """Return when there may be room; at once if `ends` is true. `reason` is why there is none."""
        with self._listeners.listening() as wakeup:
            if ends():  # a cursor may have been committed, or a stop set, before this thread listened
                return
            until = self._clock.monotonic() + _ROOM_POLL_US
            wakeup.wait(until)
        if self._clock.monotonic() >= until and self._changed_to(is_logged=True):
            log_event(_log, logging.WARNING, "journal_full", journal=self._place, reason=reason, effect="appends wait")

    @log_safely
    def note_unwritten(self, reason: str) -> None:
        """Log, once until `note_written`, that what waits in memory cannot be written."""
        was_unwritten, self._is_unwritten = self._is_unwritten, True
        if not was_unwritten:
            log_event(_log, logging.WARNING, "journal_full", journal=self._place, reason=reason)

    def note_written(self) -> None:
        """What waited in memory was written."""
        self._is_unwritten = False

    def found(self) -> None:
        """An append that waited goes on."""
        if self._changed_to(is_logged=False):
            log_event(_log, logging.WARNING, "journal_has_room", journal=self._place)

    def _changed_to(self, *, is_logged: bool) -> bool:
        with self._lock:
            was_logged, self._is_logged = self._is_logged, is_logged
        return was_logged != is_logged


class SyncTurn:
    """The turn of one thread to sync, which has the `lock` until it ends; others wait for it.

    `is_over` says that it ended, also while those who waited take the lock in turn.
    """

    __slots__ = ("is_over", "lock")

    def __init__(self, *, is_over: bool = False) -> None:
        """No thread has the lock yet."""
        self.lock: Final = threading.Lock()
        self.is_over = is_over


class Writer:
    """The only writer of a journal. Thread-safe, but not to be used in a forked process."""

    def __init__(
        self, pages: Pages, settings: Settings, clock: Clock, end: End, *, listeners: Listeners, lock: DiskFile
    ) -> None:
        """Continue at the end of the journal; `listeners` hear of new records and of room.

        `lock` keeps other writers out. It is kept as long as this writer, also if the journal was forgotten: its thread
        may have something to write.
        """
        self._place: Final = str(pages.directory)
        self._settings: Final = settings
        self._clock: Final = clock
        self._listeners: Final = listeners
        self.retention: Final = Retention(pages, settings, clock)
        self._out: Final = PageWriter(pages, settings, self.retention, end, lock=lock)
        self._lock: Final = threading.Lock()
        self._turn = SyncTurn(is_over=True)  # that of the thread that syncs, or that did so last
        self._state: Final = WriterState(self._place)
        self._is_closing = False
        self._closing: Final = threading.Lock()
        self._room: Final = Room(self._place, clock, listeners)
        self._timer: Final = BatchTimer(
            clock, settings.batch_delay_us, is_open=self._has_unfinished, finish=self._finish_batch
        )
        _unclosed.add(self)

    @property
    def published(self) -> tuple[int, int | None]:
        """The page and the offset up to which readers of this process read; no offset is the end of that page."""
        return self._out.published

    @property
    def sequence(self) -> int:
        """The last record accepted."""
        return self._out.sequence

    @property
    def synced(self) -> int:
        """The last record that is on the disk with all before it."""
        return self._out.syncs.synced

    @property
    def index(self) -> PageIndex | None:
        """The index of the page that is written to."""
        return self._out.index

    def append(
        self, payloads: Sequence[bytes], *, stop: threading.Event | None = None, write_now: bool = False
    ) -> Position:
        """Append them in order; returns the place of the last. Others come between only while it waits for room.

        With durability "each" they are on the disk then, with `write_now` the system has them. `when_full` says what
        happens without room; an append that waits raises JournalFull once `stop` is set and the listeners are notified.
        """
        check_fits(payloads, self._settings)
        write_now = write_now or self._settings.durability is Durability.EACH
        done, waited = 0, False
        while True:
            written = self._out.written
            try:
                position = self._add(payloads, done, write_now=write_now)
                break
            except JournalFailed:
                self._state.log_failure()
                raise
            except NoRoom as full:
                done, waited = full.done, True
                if done and self._settings.durability is not Durability.EACH:
                    self._timer.started()
                if self._out.written != written:  # those who wait for these may be the ones who make room
                    self._listeners.notify()
                if stop is not None and stop.is_set():
                    raise JournalFull(self._place, str(full), appended=done) from full
                self._make_room(full, stop)
        if waited:
            self._room.found()
        self._sync_as_set(position.sequence)
        if self._listeners:
            self._listeners.notify()
        return position

    def _sync_as_set(self, last: int) -> None:
        """Sync up to this record now, or have the timer do so, as the durability says."""
        if (durability := self._settings.durability) is Durability.EACH:
            self.sync_to(last)
        elif durability is Durability.BATCH and last - self._out.syncs.synced >= self._settings.batch_records:
            with contextlib.suppress(JournalFull):  # they stay in the buffer: the timer tries again, as the next append
                self.sync_to(last)
        if self._out.syncs.synced < last:
            self._timer.started()

    def _add(self, payloads: Sequence[bytes], done: int, *, write_now: bool) -> Position:
        with self._lock:
            self._state.check()
            if self._is_closing:
                raise self._state.was_closed()
            try:
                return self._out.add(payloads, done, self._clock.now(), write_now=write_now)
            except (OSError, JournalFailed) as error:
                raise self._state.fail(error) from error
            finally:
                if self._turn.is_over:
                    self._out.syncs.close_retired()

    def _make_room(self, full: NoRoom, stop: threading.Event | None) -> None:
        """Free a page, or wait until there may be room or `stop` is set, or raise JournalFull, as `when_full` says."""
        if self.reclaim():
            return
        if self._settings.when_full is WhenFull.DROP_OLDEST:
            with self._lock:
                if self.retention.drop_oldest(self._out.number):
                    return
        if self._settings.when_full is not WhenFull.BLOCK:
            if full.done and self._settings.durability is Durability.EACH:
                self.sync_to(self._out.written)
            raise JournalFull(self._place, self.retention.with_hindrance(full), appended=full.done)
        ends = self.reclaim if stop is None else lambda: stop.is_set() or self.reclaim()
        self._room.wait(self.retention.with_hindrance(full), ends)

    def reclaim(self, *, ignore_cursors: bool = False, last_page: bool = False) -> int:
        """Remove the pages that may go, and return how many; with `last_page` the last one may, too."""
        with self._state.failure_logged_after(), self._lock:
            self._state.check()
            go = partial(self.retention.reclaim, self._out.number, ignore_cursors=ignore_cursors)
            now = self._clock.now()
            removed = self._state.carry_out(lambda: go(renew=flushed_renewal(self._out, now))) if last_page else go()
        if removed:
            self._listeners.notify()
        return removed

    def flush(self) -> None:
        """Write the buffer, so that readers of all processes see it; JournalFull if there is no room."""
        if not self._out.has_unwritten:
            return
        with self._state.failure_logged_after(), self._lock:
            self._state.check()
            self._state.carry_out(self._out.flush)
        self._listeners.notify()

    def publish(self) -> None:
        """As `flush`, for readers: what keeps records from being written is raised to those who write."""
        with contextlib.suppress(JournalError), self._state.unreported():
            self.flush()

    def sync(self) -> None:
        """Return when all that was appended before is on the disk, at any durability."""
        self.sync_to(self._out.sequence)

    def sync_to(self, target: int) -> None:
        """Return when this record and all before it are on the disk; threads that wait meanwhile share a sync."""
        while self._out.syncs.synced < target:
            if self._synced_in(SyncTurn(), target):
                self._listeners.notify()
                return
            turn = self._turn
            if self._out.syncs.synced < target:  # otherwise this may be the next leader, which syncs later records
                with turn.lock:
                    pass

    def _synced_in(self, mine: SyncTurn, target: int) -> bool:
        """Sync in this turn, up to this record at least; False if another thread does that, or did."""
        with self._state.failure_logged_after(), mine.lock:
            try:
                unsynced = self._lead(mine, target)
                if unsynced is not None:
                    self._sync(unsynced)
                return unsynced is not None
            finally:
                mine.is_over = True

    def _lead(self, mine: SyncTurn, target: int) -> Unsynced | None:
        """Have this thread be the one that syncs until its turn is over; None if another does, or did."""
        with self._lock:
            if self._out.syncs.synced >= target:
                return None
            self._state.check()
            if not self._turn.is_over:
                return None
            if self._out.written < target:
                self._state.carry_out(self._out.flush)
            unsynced = self._out.unsynced()
            self._turn = mine
            return unsynced

    def _sync(self, unsynced: Unsynced) -> None:
        """Sync this; the caller leads."""
        self._state.carry_out(partial(self._out.syncs.sync, unsynced))
        with self._lock:
            self._out.syncs.reached(unsynced)
            self._out.syncs.close_retired()

    def _has_unfinished(self) -> bool:
        """Whether the timer has something to do: records to write, or with durability "batch" to sync."""
        if self._settings.durability is Durability.NONE:
            return self._out.has_unwritten
        return self._out.sequence > self._out.syncs.synced

    def _finish_batch(self) -> None:
        """Write or sync what waits; called by the timer. Errors reach the next append, or `close`."""
        try:
            with self._state.unreported():
                self._flush_or_sync()
            self._room.note_written()
        except JournalFull as full:
            self._room.note_unwritten(full.reason)
        except (JournalFailed, Closed):
            self._timer.close()

    def finish(self) -> None:
        """Write and sync what waits, except that durability "none" does not sync. Nothing after a failure or a fork.

        A failure that cost records, and that no caller got, is raised.
        """
        if self._state.failed is None and self._state.is_here:
            self._flush_or_sync()
        elif self._has_unfinished():
            self._state.check_reported()

    def _flush_or_sync(self) -> None:
        self.flush() if self._settings.durability is Durability.NONE else self.sync()

    def close(self) -> None:
        """Refuse appends, finish what waits, and close the files.

        Raises what kept records from being written or synced, unless a call before did; it is closed then too.
        """
        if not self._state.is_here:
            return
        with self._closing:  # a second call returns when the first has done all this
            if self._state.closed:
                return
            with self._lock:
                self._is_closing = True
            try:
                self._timer.close()
                self.finish()
            finally:
                while not self._state.closed:
                    self._end()
                self._listeners.notify()

    def _end(self) -> None:
        """Close the files, unless another thread began to sync them since this one looked."""
        turn = self._turn
        with turn.lock, self._lock:
            if turn is self._turn:
                self._state.closed = True
                self._out.close()


#: Those that the end of the program finishes, if they were not closed.
_unclosed: Final = weakref.WeakSet[Writer]()


@atexit.register
def _finish_unclosed() -> None:
    for writer in tuple(_unclosed):
        try:
            writer.finish()
        except (JournalFull, JournalFailed) as error:
            _log_lost(error)
        except Closed:
            continue


@log_safely
def _log_lost(error: Exception) -> None:
    log_event(_log, logging.WARNING, "journal_records_lost_at_exit", reason=error)
