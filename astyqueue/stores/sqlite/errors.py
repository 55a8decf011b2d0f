"""Maps SQLite's errors to those of `astyqueue.errors`; each text ends with a remedy."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from astyqueue.errors import AstyqueueError, BadInput, OutcomeUnknown, StoreCorrupt, StoreFull, StoreUnavailable

#: The primary result code is the low byte of an extended one.
_PRIMARY: Final = 0xFF

_BUSY: Final = (
    "Another process held its lock for too long. Find the process, for example with 'fuser -v'; "
    "to wait longer set ?busy_timeout=seconds in the URL"
)
_CORRUPT: Final = (
    "Stop every process that uses it and keep a copy; then restore a backup or try '.recover' in the sqlite3 shell"
)
_NOT_WRITABLE: Final = "Make the file and its directory writable for this user"

_MEANINGS: Final[dict[int, tuple[type[AstyqueueError], str]]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, _BUSY),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, _BUSY),
    sqlite3.SQLITE_FULL: (StoreFull, "Nothing was changed; free disk space and try again"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, _CORRUPT),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, _CORRUPT),
    sqlite3.SQLITE_FORMAT: (StoreCorrupt, _CORRUPT),
    # A statement does not fit the tables: another program has changed them.
    sqlite3.SQLITE_ERROR: (StoreCorrupt, _CORRUPT),
    sqlite3.SQLITE_READONLY: (StoreUnavailable, _NOT_WRITABLE),
    sqlite3.SQLITE_PERM: (StoreUnavailable, _NOT_WRITABLE),
    sqlite3.SQLITE_AUTH: (StoreUnavailable, _NOT_WRITABLE),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnavailable,
        "Check that it exists, and that this user may open it and its -wal and -shm files",
    ),
    sqlite3.SQLITE_TOOBIG: (BadInput, "This is more than SQLite can hold in one value"),
}
_OTHERWISE: Final = (StoreUnavailable, "Nothing was changed; check the disk before trying again")


def failure(error: sqlite3.Error, path: Path) -> AstyqueueError:
    """The error to raise for an error of SQLite before a COMMIT: nothing was changed.

    Only a signal interrupts a statement (`DatabaseFile.opened`): SQLITE_INTERRUPT raises KeyboardInterrupt.
    """
    if _code(error) == sqlite3.SQLITE_INTERRUPT:
        raise KeyboardInterrupt from error
    kind, advice = _MEANINGS.get(_code(error), _OTHERWISE)
    return kind(f"{path}: {error} ({_name(error)}). {advice}")


def failure_of_commit(error: sqlite3.Error, path: Path) -> AstyqueueError:
    """As `failure`, for the COMMIT itself: OutcomeUnknown, because most errors do not show what a crash would leave.

    On a full disk or a locked file nothing was committed.
    """
    if _code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}:
        return failure(error, path)
    return OutcomeUnknown(
        f"{path}: {error} ({_name(error)}) in a COMMIT. The change may be durable or not; read back before trying again"
    )


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process had the lock, so that the statement may be tried again."""
    return _code(error) == sqlite3.SQLITE_BUSY


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_INTERNAL) & _PRIMARY


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", type(error).__name__)
