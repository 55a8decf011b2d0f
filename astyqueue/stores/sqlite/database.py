"""The database file: how it is opened, created and recognized.

A file of another application, or of a newer astyqueue, is rejected before anything in it changes.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting, StoreCorrupt, StoreGone, StoreUnavailable, WrongSchema
from astyqueue.files import make_file
from astyqueue.stores.sqlite import schema
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: "astq", in the header of every file that astyqueue makes; `file` and other tools recognize it.
APPLICATION_ID: Final = 0x61737471

#: In bytes; SQLite's default is 4096. Rows are stored in order, so most changes hit few pages: 10 to 15 % less time.
_PAGE_SIZE: Final = 16384
#: In bytes. A log that grew longer, as behind a backup, is cut to this by the next writer after it was written back.
LOG_KEPT: Final = 32 * 1024 * 1024
_CACHED_STATEMENTS: Final = 64
_LONGEST_BUSY_TIMEOUT: Final = 2_000_000.0
#: How long a connection waits for another process in one try, in seconds: a fork of this process waits that long.
ONE_TRY: Final = 0.25
#: The wait between requests for the write-ahead log, which SQLite rejects while another process reads a new file.
_ASK_AGAIN: Final = SECOND // 100
#: Python handles signals every N steps of SQLite's virtual machine, every few hundredths of a second.
_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A file, and its options. `busy_timeout` is in seconds; `create`: a missing file is created."""

    path: Path
    synchronous: str = "full"
    busy_timeout: float = 60.0
    create: bool = True

    @property
    def log(self) -> Path:
        """The write-ahead log, which is there while a process has the file open, and after a crash."""
        return self._place.with_name(f"{self._place.name}-wal")

    @property
    def _place(self) -> Path:
        """Where the file itself lies, if a link leads to it; SQLite makes the log there."""
        return Path(os.path.realpath(self.path))

    @property
    def may_be_written(self) -> bool:
        """Whether this user may write to the file."""
        return _may(self.path, os.R_OK | os.W_OK)

    def prepare(self) -> None:
        """Check that the file is astyqueue's and usable; create or upgrade it if need be."""
        self._look_around()
        if self.create and not self.path.exists():
            with contextlib.suppress(OSError):  # SQLite creates the file then, or reports why it cannot
                make_file(self.path)
        connection = self.opened("rwc" if self.create else "rw")
        try:
            with _transaction(connection, "BEGIN"):
                version = self._version(connection)
            if version < schema.newest():
                self._make(connection)
            self._use_write_ahead_log(connection)
        finally:
            connection.close()

    def connect(self) -> sqlite3.Connection:
        """A connection to the prepared file, for use by any thread, one at a time.

        It waits `ONE_TRY` at most for other processes; its user retries for up to `busy_timeout`.
        """
        connection = self.opened("rw", patience=ONE_TRY)
        with _closed_on_error(connection):
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_KEPT}")
        return connection

    def identity(self) -> tuple[int, int]:
        """The device and inode of the file; StoreGone if it does not exist."""
        try:
            found = self.path.stat()
        except OSError as error:
            message = f"{self.path} no longer exists ({error.strerror}); put it back and restart this process"
            raise StoreGone(message) from error
        return found.st_dev, found.st_ino

    def _look_around(self) -> None:
        """Raise with a cause and a remedy where SQLite would only report "unable to open database file"."""
        directory = self._place.parent
        if not directory.is_dir():
            message = f"{self.path}: there is no directory {directory}; create it, or correct the URL"
        elif self.path.is_dir():
            message = f"{self.path} is a directory; name a file in the URL"
        elif not _may(directory, os.W_OK | os.X_OK):
            message = (
                f"{self.path}: the directory {directory} is not writable, and SQLite keeps its log beside the file; "
                "make it writable"
            )
        elif self.path.exists() and not _may(self.path, os.R_OK | os.W_OK):
            message = f"{self.path} is not readable and writable for this user; correct its permissions"
        elif not self.create and not self.path.exists():
            message = (
                f"there is no file {self.path}: correct the URL, or create the store first "
                "('astyqueue send QUEUE BODY --create', or connect without create=False)"
            )
            raise WrongSchema(message)
        else:
            return
        raise StoreUnavailable(message)

    def opened(self, mode: str, *, patience: float = _LONGEST_BUSY_TIMEOUT) -> sqlite3.Connection:
        """A connection that trusts no SQL in the file's schema, and that signals can interrupt.

        `patience` is in seconds.
        """
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=min(self.busy_timeout, patience),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        with _closed_on_error(connection):
            connection.set_progress_handler(_let_signals_through, _STEPS)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if sys.version_info >= (3, 12):
                connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)
        return connection

    def difference(self, connection: sqlite3.Connection) -> str:
        """How the schema of a file marked as astyqueue's differs from astyqueue's; empty if it does not."""
        return schema.difference(connection, min(_number(connection, "PRAGMA user_version"), schema.newest()))

    def is_empty(self, connection: sqlite3.Connection) -> bool:
        """Whether a file is of no application: it was made beforehand, or by a process that was killed after that."""
        asked = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        return not any(_number(connection, each) for each in asked)

    def _version(self, connection: sqlite3.Connection) -> int:
        """The format of astyqueue's file, zero for an empty one; any other file raises."""
        application, version = _number(connection, "PRAGMA application_id"), _number(connection, "PRAGMA user_version")
        if application == APPLICATION_ID and version > schema.newest():
            message = (
                f"{self.path} was made by a newer astyqueue (its format is {version}, "
                f"this one knows {schema.newest()}); upgrade this process, or use another file"
            )
            raise WrongSchema(message)
        if application == APPLICATION_ID:
            if differs := self.difference(connection):
                message = (
                    f"{self.path} is marked as astyqueue's, but {differs}: another program changed or made it. "
                    "It was left unchanged; restore a backup, or name another file in the URL"
                )
                raise StoreCorrupt(message)
            return version
        if not self.is_empty(connection):
            message = (
                f"{self.path} is a database of another application; it was left unchanged. Name another file in the URL"
            )
            raise BadSetting(message)
        return 0

    def _make(self, connection: sqlite3.Connection) -> None:
        """Create the tables of a new file, or upgrade an older one; with several processes at once, one does it."""
        connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
        with _transaction(connection, "BEGIN EXCLUSIVE"):
            for statement in schema.upgrades(self._version(connection)):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {schema.newest()}")

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        clock = SystemClock()
        patience = clock.monotonic() + int(self.busy_timeout * SECOND)
        while not self._has_write_ahead_log(connection, last_try=clock.monotonic() > patience):
            Wakeup(clock).wait(clock.monotonic() + _ASK_AGAIN)

    def _has_write_ahead_log(self, connection: sqlite3.Connection, *, last_try: bool) -> bool:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if last_try or error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        if mode != "wal":
            message = (
                f"{self.path}: this file system has no shared memory for SQLite's write-ahead log; use a local disk"
            )
            raise StoreUnavailable(message)
        return True


def _let_signals_through() -> None:
    """Python handles signals before it calls this; an exception of a handler, such as at Ctrl-C, ends the statement."""


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


@contextlib.contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a new connection if the block raises: the traceback may keep it open for long."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """A transaction: all statements in the block see one snapshot of the file."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _number(connection: sqlite3.Connection, question: str) -> int:
    answer: int = connection.execute(question).fetchone()[0]
    return answer
