"""The writer of a journal for many threads: group commits, waits for room, wake-ups, and an orderly end.

One lock guards the buffer and the page, and is held while the buffer is written. One thread at a time syncs, without
the lock: appends go on meanwhile, and the next sync is for all of them. The sync at the end of a page is under it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from astyqueue.clock import Clock
from astyqueue.errors import Closed
from astyqueue.journal.cursor import Retention
from astyqueue.journal.disk import DiskFile
from astyqueue.journal.page_writer import NoRoom, PageWriter, Unsynced, flushed_renewal
from astyqueue.journal.pages import PageIndex, Pages
from astyqueue.journal.records import Position
from astyqueue.journal.recovery import End
from astyqueue.journal.settings import Durability, Settings, WhenFull, check_fits
from astyqueue.journal_errors import JournalFailed, JournalFull
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

T = TypeVar("T")

#: So that the thread does not spin where a full disk lets no batch end.
_LEAST_DELAY_US: Final = SECOND // 1_000
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


class BatchTimer:
    """A thread that calls `finish` at most `delay_us` microseconds after a record was appended and is not finished.

    It starts with the first record, rests while there is none, and is a daemon: a journal that is not closed does not
    keep its process alive.
    """

    def __init__(self, clock: Clock, delay_us: int, *, is_open: Callable[[], bool], finish: Callable[[], None]) -> None:
        """`is_open` is whether records wait; the thread calls it and `finish`. The least delay is 1 ms."""
        self._clock: Final = clock
        self._delay_us: Final = max(delay_us, _LEAST_DELAY_US)
        self._is_open: Final = is_open
        self._finish: Final = finish
        self._wakeup: Final = Wakeup(clock)
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._resting = True
        self._closed = False

    def started(self) -> None:
        """Note that a record waits. Cheap unless the thread rests. Where no thread can be started it calls `finish`."""
        if self._resting:
            self._rouse()

    def _rouse(self) -> None:
        if self._has_thread():
            self._wakeup.set()
        elif not self._closed:
            self._finish()

    def _has_thread(self) -> bool:
        """Start the thread, unless it runs; False if there is none, as in a process that may have no more threads."""
        with self._lock:
            self._resting = False
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="astyqueue-journal", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    self._resting = True
                    return False
                self._thread = thread
            return self._thread is not None

    def close(self) -> None:
        """End the thread, without a last `finish`."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wakeup.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed:
            if not self._is_open():
                self._resting = True
                if not self._is_open():  # nothing came between the first look and the note that the thread rests
                    self._wakeup.wait()
                    continue
                self._resting = False
            until = self._clock.monotonic() + self._delay_us
            while not self._closed and self._clock.monotonic() < until:
                self._wakeup.wait(until)
            if not self._closed:
                self._finish()


class Room:
    """Where appends wait for room. Logs when one has waited for a second, and when one has found room after that."""

    def __init__(self, place: str, clock: Clock, listeners: Listeners) -> None:
        """`place` is the journal, for the log; `listeners` hear of pages that went and of cursors."""
        self._place: Final = place
        self._clock: Final = clock
        self._listeners: Final = listeners
        self._lock: Final = threading.Lock()
        self._is_told = False

    def wait(self, reason: str, make: Callable[[], object]) -> None:
        """Return when there may be room, unless `make` makes some at once. `reason` is why there is none."""
        with self._listeners.listening() as wakeup:
            if make():  # a cursor may have been committed before this thread listened
                return
            until = self._clock.monotonic() + _ROOM_POLL_US
            wakeup.wait(until)
        if self._clock.monotonic() >= until and self._changed_to(told=True):
            log_event(_log, logging.WARNING, "journal_full", journal=self._place, reason=reason, effect="appends wait")

    def found(self) -> None:
        """An append that waited goes on."""
        if self._changed_to(told=False):
            log_event(_log, logging.WARNING, "journal_has_room", journal=self._place)

    def _changed_to(self, *, told: bool) -> bool:
        with self._lock:
            was_told, self._is_told = self._is_told, told
        return was_told != told


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
        self._changed: Final = threading.Condition(self._lock)
        self._is_syncing = False
        self._process: Final = os.getpid()
        self._failed: JournalFailed | None = None
        self._is_closing = self._closed = False
        self._is_full = False
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
        return self._out.synced

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
            except NoRoom as full:
                done, waited = full.done, True
                if done and self._settings.durability is not Durability.EACH:
                    self._timer.started()
                if self._out.written != written:  # those who wait for these may be the ones who make room
                    self._listeners.notify()
                if stop is not None and stop.is_set():
                    raise JournalFull(self._place, str(full), appended=done) from full
                self._make_room(full)
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
        elif durability is Durability.BATCH and last - self._out.synced >= self._settings.batch_records:
            with contextlib.suppress(JournalFull):  # they stay in the buffer: the timer tries again, as the next append
                self.sync_to(last)
        if self._out.synced < last:
            self._timer.started()

    def _add(self, payloads: Sequence[bytes], done: int, *, write_now: bool) -> Position:
        with self._lock:
            self._check()
            if self._is_closing:
                raise self._was_closed()
            try:
                return self._out.add(payloads, done, self._clock.now(), write_now=write_now)
            except (OSError, JournalFailed) as error:
                raise self._fail(error) from error
            finally:
                if not self._is_syncing:
                    self._out.syncs.close_retired()

    def _make_room(self, full: NoRoom) -> None:
        """Free a page, or wait until there may be room, or raise JournalFull, as `when_full` says."""
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
        self._room.wait(self.retention.with_hindrance(full), self.reclaim)

    def reclaim(self, *, ignore_cursors: bool = False, last_page: bool = False) -> int:
        """Remove the pages that may go, and return how many; with `last_page` the last one may, too."""
        with self._lock:
            self._check()
            go = partial(self.retention.reclaim, self._out.number, ignore_cursors=ignore_cursors)
            now = self._clock.now()
            removed = self._carry_out(lambda: go(renew=flushed_renewal(self._out, now))) if last_page else go()
        if removed:
            self._listeners.notify()
        return removed

    def flush(self) -> None:
        """Write the buffer, so that readers of all processes see it; JournalFull if there is no room."""
        if not self._out.has_unwritten:
            return
        with self._lock:
            self._check()
            self._carry_out(self._out.flush)
        self._listeners.notify()

    def _carry_out(self, write: Callable[[], T]) -> T:
        try:
            return write()
        except NoRoom as full:
            raise JournalFull(self._place, str(full)) from full
        except (OSError, JournalFailed) as error:
            raise self._fail(error) from error

    def sync(self) -> None:
        """Return when all that was appended before is on the disk, at any durability."""
        self.sync_to(self._out.sequence)

    def sync_to(self, target: int) -> None:
        """Return when this record and all before it are on the disk; threads that wait meanwhile share a sync."""
        if self._out.synced >= target:
            return
        unsynced = self._lead(target)
        if unsynced is None:
            return
        try:
            self._out.syncs.sync(unsynced)
            with self._changed:
                self._out.syncs.reached(unsynced)
                self._out.synced = max(self._out.synced, unsynced.sequence)
        except JournalFailed as error:
            raise self._fail(error) from error
        finally:
            with self._changed:
                self._is_syncing = False
                self._out.syncs.close_retired()
                self._changed.notify_all()
        self._listeners.notify()

    def _lead(self, target: int) -> Unsynced | None:
        """Have this thread be the one that syncs; None once another one has synced the record."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_syncing or self._out.synced >= target)
            if self._out.synced >= target:
                return None
            self._check()
            if self._out.written < target:
                self._carry_out(self._out.flush)
            self._is_syncing = True
            return self._out.unsynced()

    def _has_unfinished(self) -> bool:
        """Whether the timer has something to do: records to write, or with durability "batch" to sync."""
        if self._settings.durability is Durability.NONE:
            return self._out.has_unwritten
        return self._out.sequence > self._out.synced

    def _finish_batch(self) -> None:
        """Write or sync what waits; called by the timer. Errors reach the next append."""
        try:
            if self._settings.durability is Durability.NONE:
                self.flush()
            else:
                self.sync()
            self._is_full = False
        except JournalFull as full:
            if not self._is_full:
                log_event(_log, logging.WARNING, "journal_full", journal=self._place, reason=full.reason)
            self._is_full = True
        except (JournalFailed, Closed):
            self._timer.close()

    def _check(self) -> None:
        if self._closed:
            raise self._was_closed()
        if self._failed is not None:
            raise JournalFailed(self._failed.place, self._failed.reason)
        if os.getpid() != self._process:
            message = f"journal {self._place} was opened before a fork: open it in the child, once the parent closed it"
            raise Closed(message)

    def _was_closed(self) -> Closed:
        return Closed(f"journal {self._place} was closed: open it again")

    def _fail(self, error: OSError | JournalFailed) -> JournalFailed:
        """Take nothing more: after a failed sync the system may have forgotten what it did not write."""
        self._failed = error if isinstance(error, JournalFailed) else JournalFailed(self._place, str(error))
        return self._failed

    def finish(self) -> None:
        """Write and sync what waits, except that durability "none" does not sync. Nothing after a failure or a fork."""
        if self._failed is None and self._process == os.getpid():
            self.flush() if self._settings.durability is Durability.NONE else self.sync()

    def close(self) -> None:
        """Refuse appends, finish what waits, and close the files.

        Raises what kept records of the buffer from being written; the journal is closed then too.
        """
        if self._process != os.getpid():
            return
        with self._changed:
            if self._is_closing:
                self._changed.wait_for(lambda: self._closed)
                return
            self._is_closing = True
        try:
            self._timer.close()
            self.finish()
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_syncing)
                self._closed = True
                self._out.close()
                self._changed.notify_all()
            self._listeners.notify()


#: Those that the end of the program finishes, if they were not closed.
_unclosed: Final = weakref.WeakSet[Writer]()


@atexit.register
def _finish_unclosed() -> None:
    for writer in tuple(_unclosed):
        try:
            writer.finish()
        except (JournalFull, JournalFailed) as error:
            log_event(_log, logging.WARNING, "journal_records_lost_at_exit", reason=error)
        except Closed:
            continue
