"""Writes files atomically, and readable by their owner only.

What root makes belongs to the owner of the folder it is in, such as the user of a service, who could not open it
otherwise.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write the file atomically: a reader finds the old content or all of the new one, also after a crash.

    If it is to be `durable`, a crash brings back the new one once this has returned. Else this does not wait until the
    disk has it, which may take seconds, and after a failure of power the file may be empty.

    Only the owner may read a new file, under any umask; an existing file keeps its permissions, and its owner if root
    writes it, except that a file of another user in a folder that all may change is replaced by a new one. The content
    is written to a new file beside it under an unpredictable name, so that no link planted by another user is followed.
    """
    try:
        descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    except OSError as error:  # it names the file that was to be made, which the user has not heard of
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(descriptor)
            _take_over(descriptor, path)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    if durable:
        with contextlib.suppress(PermissionError):  # in a folder that this user may change and not read
            sync_names(path.parent)


def may_be_replaced(path: Path) -> bool:
    """Whether there is a file at this path or nothing, and no link, folder, pipe or device, which would be lost."""
    return not os.path.lexists(path) or stat.S_ISREG(path.lstat().st_mode)


def sync_names(folder: Path) -> None:
    """Return when the names in this folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_file(path: Path) -> None:
    """Make an empty file that only its owner may read and write, unless there is a file of this name.

    An existing file is not opened, because closing it would release all locks that this process has on it. On a file
    system without hard links no file is made.
    """
    place = path.resolve()
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb"):
            _give(descriptor, place.parent.stat())
        os.link(aside, place)
    except OSError:
        return
    finally:
        Path(aside).unlink(missing_ok=True)


def for_owner(path: str, flags: int) -> int:
    """An opener for `open`: only its owner may read a new file, and a link at this path is an error."""
    flags |= os.O_NOFOLLOW
    if os.geteuid() == 0 and flags & os.O_CREAT:
        with contextlib.suppress(OSError):  # such as that there is a file: it is opened, and keeps its owner
            return _made_by_root(path, flags | os.O_EXCL)
    return os.open(path, flags, 0o600)


def _made_by_root(path: str, flags: int) -> int:
    folder, name = os.path.split(path)
    directory = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=directory)
        _give(descriptor, os.fstat(directory))
    finally:
        os.close(directory)
    return descriptor


def make_folder(path: Path, mode: int) -> None:
    """Make a folder, unless it is there; those above it that are missing are made as the umask says."""
    try:
        path.mkdir(mode, parents=True)
    except OSError:  # not only FileExistsError: a system may look first at whether this user can make names there
        if not path.is_dir():
            raise
        return
    if os.geteuid() == 0:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _give(descriptor, path.parent.stat())
        finally:
            os.close(descriptor)


def _take_over(descriptor: int, path: Path) -> None:
    """Give a new file what it takes over from the one that it replaces."""
    user, folder = os.geteuid(), path.parent.stat()
    try:
        found = path.lstat()
    except FileNotFoundError:
        found = folder
    # In a folder such as /tmp another user may have left it there, to get what is written.
    is_kept = found.st_uid == user or (user == 0 and not folder.st_mode & stat.S_IWOTH)
    if not (stat.S_ISREG(found.st_mode) and is_kept):
        _give(descriptor, folder)
        return
    _give(descriptor, found)
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode))


def _give(descriptor: int, other: os.stat_result) -> None:
    """As root, have what was made belong to the user and the group of another file or folder, unless that is root's.

    It stays root's where the file system, or the container, does not let root do that.
    """
    if os.geteuid() == 0 and other.st_uid != 0:
        with contextlib.suppress(OSError):
            os.fchown(descriptor, other.st_uid, other.st_gid)
