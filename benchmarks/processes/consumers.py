"""Processes that receive: `python -m benchmarks.processes.consumers drain URL DESCRIPTOR LOCK`, or `... hold URL`.

Several drain the same rows: each prints that it is ready, begins at a line of input, writes a byte to the descriptor
for each message, and at the end prints what it did, as JSON. One that holds never settles: it prints when it is ready
and when it got which message, and waits to be killed.

LOCK is the row lock: "guard", "columns", or "files:<directory>", a manager that locks files of a directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from threading import Event
from typing import Final

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.errors import BadSetting
from astyqueue.queue.row_sharing.external_lock import LockManager
from benchmarks.target import CLOCK, QUEUE
from benchmarks.throughput import number_of

_FILES: Final = "files:"


def drain(url: str, descriptor: int, lock: str) -> None:
    """Handle messages under this row lock until the input ends."""
    moments: list[int] = []

    def handle(delivery: Delivery) -> None:
        moments.append(int(CLOCK.monotonic()))
        os.write(descriptor, b".")
        del delivery

    with MessageQueue.builder().store(url).name(QUEUE).row_lock(lock_of(lock)).build() as queue:
        dispatcher = Dispatcher.builder().queue(queue).handler(handle).build()
        print("ready", flush=True)
        sys.stdin.readline()
        with dispatcher:
            sys.stdin.read()
        stats = queue.stats
    values = {
        "handled": len(moments),
        "refused": stats.refused_commits,
        "busy": stats.busy_rows,
        "first": min(moments, default=0),
        "last": max(moments, default=0),
    }
    print(json.dumps(values))


def hold(url: str) -> None:
    """Handle messages, and never finish."""
    printed_ready = Event()

    def handle(delivery: Delivery) -> None:
        at = CLOCK.now()
        printed_ready.wait()
        print(json.dumps({"number": number_of(delivery), "at": at}), flush=True)
        sys.stdin.read()

    with (
        MessageQueue.builder().store(url).name(QUEUE).build() as queue,
        Dispatcher.builder().queue(queue).handler(handle, threads=1).build(),
    ):
        print(json.dumps({"ready": CLOCK.now()}), flush=True)
        printed_ready.set()
        sys.stdin.read()


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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["drain", url, descriptor, lock]:
            drain(url, int(descriptor), lock)
        case ["hold", url]:
            hold(url)
        case _:
            sys.exit(__doc__)
