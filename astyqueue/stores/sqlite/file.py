"""The database file: how it is opened, made and recognised.

A file that is not ours, or newer than this astyqueue, is recognised before anything in it is touched.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import quote

from astyqueue.clock import SECOND, SystemClock
from astyqueue.errors import BadSetting, StoreGone, StoreUnavailable, WrongSchema
from astyqueue.store import ENTRIES, HISTORY
from astyqueue.stores.sqlite.view import READABLE
from astyqueue.wakeup import Wakeup

#: Marks our files in their header ("astq"); `file` and other tools can tell them by it.
APPLICATION_ID: Final = 0x61737471
#: The version of what is inside, for upgrades to come.
SCHEMA: Final = 2

#: Larger pages than usual: rows lie in order, so most changes fall on few pages; measured 10 to 15 % less time.
_PAGE_SIZE: Final = 16384
_CACHED_STATEMENTS: Final = 64
_LONGEST_BUSY_TIMEOUT: Final = 2_000_000.0
#: How long to wait before asking again for the write-ahead log, which SQLite refuses while anybody looks at a new file.
_ASK_AGAIN: Final = SECOND // 100

_TABLE: Final = """
    CREATE TABLE TABLE_NAME (
        row TEXT NOT NULL, name BLOB NOT NULL, stamp INTEGER NOT NULL, expires INTEGER, value BLOB NOT NULL,
        PRIMARY KEY (row, name)
    ) WITHOUT ROWID
"""
#: Costs nothing for columns that stay for good, which are nearly all.
_EXPIRING: Final = "CREATE INDEX TABLE_NAME_expiring ON TABLE_NAME (expires) WHERE expires IS NOT NULL"


def _made_of(table: str) -> tuple[str, str]:
    return _TABLE.replace("TABLE_NAME", table), _EXPIRING.replace("TABLE_NAME", table)


#: What brings a file to each format from the one before it.
_UPGRADES: Final = ((*_made_of(ENTRIES), READABLE), _made_of(HISTORY))


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A file, and how to treat it. `busy_timeout` is in seconds; `create`: a file that is not there is made."""

    path: Path
    synchronous: str = "full"
    busy_timeout: float = 60.0
    create: bool = True

    def prepare(self) -> None:
        """See that the file is ours and can be used, and make it if there is none and it is to be made."""
        self._look_around()
        connection = self._connected("rwc" if self.create else "rw")
        try:
            with _transaction(connection, "BEGIN"):
                version = self._version(connection)
            if version < SCHEMA:
                self._make(connection)
            self._use_write_ahead_log(connection)
        finally:
            connection.close()

    def connect(self) -> sqlite3.Connection:
        """A connection to the prepared file; it may be handed from thread to thread, for one at a time."""
        connection = self._connected("rw")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    def identity(self) -> tuple[int, int]:
        """Which file this is, whatever its name; the file has to be there."""
        try:
            found = self.path.stat()
        except OSError as error:
            message = f"{self.path} is not there any more ({error.strerror}); put it back and restart this process"
            raise StoreGone(message) from error
        return found.st_dev, found.st_ino

    def _look_around(self) -> None:
        """Say plainly what SQLite would only call "unable to open database file"."""
        directory = self.path.parent
        if not directory.is_dir():
            message = f"{self.path}: there is no directory {directory}; create it, or correct the URL"
        elif self.path.is_dir():
            message = f"{self.path} is a directory; name a file in the URL"
        elif not _may(directory, os.W_OK | os.X_OK):
            message = f"{self.path}: the directory {directory} is not writable, and SQLite keeps its log beside the file; make it writable"
        elif self.path.exists() and not _may(self.path, os.R_OK | os.W_OK):
            message = f"{self.path} is not readable and writable for this user; correct its permissions"
        elif not self.create and not self.path.exists():
            message = (
                f"there is no file {self.path}: correct the URL, or make the store first "
                "('astyqueue send QUEUE BODY --create', or connect without create=False)"
            )
            raise WrongSchema(message)
        else:
            return
        raise StoreUnavailable(message)

    def _connected(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=min(self.busy_timeout, _LONGEST_BUSY_TIMEOUT),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )

    def _version(self, connection: sqlite3.Connection) -> int:
        """The format of a file of ours, zero of one that is new and empty; anything else raises."""
        application, version = _number(connection, "PRAGMA application_id"), _number(connection, "PRAGMA user_version")
        if application == APPLICATION_ID and version > SCHEMA:
            message = (
                f"{self.path} was made by a newer astyqueue (its format is {version}, this one knows {SCHEMA}); "
                "upgrade this process, or use another file"
            )
            raise StoreUnavailable(message)
        if application == APPLICATION_ID:
            return version
        if application or version or _number(connection, "SELECT count(*) FROM sqlite_master"):
            message = f"{self.path} is a database of another application; it was left as it is. Name another file in the URL"
            raise BadSetting(message)
        return 0

    def _make(self, connection: sqlite3.Connection) -> None:
        """Lay out a new file, or add what an older one lacks, once, however many processes want to at the same time."""
        connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
        with _transaction(connection, "BEGIN EXCLUSIVE"):
            for statement in chain.from_iterable(_UPGRADES[self._version(connection) :]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")

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
            message = f"{self.path}: this file system has no shared memory for SQLite's write-ahead log; use a local disk"
            raise StoreUnavailable(message)
        return True


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """All that is asked in here is asked of one state of the file."""
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
