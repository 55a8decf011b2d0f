"""Row locks by name, as options of benchmarks: the guard, columns, or a manager that locks files of a directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from astyqueue.errors import BadSetting
from astyqueue.queue.rows.external_lock import LockManager

_FILES: Final = "files:"


class FileLocks:
    """A lock manager for processes of one machine: a file for each row, locked by the system.

    The system unlocks a file when the process that locked it ends.
    """

    def __init__(self, directory: str) -> None:
        """Files are made here as they are needed."""
        self._directory = Path(directory)
        self._held: dict[str, int] = {}

    def acquire(self, row: str) -> bool:
        """Lock the row's file, or return False at once if another process has it."""
        file = os.open(self._directory / f"{row.replace(':', '-')}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._held[row] = file
        return True

    def release(self, row: str) -> None:
        """Unlock it; closing a file does that."""
        os.close(self._held.pop(row))


def lock_of(written: str) -> str | LockManager:
    """What is written "guard", "columns" or "files:<directory>"."""
    if written.startswith(_FILES):
        return FileLocks(written.removeprefix(_FILES))
    if written not in ("guard", "columns"):
        message = f"there is no lock {written!r}: guard, columns or {_FILES}<directory>"
        raise BadSetting(message)
    return written


def files_in(directory: str) -> str:
    """How a manager of files in this directory is written."""
    return f"{_FILES}{directory}"
