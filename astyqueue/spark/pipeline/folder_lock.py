"""The lock of a folder of tables, so that one process writes them at a time.

It is a lock of the operating system on a file in the folder. The system releases it when the process that holds it
ends, even if it is killed, so that no lock is ever left behind. The file itself stays.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from astyqueue.clock import Clock, SystemClock
from astyqueue.errors import AstyqueueError
from astyqueue.files import for_owner
from astyqueue.spark.pipeline.manifest import FOLDER_MODE
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: Between two tries to get a lock that another process holds.
_EVERY: Final = SECOND // 5


class FolderInUse(AstyqueueError):
    """Another process writes these tables; nothing was read or changed."""

    def __init__(self, folder: Path, holder: str) -> None:
        """Name the folder, and the holder as the lock file has it."""
        self.folder = folder
        self.holder = holder
        super().__init__(
            f"the tables in {folder} are being written by {holder or 'another process'}; nothing was changed. Run this "
            'again when that process has ended, wait for it (--wait 1h, Job(..., wait="1h")), or write another folder'
        )


@contextmanager
def locked(folder: Path, name: str, *, wait: int | None = 0, clock: Clock | None = None) -> Iterator[None]:
    """Hold the lock `name` of a folder during the block, against all other processes and threads.

    While another one holds it, this waits up to `wait` microseconds (None: without limit), then raises FolderInUse.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with open(folder / f"_{name}.lock", "a+", encoding="utf-8", opener=for_owner) as file:
        _acquire(file, folder, wait=wait, clock=clock or SystemClock())
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _acquire(file: IO[str], folder: Path, *, wait: int | None, clock: Clock) -> None:
    deadline = None if wait is None else clock.monotonic() + wait
    while not _try(file, folder):
        now = clock.monotonic()
        if deadline is not None and now >= deadline:
            file.seek(0)
            raise FolderInUse(folder, file.read())
        Wakeup(clock).wait(now + _EVERY if deadline is None else min(deadline, now + _EVERY))


def _try(file: IO[str], folder: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        message = f"{folder} is on a file system without file locks ({error.strerror}): keep it on another one"
        raise AstyqueueError(message) from error
    return True
