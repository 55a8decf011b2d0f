"""Durable cursors: how far a named reader has come, in a file of its own that survives a torn write.

The file has two slots in different blocks. A commit overwrites the older one and syncs it, so the other is whole
whatever happens meanwhile.
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
from typing import Final
from zlib import crc32

from astyqueue.errors import Closed, JournalInUse
from astyqueue.journal.disk import Disk, DiskFile
from astyqueue.journal.records import Place, Position
from astyqueue.printable import facts_line

_MAGIC: Final = b"astyjcur"
_SLOT: Final = Struct("<8sQQqQ")
_CHECKSUM: Final = Struct("<I")
#: Slots lie a block apart: the disk tears at most the one that is being written.
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
        self._file: DiskFile | None = disk.open(path, write=True, create=True)
        if not self._file.lock(exclusive=True):
            self._file.close()
            what = f"cursor {name!r}"
            raise JournalInUse(what, str(path), "another reader")
        if not self._file.size():
            # Both blocks are taken now, so that a commit works on a full disk: it is what frees pages there.
            self._file.write_at(0, _packed(0, None).ljust(_BLOCK, b"\0") + _packed(1, None))
            self._file.sync()
            disk.sync_directory(path.parent)
        self._generation, self._position = _latest(self._file, path)

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
        """
        with self._lock:
            if self._position is None or place.sequence > self._position.sequence:
                self._store(Position(place.sequence, place.arrived_us))

    def rewind(self, place: Place | None = None) -> None:
        """Move to any place, also back; None is before the first record. Durable when it returns."""
        with self._lock:
            self._store(None if place is None else Position(place.sequence, place.arrived_us))

    def _store(self, position: Position | None) -> None:
        if self._file is None:
            message = f"cursor {self.name!r} was closed: open it again with journal.cursor({self.name!r})"
            raise Closed(message)
        if position is not None:
            self._before_commit(self._position.sequence if self._position else 0, position.sequence)
        generation = self._generation + 1
        self._file.write_at(generation % 2 * _BLOCK, _packed(generation, position))
        self._file.sync()
        self._generation, self._position = generation, position
        self._after_commit()

    def remove(self) -> None:
        """Delete the cursor, which then keeps no page from being reclaimed."""
        with self._lock:
            self._disk.remove(self._path)
            self._disk.sync_directory(self._path.parent)
            self._close()
        self._after_commit()

    def close(self) -> None:
        """Let another reader have it."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _packed(generation: int, position: Position | None) -> bytes:
    sequence, arrived = position or (0, 0)
    slot = _SLOT.pack(_MAGIC, generation, sequence, arrived, os.getpid())
    return slot + _CHECKSUM.pack(crc32(slot))


def _latest(file: DiskFile, path: Path) -> tuple[int, Position | None]:
    """The generation and the position of the newer readable slot."""
    found = [(0, 0, 0)]
    for at in (0, _BLOCK):
        data = file.read_at(at, _SLOT.size + _CHECKSUM.size)
        slot, checksum = data[: _SLOT.size], data[_SLOT.size :]
        if len(checksum) == _CHECKSUM.size and _CHECKSUM.unpack(checksum)[0] == crc32(slot):
            magic, generation, sequence, arrived, _ = _SLOT.unpack(slot)
            if magic == _MAGIC:
                found.append((generation, sequence, arrived))
    generation, sequence, arrived = max(found)
    if not generation and file.size():
        facts = {"file": path, "effect": "its reader starts from the first record"}
        _log.warning(facts_line("journal cursor unreadable", facts))
    return generation, Position(sequence, arrived) if sequence else None


def stored_cursors(disk: Disk, directory: Path, prefix: str) -> Iterator[tuple[str, Position | None]]:
    """Every cursor of a journal, also those that other processes have open."""
    pattern = re.compile(re.escape(prefix) + r"\.([A-Za-z0-9_-]+)\.cursor")
    for name in map(pattern.fullmatch, sorted(disk.names(directory))):
        if name is not None:
            path = directory / name[0]
            with contextlib.suppress(FileNotFoundError), contextlib.closing(disk.open(path)) as file:
                yield name[1], _latest(file, path)[1]
