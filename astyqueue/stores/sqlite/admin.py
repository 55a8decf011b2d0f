"""Checks of a database file: its format, its log, its disk. Nothing here creates or changes the file."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from typing import Final, Self

from astyqueue.errors import StoreCorrupt, StoreUnavailable, WrongSchema
from astyqueue.findings import Finding, Severity, note, ok, worst
from astyqueue.stores.sqlite import filesystems
from astyqueue.stores.sqlite.database import APPLICATION_ID, LOG_KEPT, DatabaseFile
from astyqueue.stores.sqlite.errors import failure, is_busy
from astyqueue.stores.sqlite.schema import newest
from astyqueue.stores.sqlite.sql import BEGIN, ROLLBACK
from astyqueue.stores.sqlite.store import file_of
from astyqueue.stores.url import Location

_MEBIBYTE: Final = 1 << 20
#: SQLite checkpoints its log at about 16 MiB; a log of this size shows that something prevents checkpoints.
_LONG_LOG: Final = 2 * LOG_KEPT
#: Less free space than this, or than half of the file, is a warning.
_LITTLE_ROOM: Final = 512 * _MEBIBYTE
#: A commit of 200 messages and its log may need this much; less is a problem.
_NO_ROOM: Final = _MEBIBYTE
#: Checking a larger file takes too long for an interactive command.
_QUICKLY_CHECKED: Final = 1024 * _MEBIBYTE
#: The journal mode of a file that a store has opened.
_LOG: Final = "wal"
_LEFT_OUT: Final = "the queues were not examined, because opening the file would change it"
_SEE_UPGRADE: Final = "docs/how-to/upgrade.md"


class FileAdministration:
    """The `Administration` of one database file."""

    def __init__(self, file: DatabaseFile) -> None:
        """Open nothing yet."""
        self._file = file

    def statements(self) -> list[str]:
        """An empty list: a store creates its file when it is opened."""
        return []

    def migrate(self) -> list[str]:
        """Change nothing, because a store creates its file when it is opened.

        A file that is not usable raises WrongSchema.
        """
        (format_,) = self._of_format()
        if format_.severity is Severity.PROBLEM:
            message = f"{self._file.path} {format_.fact}; {format_.remedy}"
            raise WrongSchema(message)
        return [f"nothing to do: {self._file.path} {format_.fact}"]

    def verify(self) -> list[Finding]:
        """Whether astyqueue made the file, in a format that this release knows."""
        try:
            return self._of_format()
        except StoreCorrupt as error:
            return [_damaged(f"file {self._file.path}", str(error.__cause__))]

    def _of_format(self) -> list[Finding]:
        subject = f"file {self._file.path}"
        if not self._file.path.exists():
            fact = f"does not exist; opening a store creates it in format {newest()}"
            reason = "nothing was sent yet, or it was moved or deleted, or the URL is wrong"
            remedy = "correct the URL, or put the file back; a new one is made by 'astyqueue send QUEUE BODY --create'"
            return [Finding(subject, Severity.WARNING, fact, reason, remedy)]
        with self._open_read_only() as connection:
            if self._file.is_empty(connection):
                reason = "it was made beforehand, or by a process that was killed before it had made the tables"
                remedy = "send the first message, or correct the URL if there are queues in another file"
                fact = "is empty; opening a store creates its tables"
                return [Finding(subject, Severity.WARNING, fact, reason, remedy)]
            format_ = _format(subject, _number(connection, "application_id"), _number(connection, "user_version"))
            differs = "" if format_.severity is Severity.PROBLEM else self._file.difference(connection)
        if differs:
            reason = "another program changed or made it; no store can be opened on it"
            return [
                Finding(subject, Severity.PROBLEM, differs, reason, "restore a backup, or name another file in the URL")
            ]
        return [format_]

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:  # noqa: ARG002 - a row in a file needs no rest
        """The findings of `verify`, and those on the log, the disk and the pages of the file."""
        found = self.verify()
        found.append(filesystems.finding(self._file.path, filesystems.mounted()))
        found.extend(self._readers())
        found.extend(self._owned_by_another())
        size = self._file.path.stat().st_size if self._file.path.exists() else 0
        if not size or worst(found) is Severity.PROBLEM:
            return found
        log = self._file.log
        found += [
            *self._lock(),
            _synchronous(self._file.synchronous),
            _log(log.stat().st_size if log.exists() else 0),
            room(shutil.disk_usage(self._file.path).free, size),
        ]
        try:
            with self._open_read_only() as connection:
                found += [
                    _journal(_journal_mode(connection)),
                    _pages(connection, size),
                ]
        except StoreCorrupt as error:
            found.append(_damaged("pages of the file", str(error.__cause__)))
        return found

    def _readers(self) -> Iterator[Finding]:
        """A note if every user of this machine may read the file, a warning if they may write to it."""
        mode = stat.S_IMODE(self._file.path.stat().st_mode) if self._file.path.exists() else 0
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            severity = Severity.WARNING if mode & stat.S_IWOTH else Severity.NOTE
            do = "send, change and remove" if severity is Severity.WARNING else "read"
            reason = f"all users of this machine can {do} its messages, unless a directory above it denies them access"
            remedy = "chmod o-rwx the file, its -wal and its -shm file"
            yield Finding("mode of the file", severity, f"{mode:04o}", reason, remedy)

    def _lock(self) -> Iterator[Finding]:
        """Whether a write begins within the time for which a send waits; nothing is written."""
        if not self._file.may_be_written:
            return
        waited = f"{self._file.busy_timeout:g} s"
        try:
            with contextlib.closing(self._file.opened("rw")) as connection:
                connection.execute(BEGIN)
                connection.execute(ROLLBACK)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise failure(error, self._file.path) from error
            reason = "every send, claim and settle waits as long and fails (StoreUnavailable)"
            remedy = "find the process ('fuser -v' on the file): often a sqlite3 shell in a transaction"
            yield Finding("lock to write", Severity.PROBLEM, f"another process kept it for {waited}", reason, remedy)
        else:
            yield ok("lock to write", f"free within {waited}")

    def _owned_by_another(self) -> Iterator[Finding]:
        """A note if this user can look at the file and not use it."""
        if self._file.path.exists() and not self._file.may_be_written:
            reason = "this user may not write to the file, and a store is opened by users who may"
            yield note("queues", "were not examined", reason, remedy="run this as the owner of the file")

    def ready(self) -> bool:
        """Whether the file exists, and opening a store on it neither fails nor changes its format or its journal."""
        usable = self._file.may_be_written and worst(self.verify()) < Severity.PROBLEM
        return usable and not self._opening_changes()

    def _opening_changes(self) -> bool:
        with self._open_read_only() as connection:
            return _number(connection, "user_version") < newest() or _journal_mode(connection) != _LOG

    def close(self) -> None:
        """Do nothing: no connection stays open between calls."""

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""

    @contextlib.contextmanager
    def _open_read_only(self) -> Iterator[sqlite3.Connection]:
        """A connection that only reads. SQLite makes a log for it, and removes that only if it may write to the file.

        So a user who may not has to find one: the owner could not write to a log that another user made.
        """
        mode = "rw" if self._file.may_be_written else "ro"
        if mode == "ro" and not self._file.log.exists():
            message = (
                f"{self._file.path} cannot be examined by a user who may not write to it while no process has it open, "
                "because that would leave a log beside it that its owner cannot write: run this as its owner"
            )
            raise StoreUnavailable(message)
        try:
            with contextlib.closing(self._file.opened(mode)) as connection:
                connection.execute("PRAGMA query_only = ON")
                yield connection
        except sqlite3.Error as error:
            raise failure(error, self._file.path) from error


def room(free: int, size: int) -> Finding:
    """Whether the disk has `free` bytes enough for a file of `size` bytes to grow."""
    fact = f"{_megabytes(free)} free, and the file has {_megabytes(size)}"
    if free >= max(_LITTLE_ROOM, size // 2):
        return ok("room on the disk", fact)
    reason = "on a full disk every send, claim and settle fails (StoreFull); stored messages stay"
    remedy = (
        "free disk space; after a purge of dead letters or a drain, 'VACUUM' in the sqlite3 shell releases unused pages"
    )
    return Finding("room on the disk", Severity.PROBLEM if free < _NO_ROOM else Severity.WARNING, fact, reason, remedy)


def _format(subject: str, application: int, version: int) -> Finding:
    if application == APPLICATION_ID and version < newest():
        reason = f"the release before cannot open it after that; {_LEFT_OUT}"
        remedy = "make a copy, then open it with this release: 'astyqueue queues list'"
        fact = f"has format {version}; opening a store upgrades it to {newest()}"
        return note(subject, fact, reason, remedy=remedy, see=_SEE_UPGRADE)
    if application == APPLICATION_ID and version == newest():
        return ok(subject, f"has format {version}, the newest")
    if application == APPLICATION_ID:
        reason, remedy = "a newer astyqueue made it", "upgrade this process, or use another file"
        return Finding(
            subject, Severity.PROBLEM, f"has format {version}, and this astyqueue knows {newest()}", reason, remedy
        )
    reason, remedy = "it was left unchanged", "name another file in the URL"
    return Finding(subject, Severity.PROBLEM, "is a database of another application", reason, remedy)


def _journal(mode: str) -> Finding:
    if mode == _LOG:
        return ok("journal mode", _LOG)
    reason = f"readers and writers block each other, and each change waits for the disk twice; {_LEFT_OUT}"
    remedy = "open the file with astyqueue while no other process has it open; that switches it back to wal"
    return Finding("journal mode", Severity.WARNING, mode, reason, remedy)


def _synchronous(mode: str) -> Finding:
    if mode == "full":
        return ok("synchronous", "full: acknowledged changes survive a crash of the machine")
    reason = "the last changes may be lost when the machine (not the process) crashes; the file stays consistent"
    return note(
        "synchronous",
        mode,
        reason,
        remedy="remove ?synchronous=normal from the URL to wait for the disk at every change",
    )


def _log(size: int) -> Finding:
    fact = f"{_megabytes(size)} long"
    if size < _LONG_LOG:
        return ok("write-ahead log", fact)
    reason = "a process keeps a read transaction open, which prevents checkpoints; reads get slower as the log grows"
    remedy = "find the process ('fuser -v' on the file): often a sqlite3 shell in a transaction, or a backup that hangs"
    return Finding("write-ahead log", Severity.WARNING, fact, reason, remedy)


def _pages(connection: sqlite3.Connection, size: int) -> Finding:
    if size > _QUICKLY_CHECKED:
        remedy = "run 'PRAGMA quick_check' in the sqlite3 shell"
        return note(
            "pages of the file",
            f"not checked: the file has {_megabytes(size)}",
            "the check would take long",
            remedy=remedy,
        )
    answer = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if answer == "ok":
        return ok("pages of the file", "all are intact")
    return _damaged("pages of the file", answer)


def _damaged(subject: str, fact: str) -> Finding:
    reason = "the disk, or a program that wrote into the file, damaged it"
    remedy = (
        "stop every process that uses it and keep a copy; then restore a backup or try '.recover' in the sqlite3 shell"
    )
    return Finding(subject, Severity.PROBLEM, fact, reason, remedy)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    answer: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return answer


def _journal_mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _megabytes(count: int) -> str:
    return f"{count / _MEBIBYTE:.0f} MiB" if count >= _MEBIBYTE else f"{count // 1024} KiB"


def administered(location: Location) -> FileAdministration:
    """The administration of the file of a `sqlite://` URL."""
    return FileAdministration(file_of(location))
