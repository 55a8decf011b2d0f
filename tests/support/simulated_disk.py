"""A disk in memory that remembers every change, so that a test can ask what a crash after any byte of it leaves.

`crashes(disk)` yields the disk as each possible crash leaves it: killed in the middle of a write, with and without what
was not synced before, and with single writes lost although later ones reached the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

ROOT = Path("/")


@dataclass(eq=False)
class Node:
    """A file: what processes see, and what is on the disk."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    links: int = 1
    shared: int = 0
    exclusive: bool = False


@dataclass(frozen=True)
class Change:
    """A change of the disk: `kind` is a method of `SimulatedDisk` that applies it, or "acknowledged"."""

    kind: str
    path: Path
    offset: int = 0
    data: bytes = b""
    number: int = 0


class OpenedFile:
    def __init__(self, disk: SimulatedDisk, path: Path, node: Node) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._lock = ""

    def read_at(self, offset: int, size: int) -> bytes:
        return bytes(self._node.seen[offset : offset + size])

    def write_at(self, offset: int, data: bytes | bytearray) -> None:
        self._disk.before_write()
        fitting = self._disk.fitting(self._node, offset, len(data))
        self._disk.apply(Change("write", self._path, offset, bytes(data[:fitting])), self._node)
        if fitting < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def size(self) -> int:
        return len(self._node.seen)

    def truncate(self, size: int) -> None:
        self._disk.before_truncate()
        self._disk.apply(Change("truncate", self._path, size), self._node)

    def sync(self) -> None:
        self._disk.syncs += 1
        self._disk.before_sync()
        self._disk.check_sync()
        self._disk.apply(Change("sync", self._path), self._node)

    def lock(self, *, exclusive: bool) -> bool:
        if self._node.exclusive or (exclusive and self._node.shared):
            return False
        self._lock = "exclusive" if exclusive else "shared"
        self._node.exclusive = exclusive
        self._node.shared += not exclusive
        return True

    def is_linked(self) -> bool:
        return self._node.links > 0

    def close(self) -> None:
        if self._lock == "exclusive":
            self._node.exclusive = False
        elif self._lock:
            self._node.shared -= 1
        self._lock = ""


class SimulatedDisk:
    """A `Disk`. `room` is the number of bytes that may still be written, None without bound."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.origin: SimulatedDisk | None = None
        self.names_seen: dict[Path, Node] = {}
        self.names_durable: dict[Path, Node] = {}
        self.folders_seen: set[Path] = {ROOT}
        self.folders_durable: set[Path] = {ROOT}
        self.room: int | None = None
        self.syncs = 0
        self.writes = 0
        self.sync_error: OSError | None = None
        self.before_sync: Callable[[], object] = lambda: None
        self.before_write: Callable[[], object] = lambda: None
        self.before_truncate: Callable[[], object] = lambda: None

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OpenedFile:
        del write
        if path not in self.names_seen:
            if not create or path.parent not in self.folders_seen:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.apply(Change("create", path))
        return OpenedFile(self, path, self.names_seen[path])

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in self.names_seen if path.parent == directory]

    def has_directory(self, directory: Path) -> bool:
        return directory in self.folders_seen

    def make_directory(self, directory: Path, *, private: bool = True) -> None:
        del private
        for folder in (*reversed(directory.parents), directory):
            if folder not in self.folders_seen:
                self.apply(Change("make_folder", folder))

    def remove(self, path: Path) -> None:
        if path in self.names_seen:
            self.apply(Change("remove", path))

    def sync_directory(self, directory: Path) -> None:
        self.check_sync()
        self.apply(Change("sync_names", directory))

    def check_sync(self) -> None:
        if self.sync_error is not None:
            raise self.sync_error

    def acknowledged(self, sequence: int) -> None:
        """Note that this record and all before it must survive from now on."""
        self.apply(Change("acknowledged", Path(), number=sequence))

    def fitting(self, node: Node, offset: int, size: int) -> int:
        if self.room is None:
            return size
        grown = max(0, offset + size - len(node.seen))
        fitting = size - max(0, grown - self.room)
        self.room -= min(grown, self.room)
        return fitting

    def apply(self, change: Change, node: Node | None = None) -> None:
        """Carry out a change, and remember it."""
        self.changes.append(change)
        path = change.path
        node = node or self.names_seen.get(path)
        if change.kind == "create":
            self.names_seen[path] = Node()
        elif change.kind == "remove":
            removed = self.names_seen.pop(path)
            removed.links -= 1
            if self.room is not None:
                self.room += len(removed.seen)
        elif change.kind == "make_folder":
            self.folders_seen.add(path)
        elif change.kind == "sync_names":
            self._sync_names(path)
        elif node is not None:
            self._apply_to_file(change, node)

    def _sync_names(self, folder: Path) -> None:
        others = {path: node for path, node in self.names_durable.items() if path.parent != folder}
        self.names_durable = others | {path: node for path, node in self.names_seen.items() if path.parent == folder}
        self.folders_durable |= {path for path in self.folders_seen if path.parent == folder}

    def _apply_to_file(self, change: Change, node: Node) -> None:
        if change.kind == "write":
            self.writes += 1
            put(node.seen, change.offset, change.data)
        elif change.kind == "truncate":
            if self.room is not None:
                self.room += max(0, len(node.seen) - change.offset)
            del node.seen[change.offset :]
        elif change.kind == "sync":
            node.durable = bytes(node.seen)

    def replayed(self, changes: list[Change]) -> SimulatedDisk:
        """A new disk with these changes applied to what this one was at first."""
        disk = self.origin.rebooted(keep_unsynced=True) if self.origin else SimulatedDisk()
        for change in changes:
            disk.apply(change)
        return disk

    def rebooted(self, *, keep_unsynced: bool) -> SimulatedDisk:
        """The disk after its machine died, or after its process died, which costs nothing that was written."""
        disk = SimulatedDisk()
        names = self.names_seen if keep_unsynced else self.names_durable
        folders = self.folders_seen if keep_unsynced else self.folders_durable
        disk.folders_seen = {folder for folder in folders if folders.issuperset(folder.parents)}
        disk.folders_durable = set(disk.folders_seen)
        for path, node in names.items():
            if path.parent not in disk.folders_seen:
                continue
            content = bytes(node.seen) if keep_unsynced else node.durable
            disk.names_seen[path] = disk.names_durable[path] = Node(bytearray(content), content)
        return disk

    def copied(self) -> SimulatedDisk:
        """A disk with what is on this one, whose changes are remembered from now on."""
        disk = self.rebooted(keep_unsynced=True)
        disk.origin = self.rebooted(keep_unsynced=True)
        return disk

    def flip_bit(self, path: Path, offset: int, bit: int = 0) -> None:
        self.names_seen[path].seen[offset] ^= 1 << bit


def put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass(frozen=True)
class Crash:
    """A disk after a crash, and the last record that had been acknowledged before it."""

    what: str
    disk: SimulatedDisk
    acknowledged: int


def crashes(disk: SimulatedDisk, *, first: int = 0, step: int = 1) -> Iterator[Crash]:
    """Every crash there can be from change `first` on: at each `step`th byte of a write, and between two changes."""
    changes = disk.changes
    before, acknowledged = disk.replayed(changes[:first]), 0
    for count, change in enumerate(changes):
        acknowledged = max(acknowledged, change.number)
        if count < first:
            continue
        yield Crash(f"machine before {count}", before.rebooted(keep_unsynced=False), acknowledged)
        if change.kind == "write":
            for size, keep_unsynced in product(range(0, len(change.data) + 1, step), (False, True)):
                torn = _torn(before, change, size, keep_unsynced=keep_unsynced)
                what = f"{'process' if keep_unsynced else 'machine'} at byte {size} of change {count}"
                yield Crash(what, torn, acknowledged)
            yield _lost(disk, count)
        before.apply(change)


def _torn(before: SimulatedDisk, change: Change, size: int, *, keep_unsynced: bool) -> SimulatedDisk:
    """This much of a write reached the disk."""
    crashed = before.rebooted(keep_unsynced=keep_unsynced)
    if change.path in crashed.names_seen:
        put(crashed.names_seen[change.path].seen, change.offset, change.data[:size])
    return crashed


def _lost(disk: SimulatedDisk, lost: int) -> Crash:
    """This write is lost, while the writes after it and before the next sync of its file reached the disk."""
    changes = disk.changes
    syncs = (
        at for at in range(lost, len(changes)) if changes[at].kind == "sync" and changes[at].path == changes[lost].path
    )
    until = next(syncs, len(changes))
    acknowledged = max((change.number for change in changes[:until]), default=0)
    kept = disk.replayed([*changes[:lost], *changes[lost + 1 : until]])
    return Crash(f"change {lost} lost", kept.rebooted(keep_unsynced=True), acknowledged)
