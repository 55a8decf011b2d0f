"""A store in one SQLite file, for many threads and many processes of one machine."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from astyqueue.clock import Clock, Stamps, SystemClock
from astyqueue.errors import BadSetting, Closed, StoreGone, StoreUnavailable
from astyqueue.store import Batch, Column, Committed, Expectation, Outcome, Spread, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.stores.fork_hooks import HeldLocks, call_at_forks
from astyqueue.stores.sqlite.connection import Session, Sessions, Writers
from astyqueue.stores.sqlite.database import ONE_TRY, DatabaseFile
from astyqueue.stores.sqlite.errors import failure, failure_of_commit, is_busy
from astyqueue.stores.sqlite.transaction import SQLiteTransaction, inside_a_transaction
from astyqueue.stores.url import Location
from astyqueue.units import SECOND, MonotonicUs

if TYPE_CHECKING:
    from astyqueue.stores.async_adapter import Threaded

_SYNCHRONOUS: Final = ("full", "normal")
#: How often a reader checks that the file was not moved or replaced: the messages of a removed file are stale.
_LOOKED_FOR: Final = SECOND
_OPTIONS: Final = ("busy_timeout", "synchronous")
#: The wait for other processes is measured in real time, whatever the clock of a store.
_REAL_TIME: Final = SystemClock()


class SQLiteStore:
    """The columns of a database file. Every thread has its own connection; writers take turns.

    It may be used on both sides of a fork: connections are closed before the fork, and each side opens its own.
    """

    spread = Spread()
    #: Reads run in parallel; the file admits one writer at a time.
    at_once = 4

    def __init__(self, file: DatabaseFile, clock: Clock) -> None:
        """Open or create the file. Stamps and times to live go by `clock`."""
        self._file = file
        self._clock = clock
        self._stamps = Stamps(clock)
        self._closed = False
        self._writers = Writers()
        self._sessions = Sessions(self._connect)
        self._guard = threading.Lock()
        self._is_forking = False
        self._fork = threading.Lock()
        self._turn_of_fork: threading.Lock | None = None
        self._held = HeldLocks()
        with self._translated():
            file.prepare()
        self._identity = file.identity()
        self._seen_at = clock.monotonic()
        self._for_tasks: Threaded | None = None
        call_at_forks(self)

    def __str__(self) -> str:
        """The path of the file, for logs."""
        return str(self._file.path)

    def __repr__(self) -> str:
        """The path of the file."""
        return f"<SQLiteStore {self._file.path}{', closed' if self._closed else ''}>"

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:  # noqa: ARG002 - every read is exact
        """See `Store.read`."""
        session = self._sessions.mine()
        if self._clock.monotonic() - self._seen_at >= _LOOKED_FOR:
            self._check_identity()
        until: MonotonicUs | None = None
        while True:
            with session.lock:
                try:
                    return session.read(wanted, self._clock.now())
                except sqlite3.Error as error:
                    until = self._patience(error, until)
            self._wait_for_fork()

    def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`; all batches go in one transaction."""
        checked = [(each, column_name_codec.changes(each)) for each in (batch, *more)]
        with self._writing() as session:
            now, stamp = self._clock.now(), self._stamps.next()
            for each, changes in checked:
                session.put_plainly(each, changes, now=now, stamp=stamp)
            self._make_durable(session)

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        encoded = column_name_codec.committed_changes(batch, expects)
        with self._writing() as session:
            outcome = session.put_if(batch, expects, encoded, now=self._clock.now())
            if isinstance(outcome, Committed):
                self._make_durable(session)
        return outcome

    def as_async(self) -> Threaded:
        """See `AsyncCapableStore`: up to `at_once` threads, which all queues share, as each has a connection."""
        from astyqueue.stores.async_adapter import Threaded  # noqa: PLC0415 - only programs with tasks load asyncio

        with self._guard:
            if self._for_tasks is None:
                self._for_tasks = Threaded(self)
            return self._for_tasks

    @contextlib.contextmanager
    def transaction(self) -> Iterator[SQLiteTransaction]:
        """A write transaction of the calling thread, on a connection of its own; no other writes to the file meanwhile.

        Committed when the block ends, rolled back if it raises. OutcomeUnknown: it may have been committed.
        """
        self.refuse_in_transaction()
        with self._sessions.for_transaction() as session, contextlib.contextmanager(self._begun)(session):
            opened = SQLiteTransaction(session, self._clock, self._stamps, self._file.path)
            with opened.guarded():
                yield opened
            opened.check()
            self._make_durable(session)

    def refuse_in_transaction(self) -> None:
        """See `TransactionalStore.refuse_in_transaction`."""
        if self._sessions.open_transaction is not None:
            raise inside_a_transaction(self._file.path)

    def close(self) -> None:
        """Close all connections, once running calls and transactions of other threads have ended.

        A transaction of the calling thread goes on to the end of its block.
        """
        self._closed = True
        self._sessions.drop()

    def before_fork(self) -> None:
        """Close all connections and block new ones: SQLite's locks belong to a process and must not be copied.

        Threads that wait for another process stop waiting, so that the fork does not wait for it too. A transaction of
        the thread that forks is rolled back.
        """
        try:
            self._is_forking = True
            self._held.take((self._fork,))
            if self._sessions.open_transaction is None:
                self._turn_of_fork = self._writers.turn()
            else:
                self._sessions.open_transaction.drop()
            self._held.take((self._guard,))
            self._sessions.hold(self._held)
        except BaseException:
            self.after_fork(child=False)
            raise

    def after_fork(self, *, child: bool) -> None:
        """Admit connections again.

        The child gets a new lock, because the threads that waited to write do not exist there.
        """
        self._is_forking = False
        self._held.release()
        turn, self._turn_of_fork = self._turn_of_fork, None
        if child:
            self._writers = Writers()
        elif turn is not None:
            turn.release()

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            message = f"this store on {self._file.path} was closed; open a new one"
            raise Closed(message)
        self._check_identity()
        return self._file.connect()

    def _check_identity(self) -> None:
        """Raise StoreGone for a removed or replaced file: writes to it would be lost with the last connection."""
        if self._file.identity() != self._identity:
            message = (
                f"{self._file.path} is not the file that was opened: it was moved or replaced. Restart this process"
            )
            raise StoreGone(message)
        self._seen_at = self._clock.monotonic()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        """The thread's session in a write transaction; changes that were not committed are rolled back."""
        self.refuse_in_transaction()
        with self._translated():
            yield from self._begun(self._sessions.mine())

    def _begun(self, session: Session) -> Iterator[Session]:
        """Wait for the turn of this thread and for other processes, and yield the session in a write transaction.

        What the caller did not commit is rolled back.
        """
        until: MonotonicUs | None = None
        while True:
            turn = self._writers.turn()
            try:
                with session.lock:
                    begun, until = yield from self._transaction(session, until)
            finally:
                turn.release()
            if begun:
                return
            self._wait_for_fork()

    def _transaction(
        self, session: Session, until: MonotonicUs | None
    ) -> Generator[Session, None, tuple[bool, MonotonicUs | None]]:
        """One try: yields the session if it begins; returns whether it began, and otherwise until when to retry.

        An interrupt while it begins rolls back too.
        """
        try:
            begun, until = self._try_to_begin(session, until)
            if begun:
                self._check_identity()
                yield session
            return begun, until
        finally:
            session.roll_back()

    def _try_to_begin(self, session: Session, until: MonotonicUs | None) -> tuple[bool, MonotonicUs | None]:
        """Whether the session may write now, and otherwise until when (monotonic) to retry."""
        try:
            if not self._is_forking:
                session.begin()
                return True, until
        except sqlite3.Error as error:
            return False, self._patience(error, until)
        return False, until

    def _patience(self, error: sqlite3.Error, until: MonotonicUs | None) -> MonotonicUs:
        """Until when (monotonic) to retry while another process has the lock; raises any other error, and the last."""
        now = _REAL_TIME.monotonic()
        if until is None:
            until = now + int(max(0.0, self._file.busy_timeout - ONE_TRY) * SECOND)
        if not is_busy(error) or now >= until:
            raise failure(error, self._file.path) from error
        return until

    def _wait_for_fork(self) -> None:
        """Wait while another thread forks."""
        with self._fork:
            pass

    def _make_durable(self, session: Session) -> None:
        try:
            session.commit()
        except sqlite3.Error as error:
            raise failure_of_commit(error, self._file.path) from error

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise failure(error, self._file.path) from error


def opened(location: Location, *, clock: Clock, create: bool = True) -> SQLiteStore:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; `?synchronous=full|normal` and `?busy_timeout=seconds`."""
    return SQLiteStore(dataclasses.replace(file_of(location), create=create), clock)


def file_of(location: Location) -> DatabaseFile:
    """The file and the options of a URL; nothing is opened."""
    location.only(_OPTIONS)
    return DatabaseFile(_path(location.place), _synchronous(location.options), _busy_timeout(location.options))


def _path(place: str) -> Path:
    if not place.startswith("/") or place == "/" or "\0" in place:
        message = "a sqlite URL names a file: sqlite:///relative.db or sqlite:////absolute.db"
        raise BadSetting(message)
    if place == "/:memory:":
        message = "a sqlite store needs a file; for a store in memory use memory://"
        raise BadSetting(message)
    named = place[1:]
    # Two slashes in front would be the name of a machine.
    absolute = f"/{named.lstrip('/')}" if named.startswith("/") else named
    try:
        return Path(absolute).absolute()
    except FileNotFoundError as error:
        message = (
            f"{absolute}: the current directory was removed; change to an existing one, "
            "or give an absolute path, with four slashes"
        )
        raise StoreUnavailable(message) from error


def _synchronous(options: dict[str, str]) -> str:
    given = options.get("synchronous", "full").lower()
    if given not in _SYNCHRONOUS:
        message = (
            f"unknown synchronous={given!r}: 'full' waits for the disk at every change, "
            "'normal' may lose the last changes when the machine (not the process) crashes"
        )
        raise BadSetting(message)
    return given


def _busy_timeout(options: dict[str, str]) -> float:
    given = options.get("busy_timeout", "60")
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        message = f"busy_timeout={given!r} is not a number of seconds, for example busy_timeout=60"
        raise BadSetting(message)
    return seconds
