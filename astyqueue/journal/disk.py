"""What a journal asks of a file system, as a port: tests replace it by one that loses, tears or refuses writes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
from pathlib import Path
from typing import Final, Protocol

from astyqueue.files import for_owner, make_folder, sync_names

#: The call that has a disk of macOS write what it has in its own memory; `fsync` does not there.
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
#: The advice to forget what of a file is in memory, on systems that have it.
_FORGET: Final[int | None] = getattr(os, "POSIX_FADV_DONTNEED", None)


def _sync(descriptor: int) -> None:
    """Write data and the size of a file, but not its times, which no reader needs; where a system lacks that, all."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(descriptor)


#: Errors of a disk without space, which may have some later.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


#: What a file loses at least where its disk goes bad: the system reads files in such blocks, or in larger ones.
_BLOCK: Final = 4096


#: Errors of a sync of a folder in which this user, or this file system, makes no names.
_UNSYNCABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS})


class DiskFile(Protocol):
    """An open file. Calls raise `OSError` as the system does."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on; fewer at the end of the file, and before a block that cannot be read."""
        ...

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data`; after an error any part of it may have been written."""
        ...

    def size(self) -> int:
        """The bytes of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to this size."""
        ...

    def sync(self) -> None:
        """Return when all that was written to this file, by any process, is on the disk."""
        ...

    def lock(self, *, exclusive: bool) -> bool:
        """Lock the file until it is closed; False if another open file has a lock that excludes this one."""
        ...

    def is_linked(self) -> bool:
        """Whether the file still has a name."""
        ...

    def close(self) -> None:
        """Close the file, which releases its lock."""
        ...


class Disk(Protocol):
    """The files of a folder. Calls raise `OSError` as the system does."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> DiskFile:
        """Open a file; with `create`, make it if it is missing."""
        ...

    def names(self, directory: Path) -> list[str]:
        """The names of the files in this folder."""
        ...

    def has_directory(self, directory: Path) -> bool:
        """Whether this folder is there."""
        ...

    def make_directory(self, directory: Path, *, private: bool = True) -> None:
        """Make the folder, and those above it, if they are missing; a `private` one is for its owner only."""
        ...

    def remove(self, path: Path) -> None:
        """Remove the name of a file, if it is there; its bytes stay until the last open file on it is closed."""
        ...

    def sync_directory(self, directory: Path) -> None:
        """Return when the names of this folder are on the disk."""
        ...


class LocalFile:
    """A file of this machine."""

    def __init__(self, descriptor: int) -> None:
        """Take over an open file descriptor."""
        self._descriptor = descriptor

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes, by one system call.

        After an error the system forgets what it has of the file in memory: what is read then, the disk can read.
        """
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError:
            if _FORGET is not None:
                with contextlib.suppress(OSError):
                    os.posix_fadvise(self._descriptor, 0, 0, _FORGET)
            raise

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data`, by one system call unless the system takes only a part of it."""
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            with memoryview(data) as view:
                written += os.pwrite(self._descriptor, view[written:], offset + written)

    def size(self) -> int:
        """The bytes of the file."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Cut the file to this size."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """`fdatasync`, where the system has it; `F_FULLFSYNC` on macOS."""
        _sync(self._descriptor)

    def lock(self, *, exclusive: bool) -> bool:
        """`flock`, which the system releases when the process ends, however it ends."""
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_linked(self) -> bool:
        """Whether the file still has a name."""
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """An iterator may be left half way: its file is closed when it is collected."""
        with contextlib.suppress(OSError, AttributeError):
            self.close()


def read_past_errors(file: DiskFile, offset: int, size: int) -> bytes:
    """Up to `size` bytes from `offset` on; fewer only at the end of the file. Blocks that cannot be read are zeros.

    A disk that does not read the start of the file either raises its OSError: as a whole it may come back.
    """
    parts: list[bytes] = []
    at, end = offset, offset + size
    while at < end:
        data = _read_if_possible(file, at, end)
        if data is None:  # one bad block may fail a large read as a whole, and all that the system reads with it
            file.read_at(0, 1)
            block = min(at - at % _BLOCK + _BLOCK, end)
            data = _read_if_possible(file, at, block)
            data = bytes(max(0, min(block, file.size()) - at)) if data is None else data
        if not data:
            break
        parts.append(data)
        at += len(data)
    return b"".join(parts)


def can_be_read(file: DiskFile, at: int, end: int) -> bool:
    """Whether the disk reads all blocks with these bytes of a file, as far as they are there."""
    while at < end:
        data = _read_if_possible(file, at, end)
        if not data:
            return data is not None
        at += len(data)
    return True


def _read_if_possible(file: DiskFile, at: int, end: int) -> bytes | None:
    """These bytes, or the first of them; None if the disk cannot read the first."""
    try:
        return file.read_at(at, end - at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


class LocalDisk:
    """The file systems of this machine. New files are readable by their owner only.

    What root makes belongs to the owner of the folder it is in.
    """

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> LocalFile:
        """Open a file; a link at its place is an error."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return LocalFile(for_owner(str(path), flags | os.O_CLOEXEC))

    def names(self, directory: Path) -> list[str]:
        """The names of the files in this folder."""
        return os.listdir(directory)  # noqa: PTH208 - names are needed, not paths, and readers list often

    def has_directory(self, directory: Path) -> bool:
        """Whether this folder is there."""
        return directory.is_dir()

    def make_directory(self, directory: Path, *, private: bool = True) -> None:
        """Make the folder; those above it, and one that is not `private`, are made as the umask says."""
        make_folder(directory, 0o700 if private else 0o777)

    def remove(self, path: Path) -> None:
        """Remove the name of a file."""
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """`fsync` of the folder."""
        sync_names(directory)


def make_durable_directory(disk: Disk, directory: Path) -> None:
    """Make a folder and those above it that are missing; their names are on the disk when it returns.

    So is the name of the last one that is there: a process may have been killed between making and syncing it.
    """
    folders = (directory, *directory.parents)
    missing = list(itertools.takewhile(lambda folder: not disk.has_directory(folder), folders))
    for folder in (*folders[len(missing) :][:1], *reversed(missing)):
        disk.make_directory(folder, private=folder == directory)
        if folder.parent != folder:
            _sync_if_possible(disk, folder.parent)


def _sync_if_possible(disk: Disk, directory: Path) -> None:
    """Sync the names of a folder, unless this user may not read it, or its file system has nothing to sync."""
    try:
        disk.sync_directory(directory)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise
