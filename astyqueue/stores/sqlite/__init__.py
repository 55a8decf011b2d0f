"""A store in one SQLite file, for many threads and many processes of one machine."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from astyqueue.clock import SECOND, Clock, SystemClock
from astyqueue.errors import BadSetting, Closed, StoreGone
from astyqueue.store import Batch, Column, Committed, Expectation, Outcome, Refused, Spread, Wanted
from astyqueue.stores import encoding, forks
from astyqueue.stores.location import Location
from astyqueue.stores.sqlite.failures import failure, failure_of_commit, is_busy
from astyqueue.stores.sqlite.file import ONE_TRY, DatabaseFile
from astyqueue.stores.sqlite.session import Session
from astyqueue.stores.sqlite.writers import Writers
from astyqueue.stores.stamps import Stamps

_SYNCHRONOUS: Final = ("full", "normal")
#: How often whoever only reads sees that the file is still there: what is read from a removed one is nobody's any more.
_LOOKED_FOR: Final = SECOND
_OPTIONS: Final = ("busy_timeout", "synchronous")
#: Patience with other processes is measured in real time, whatever the clock of a store.
_WATCH: Final = SystemClock()


class SQLiteStore:
    """The columns of a database file. Every thread has a connection of its own; writers line up.

    It may be used on both sides of a fork: no connection is carried across one, each side makes its own.
    """

    spread = Spread()
    #: Reads go side by side, and writes line up in the file.
    at_once = 4

    def __init__(self, file: DatabaseFile, clock: Clock) -> None:
        """Open the file, or make it. Stamps and times to live are those of `clock`."""
        self._file = file
        self._clock = clock
        self._stamps = Stamps(clock)
        self._closed = False
        self._writers = Writers()
        self._mine = threading.local()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._no_fork = threading.Event()
        self._no_fork.set()
        with self._told():
            file.prepare()
        self._identity = file.identity()
        self._seen_at = clock.monotonic()
        forks.watch(self)

    def __str__(self) -> str:
        """Which file it is, for people who read a log."""
        return str(self._file.path)

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:  # noqa: ARG002 - every read is exact
        """As the port says."""
        session = self._session()
        if self._clock.monotonic() - self._seen_at >= _LOOKED_FOR:
            self._see_that_it_is_the_same_file()
        until = 0
        while True:
            with session.lock:
                try:
                    return session.read(wanted, self._clock.now())
                except sqlite3.Error as error:
                    until = self._patience(error, until)
            self._no_fork.wait()

    def send(self, batch: Batch, *more: Batch) -> None:
        """As the port says; in one transaction."""
        checked = [(each, encoding.changes(each)) for each in (batch, *more)]
        with self._writing() as session:
            now, stamp = self._clock.now(), self._stamps.next()
            for each, changes in checked:
                session.put_plainly(each, changes, now=now, stamp=stamp)
            self._make_durable(session)

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the port says."""
        changes, expected = encoding.committed_changes(batch, expects)
        with self._writing() as session:
            now = self._clock.now()
            present = session.present(batch, expects, expected, now=now)
            if any(present[name] != value for name, value in expects):
                return Refused(present)
            session.put_committed(batch, changes, now=now)
            self._make_durable(session)
        return Committed()

    def close(self) -> None:
        """Close all connections, once the verbs that are running have ended."""
        self._closed = True
        for session in self._known_sessions():
            with session.lock:
                session.drop()

    def before_fork(self) -> None:
        """Close all connections and let nobody make one: SQLite's locks belong to a process and must not be copied.

        Threads that wait for another process step back, so that the fork does not wait for it too.
        """
        self._no_fork.clear()
        self._writers.__enter__()
        self._guard.acquire()
        self._still = list(self._sessions)
        for session in self._still:
            session.lock.acquire()
            session.drop()

    def after_fork(self, *, child: bool) -> None:
        """Let them be made again. The threads that waited to write are not there in the child."""
        for session in self._still:
            session.lock.release()
        self._still = []
        self._guard.release()
        if child:
            self._writers = Writers()
            self._no_fork = threading.Event()
        else:
            self._writers.__exit__(None, None, None)
        self._no_fork.set()

    def _session(self) -> Session:
        """The session of the calling thread; it goes when the thread goes."""
        try:
            session: Session = self._mine.session
        except AttributeError:
            session = self._mine.session = Session(self._connect)
            with self._guard:
                self._sessions.add(session)
        return session

    def _known_sessions(self) -> list[Session]:
        with self._guard:
            return list(self._sessions)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            message = f"this store on {self._file.path} was closed; open a new one"
            raise Closed(message)
        self._see_that_it_is_the_same_file()
        return self._file.connect()

    def _see_that_it_is_the_same_file(self) -> None:
        """What is written to a file that was removed or replaced would be lost with the last connection to it."""
        if self._file.identity() != self._identity:
            message = f"{self._file.path} is another file than the one that was opened: it was moved or replaced. Restart this process"
            raise StoreGone(message)
        self._seen_at = self._clock.monotonic()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        """The thread's session between BEGIN and what becomes of it; what was not made durable is rolled back."""
        session = self._session()
        until = 0
        while True:
            with self._writers, session.lock, self._told():
                begun, until = self._try_to_begin(session, until)
                if begun:
                    yield from self._transaction(session)
                    return
            self._no_fork.wait()

    def _try_to_begin(self, session: Session, until: int) -> tuple[bool, int]:
        """Whether the session may write now; else until when to try again."""
        try:
            if self._no_fork.is_set():
                session.begin()
                return True, until
        except sqlite3.Error as error:
            return False, self._patience(error, until)
        return False, until

    def _transaction(self, session: Session) -> Iterator[Session]:
        try:
            self._see_that_it_is_the_same_file()
            yield session
        finally:
            session.roll_back()

    def _patience(self, error: sqlite3.Error, until: int) -> int:
        """Until when (monotonic) to try again what another process was in the way of; any other error, or the last, is raised."""
        now = _WATCH.monotonic()
        until = until or now + int(max(0.0, self._file.busy_timeout - ONE_TRY) * SECOND)
        if not is_busy(error) or now >= until:
            raise failure(error, self._file.path) from error
        return until

    def _make_durable(self, session: Session) -> None:
        try:
            session.commit()
        except sqlite3.Error as error:
            raise failure_of_commit(error, self._file.path) from error

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise failure(error, self._file.path) from error


def opened(location: Location, *, clock: Clock, create: bool = True) -> SQLiteStore:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; `?synchronous=full|normal` and `?busy_timeout=seconds`."""
    return SQLiteStore(dataclasses.replace(file_of(location), create=create), clock)


def file_of(location: Location) -> DatabaseFile:
    """The file that a URL names, and how to treat it; nothing is opened."""
    location.only(_OPTIONS)
    return DatabaseFile(_path(location.place), _synchronous(location.options), _busy_timeout(location.options))


def _path(place: str) -> Path:
    if not place.startswith("/") or place == "/":
        message = "a sqlite URL names a file: sqlite:///relative.db or sqlite:////absolute.db"
        raise BadSetting(message)
    if place == "/:memory:":
        message = "a sqlite store is a file; for a store in memory use memory://"
        raise BadSetting(message)
    named = place[1:]
    absolute = f"/{named.lstrip('/')}" if named.startswith("/") else named  # two slashes in front would be the name of a machine
    return Path(absolute).absolute()


def _synchronous(options: dict[str, str]) -> str:
    given = options.get("synchronous", "full").lower()
    if given not in _SYNCHRONOUS:
        message = (
            f"synchronous={given!r} is not known: 'full' waits for the disk at every change, "
            "'normal' may lose the last changes when the machine (not the process) dies"
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
