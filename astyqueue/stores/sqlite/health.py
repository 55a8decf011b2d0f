"""Whether a database file is well: its format, its log, its disk. Nothing here changes the file, or makes it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from typing import Final, Self

from astyqueue.errors import WrongSchema
from astyqueue.findings import Finding, Severity, note, ok, worst
from astyqueue.stores.location import Location
from astyqueue.stores.sqlite import file_of, mounts
from astyqueue.stores.sqlite.failures import failure
from astyqueue.stores.sqlite.file import APPLICATION_ID, SCHEMA, DatabaseFile

_MEBIBYTE: Final = 1 << 20
#: SQLite writes its log back once it has 4 MiB or so; one that is this long is kept from it.
_LONG_LOG: Final = 64 * _MEBIBYTE
#: Room for the file to grow by a half, and never less than this.
_LITTLE_ROOM: Final = 512 * _MEBIBYTE
#: Looking through a larger file would take longer than somebody waits.
_QUICKLY_CHECKED: Final = 1024 * _MEBIBYTE


class FileHealth:
    """Looks after one file, as `Administration` says."""

    def __init__(self, file: DatabaseFile) -> None:
        """Nothing is opened yet."""
        self._file = file

    def statements(self) -> list[str]:
        """None: the file makes itself."""
        return []

    def migrate(self) -> list[str]:
        """Nothing is done: a store makes its file when it is opened; one that cannot be used raises."""
        (format_,) = self.verify()
        if format_.severity is Severity.PROBLEM:
            message = f"{self._file.path} {format_.fact}; {format_.remedy}"
            raise WrongSchema(message)
        return [f"nothing to do: {self._file.path} {format_.fact}"]

    def verify(self) -> list[Finding]:
        """Whether the file is one of astyqueue's, of a format that this one knows."""
        subject = f"file {self._file.path}"
        if not self._file.path.exists():
            return [note(subject, f"is not there; it is made, in format {SCHEMA}, when a store is opened on it", "nothing was sent yet")]
        with self._looking() as connection:
            format_ = _format(subject, _number(connection, "application_id"), _number(connection, "user_version"))
            differs = "" if format_.severity is Severity.PROBLEM else self._file.difference(connection)
        if differs:
            reason = "it was changed, or made to look like one of astyqueue's; no store is opened on it"
            return [Finding(subject, Severity.PROBLEM, differs, reason, "restore a backup, or name another file in the URL")]
        return [format_]

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:  # noqa: ARG002 - a row in a file needs no rest
        """As `verify`, and the log, the disk and the pages of the file."""
        found = self.verify()
        found.append(mounts.finding(self._file.path, mounts.mounted()))
        found.extend(self._readers())
        if not self._file.path.exists() or worst(found) is Severity.PROBLEM:
            return found
        size = self._file.path.stat().st_size
        log = self._file.path.with_name(self._file.path.name + "-wal")
        with self._looking() as connection:
            found += [
                _journal(str(connection.execute("PRAGMA journal_mode").fetchone()[0])),
                _synchronous(self._file.synchronous),
                _log(log.stat().st_size if log.exists() else 0),
                room(shutil.disk_usage(self._file.path).free, size),
                _pages(connection, size),
            ]
        return found

    def _readers(self) -> Iterator[Finding]:
        """Whether every user of this machine may read the file."""
        if self._file.path.exists() and (mode := stat.S_IMODE(self._file.path.stat().st_mode)) & stat.S_IROTH:
            reason = "all users of this machine can read its messages, unless a folder above keeps them out"
            yield note("mode of the file", f"{mode:04o}", reason, remedy="chmod o-rwx it, and its -wal and -shm files")

    def ready(self) -> bool:
        """Whether a store can be opened here and has been before: looking must not make a file."""
        return self._file.path.exists() and worst(self.verify()) < Severity.PROBLEM

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""

    @contextlib.contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(self._file.opened("ro")) as connection:
                yield connection
        except sqlite3.Error as error:
            raise failure(error, self._file.path) from error


def room(free: int, size: int) -> Finding:
    """Whether the disk has room for what comes; both in bytes."""
    fact = f"{_megabytes(free)} free, and the file has {_megabytes(size)}"
    if free >= max(_LITTLE_ROOM, size // 2):
        return ok("room on the disk", fact)
    reason = "when it is full nothing can be sent, claimed or settled any more (StoreFull); what is there stays"
    remedy = "make room; after purging dead letters or draining a queue, 'VACUUM' of the sqlite3 shell gives back what is unused"
    return Finding("room on the disk", Severity.WARNING, fact, reason, remedy)


def _format(subject: str, application: int, version: int) -> Finding:
    if application == APPLICATION_ID and version < SCHEMA:
        return ok(subject, f"has format {version}, and is given what {SCHEMA} has more when a store is opened on it")
    if application == APPLICATION_ID and version == SCHEMA:
        return ok(subject, f"has format {version}, the newest")
    if application == APPLICATION_ID:
        reason, remedy = "a newer astyqueue made it", "upgrade this process, or use another file"
        return Finding(subject, Severity.PROBLEM, f"has format {version}, and this astyqueue knows {SCHEMA}", reason, remedy)
    reason, remedy = "it was left as it is", "name another file in the URL"
    return Finding(subject, Severity.PROBLEM, "is a database of another application", reason, remedy)


def _journal(mode: str) -> Finding:
    if mode == "wal":
        return ok("journal mode", "wal")
    reason = "readers and writers wait for each other, and each change takes two waits for the disk"
    remedy = "open the file with astyqueue once while nobody else has it open; it goes back to wal by itself"
    return Finding("journal mode", Severity.WARNING, mode, reason, remedy)


def _synchronous(mode: str) -> Finding:
    if mode == "full":
        return ok("synchronous", "full: what was acknowledged survives the machine")
    reason = "the last changes may be lost when the machine (not the process) dies; the file stays whole"
    return note("synchronous", mode, reason, remedy="leave ?synchronous=normal out of the URL to wait for the disk at every change")


def _log(size: int) -> Finding:
    fact = f"{_megabytes(size)} not written back yet"
    if size < _LONG_LOG:
        return ok("write-ahead log", fact)
    reason = "somebody has read the file for long without an end, so that it cannot be written back; reads get slower as it grows"
    remedy = "see who has it open ('fuser -v' on the file): often a sqlite3 shell in a transaction, or a backup that hangs"
    return Finding("write-ahead log", Severity.WARNING, fact, reason, remedy)


def _pages(connection: sqlite3.Connection, size: int) -> Finding:
    if size > _QUICKLY_CHECKED:
        remedy = "'PRAGMA quick_check' of the sqlite3 shell does it"
        return note("pages of the file", f"not looked through: it has {_megabytes(size)}", "that would take long", remedy=remedy)
    told = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if told == "ok":
        return ok("pages of the file", "all of them can be read")
    remedy = "stop every process that uses it and keep a copy; then restore a backup or try '.recover' of the sqlite3 shell"
    return Finding(
        "pages of the file", Severity.PROBLEM, told, "the file is damaged, by its disk or by a program that wrote into it", remedy
    )


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    answer: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return answer


def _megabytes(count: int) -> str:
    return f"{count / _MEBIBYTE:.0f} MiB" if count >= _MEBIBYTE else f"{count // 1024} KiB"


def administered(location: Location) -> FileHealth:
    """The file of a `sqlite://` URL."""
    return FileHealth(file_of(location))
