"""Writes files atomically, and readable by their owner only."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write the file atomically: a reader finds the old content or all of the new one, also after a crash.

    When it returns, a crash brings back the new one.

    Only the owner may read a new file, under any umask; an existing file keeps its permissions. The content is written
    to a new file beside it under an unpredictable name, so that no link planted by another user is followed.
    """
    try:
        descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    except OSError as error:  # it names the file that was to be made, which the user has not heard of
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            if (kept := _permissions(path)) is not None:
                os.fchmod(descriptor, kept)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
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
    os.close(descriptor)
    try:
        os.link(aside, place)
    except OSError:
        return
    finally:
        Path(aside).unlink(missing_ok=True)


def for_owner(path: str, flags: int) -> int:
    """An opener for `open`: only its owner may read a new file, and a link at this path is an error."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _permissions(path: Path) -> int | None:
    """The permissions of a file of this user; None if it is missing, another user's, or a link."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else None
