"""Durable cursors, and the pages that may go once all of them have passed.

A cursor's file says how far a named reader has come, and survives a torn write: it has two copies in different blocks.
A commit overwrites the older one and syncs it, so the other is whole whatever happens meanwhile.

Pages go from the oldest on and as a whole. The page that is written to stays, unless another one is begun for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from astyqueue.clock import Clock
from astyqueue.errors import Closed
from astyqueue.journal.disk import Disk, DiskFile
from astyqueue.journal.pages import Pages
from astyqueue.journal.records import Place, Position, checked_place
from astyqueue.journal.settings import Settings
from astyqueue.journal_errors import JournalFailed, JournalInUse
from astyqueue.structured_log import log_event
from astyqueue.units import NEVER

_MAGIC: Final = b"astyjcur"
_COPY: Final = Struct("<8sQQqQ")
_CHECKSUM: Final = Struct("<I")
#: The copies lie a block apart: the disk tears at most the one that is being written.
_BLOCK: Final = 4096
_log: Final = logging.getLogger("astyqueue.journal")


def cursor_path(directory: Path, prefix: str, name: str) -> Path:
    """The file of a cursor."""
    return directory / f"{prefix}.{name}.cursor"


class Cursor:
    """The position of one reader, which is the only one to commit it. Thread-safe.

    Everything behind it is read again after a restart: records are delivered at least once.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        *,
        name: str,
        before_commit: Callable[[int, int], None],
        after_commit: Callable[[], None],
    ) -> None:
        """Open or create it; JournalInUse if another reader has it.

        `before_commit(committed, next)` makes the records between these sequences durable.
        """
        self.name = name
        self._disk = disk
        self._path = path
        self._before_commit = before_commit
        self._after_commit = after_commit
        self._lock = threading.Lock()
        self._file: DiskFile | None = _locked(disk, path, name)
        try:
            self._make_room(self._file)
            self._generation, self._position = _latest(self._file, path)
        except BaseException:
            self._close()
            raise

    def _make_room(self, file: DiskFile) -> None:
        """Take both blocks now, so that a commit works on a full disk: it is what frees pages there."""
        with self._failing():
            if not file.size():
                file.write_at(0, _packed(0, None).ljust(_BLOCK, b"\0") + _packed(1, None))
                file.sync()
                self._disk.sync_directory(self._path.parent)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed or removed."""
        return self._file is None

    @property
    def position(self) -> Position | None:
        """The place of the last record that was committed; None before the first commit."""
        return self._position

    def commit(self, place: Place) -> None:
        """Note that this record and all before it were processed; a place before the committed one changes nothing.

        Durable when it returns. It syncs the records first, so a cursor never points behind what survives a crash.
        JournalFailed if the disk does not carry it out; then it may be called again.
        """
        position = _position(place, "a commit")
        with self._lock:
            if self._position is None or position.sequence > self._position.sequence:
                self._store(position)

    def rewind(self, place: Place | None = None) -> None:
        """Move to any place, also back; None is before the first record. Durable when it returns."""
        position = None if place is None else _position(place, "the place of a rewind")
        with self._lock:
            self._store(position)

    def _store(self, position: Position | None) -> None:
        file, generation = self._opened(), self._generation + 1
        with self._failing():
            if position is not None:
                self._before_commit(self._position.sequence if self._position else 0, position.sequence)
            file.write_at(generation % 2 * _BLOCK, _packed(generation, position))
            file.sync()
        self._generation, self._position = generation, position
        self._after_commit()

    def _opened(self) -> DiskFile:
        if self._file is None:
            message = f"cursor {self.name!r} was closed: open it again with journal.cursor({self.name!r})"
            raise Closed(message)
        return self._file

    def remove(self) -> None:
        """Delete the cursor, which then keeps no page from being reclaimed, and close it.

        Closed if it was closed: another reader may have the cursor of this name. JournalFailed if the disk does not
        carry it out; then open the cursor and remove it again.
        """
        with self._lock:
            self._opened()
            with self._failing(removal=True):
                self._disk.remove(self._path)
                self._close()  # also if the sync fails: a commit to a file without a name would be lost
                self._disk.sync_directory(self._path.parent)
        self._after_commit()

    @contextlib.contextmanager
    def _failing(self, *, removal: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalFailed(str(self._path), str(error), what=f"cursor {self.name!r}", removal=removal) from error

    def close(self) -> None:
        """Let another reader have it."""
        with self._lock:
            self._close()

    def abandon(self) -> None:
        """As `close`, in a forked child, where another thread of the parent may have locked this object for ever."""
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _position(place: object, what: str) -> Position:
    checked = checked_place(place, what)
    return Position(checked.sequence, checked.arrived_us)


def _locked(disk: Disk, path: Path, name: str) -> DiskFile:
    """The open file of a cursor, locked; JournalInUse if another reader has it."""
    while True:
        file = disk.open(path, write=True, create=True)
        if not file.lock(exclusive=True):
            file.close()
            what = f"cursor {name!r}"
            raise JournalInUse(what, str(path), "another reader")
        if file.is_linked():
            return file
        file.close()  # the cursor was removed meanwhile: commits would vanish with this file


def _packed(generation: int, position: Position | None) -> bytes:
    sequence, arrived = position or (0, 0)
    copy = _COPY.pack(_MAGIC, generation, sequence, arrived, os.getpid())
    return copy + _CHECKSUM.pack(crc32(copy))


def _latest(file: DiskFile, path: Path) -> tuple[int, Position | None]:
    """The generation and the position of the newer readable copy; a line is logged if there is none."""
    generation, position = _newer_copy(file)
    if not generation and file.size():
        effect = "its reader starts from the first record"
        log_event(_log, logging.WARNING, "journal_cursor_unreadable", file=path, effect=effect)
    return generation, position


def _newer_copy(file: DiskFile) -> tuple[int, Position | None]:
    found = [(0, 0, 0)]
    for at in (0, _BLOCK):
        data = file.read_at(at, _COPY.size + _CHECKSUM.size)
        copy, checksum = data[: _COPY.size], data[_COPY.size :]
        if len(checksum) == _CHECKSUM.size and _CHECKSUM.unpack(checksum)[0] == crc32(copy):
            magic, generation, sequence, arrived, _ = _COPY.unpack(copy)
            if magic == _MAGIC:
                found.append((generation, sequence, arrived))
    generation, sequence, arrived = max(found)
    return generation, Position(sequence, arrived) if sequence else None


def stored_cursors(disk: Disk, directory: Path, prefix: str) -> Iterator[tuple[str, Position | None]]:
    """Every cursor of a journal, also those that other processes have open.

    One that is damaged, or that this user may not read, has no position.
    """
    for name, path in _files(disk, directory, prefix):
        try:
            yield name, _stored(disk, path).position
        except FileNotFoundError:
            continue
        except OSError:
            yield name, None


def unreadable_cursors(disk: Disk, directory: Path, prefix: str) -> dict[str, OSError | None]:
    """The cursors that cannot be read, by name: the error of the system, or None where both copies are damaged."""
    found: dict[str, OSError | None] = {}
    for name, path in _files(disk, directory, prefix):
        try:
            if _stored(disk, path).is_damaged:
                found[name] = None
        except FileNotFoundError:
            continue
        except OSError as error:
            found[name] = error
    return found


class _Stored(NamedTuple):
    """What the file of a cursor has: its position, if any, and whether neither copy can be read."""

    position: Position | None
    is_damaged: bool


def _stored(disk: Disk, path: Path) -> _Stored:
    with contextlib.closing(disk.open(path)) as file:
        generation, position = _newer_copy(file)
        return _Stored(position, not generation and bool(file.size()))


def _files(disk: Disk, directory: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """The name and the file of each cursor."""
    pattern = re.compile(re.escape(prefix) + r"\.([A-Za-z0-9_-]+)\.cursor")
    for name in map(pattern.fullmatch, sorted(disk.names(directory))):
        if name is not None:
            yield name[1], directory / name[0]


class Retention:
    """Removes pages of one journal. Its caller has the lock of the writer."""

    def __init__(self, pages: Pages, settings: Settings, clock: Clock) -> None:
        """Remove pages as these settings say, with ages by this clock."""
        self.dropped_records = 0
        self._hindrance = ""
        self._logged: Final[set[str]] = set()
        self._pages: Final = pages
        self._settings: Final = settings
        self._clock: Final = clock

    def is_beyond_cap(self, more: int, page_size: int) -> bool:
        """Whether `more` further pages exceed the cap; each page counts as a full one."""
        cap = self._settings.cap
        return cap is not None and (len(self._pages.numbers) + more) * page_size > cap

    def reclaim(self, active: int, *, ignore_cursors: bool = False, renew: Callable[[], None] | None = None) -> int:
        """Remove the pages that may go, and return how many.

        With `retain`, pages whose records are all older; if there are cursors, only pages that all of them have passed;
        without both, none. The active page only if `renew` is given, which begins another one.
        What the disk does not show or remove stays, and is logged once; only errors of `renew` are raised.
        """
        self._hindrance = ""
        passed = None if ignore_cursors else self._slowest()
        retain = self._settings.retain_us
        if retain is None and passed is None:
            return 0
        oldest = NEVER if retain is None else self._clock.now() - retain
        removed = 0
        for number in self._pages.numbers:
            is_kept = number >= active and renew is None
            if is_kept or not self._may_go(number, oldest, NEVER if passed is None else passed):
                break
            if number >= active and renew is not None:
                renew()
            if not self._is_removed(number):
                break
            removed += 1
        return removed

    def _is_removed(self, number: int) -> bool:
        with self._noting(f"page {number} cannot be removed"):
            if self._pages.remove_unless_read(number):
                return True
            self._hindrance = f", and a reader inside page {number} keeps it: close that reader"
        return False

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Note an error of the disk as what keeps pages."""
        try:
            yield
        except OSError as error:
            self._note(f"{what}: {error}")

    def _note(self, reason: str) -> None:
        self._hindrance = f", and {reason}"
        if reason not in self._logged:
            self._logged.add(reason)
            journal = self._pages.directory / self._pages.prefix
            log_event(_log, logging.WARNING, "journal_pages_not_reclaimed", journal=journal, reason=reason)

    def with_hindrance(self, full: Exception) -> str:
        """Why there is no room, and what kept pages from the last `reclaim`: a reader inside, or the disk."""
        return f"{full}{self._hindrance}"

    def drop_oldest(self, active: int) -> bool:
        """Remove the oldest page, though it may not have been read.

        False if it is the active or the only one, or the disk does not remove it.

        The last page says which sequences and moments were given. A reader inside the page reads on to its end: the
        bytes stay until that reader leaves the page.
        """
        first, *others = self._pages.numbers or (active,)
        if first >= active or not others:
            return False
        with self._noting(f"page {first} cannot be removed"):
            header, following = self._pages.header(first), self._pages.header(others[0])
            self._pages.remove(first)
            if header is not None and following is not None:
                self.dropped_records += following.first_sequence - header.first_sequence
            return True
        return False

    def _slowest(self) -> int | None:
        """The sequence that every cursor has passed; None without cursors. One that cannot be read has passed none."""
        passed: list[int] = []
        with self._noting("the folder cannot be read"):
            for name, path in _files(self._pages.disk, self._pages.directory, self._pages.prefix):
                with contextlib.suppress(FileNotFoundError):
                    passed.append(self._passed(name, path))
            return min(passed, default=None)
        return 0

    def _passed(self, name: str, path: Path) -> int:
        """The last record that a cursor has passed, 0 if it cannot be read; FileNotFoundError if it was removed."""
        try:
            stored = _stored(self._pages.disk, path)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._note(f"cursor {name!r} cannot be read: {error}")
            return 0
        if stored.is_damaged:
            self._note(f"cursor {name!r} cannot be read: both copies are damaged")
        return stored.position.sequence if stored.position else 0

    def _may_go(self, number: int, oldest: int, passed: int) -> bool:
        with self._noting(f"page {number} cannot be read"):
            return self._is_passed(number, oldest, passed)
        return False

    def _is_passed(self, number: int, oldest: int, passed: int) -> bool:
        index = self._pages.index(number)
        if index is not None:
            return index.last_arrived < oldest and index.last_sequence <= passed
        later = (self._pages.header(other) for other in self._pages.numbers if other > number)
        following = next((header for header in later if header is not None), None)
        return following is not None and following.first_arrival < oldest and following.first_sequence <= passed
