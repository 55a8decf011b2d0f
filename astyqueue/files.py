"""Files that this process writes: made for their owner alone, and replaced whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write the file: whoever reads it meanwhile, or after a crash, finds what was there before or all of this.

    Nobody but its owner may read a file that is new, whatever the umask; one that was there keeps its permissions. The content is
    written to a new file beside it, under a name that nobody can foresee, so that no link that another user put there is followed.
    """
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
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


def make_file(path: Path) -> None:
    """Make an empty file that only its owner may read and write, unless there is a file of this name already.

    No file that others may have open already is opened and closed here: closing one lets go of all locks that this process has on it.
    Where the file system has no hard links, nothing is made.
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
    """An opener for `open`: a file that is new may be read by its owner alone, and a link at this path is not followed but an error."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _permissions(path: Path) -> int | None:
    """Those of a file of this user; none if there is no file, or another user's, or a link."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else None
