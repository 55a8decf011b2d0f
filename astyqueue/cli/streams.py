"""The standard streams of a process: some may be closed, their reader may go away, and an exit at once writes them."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MODES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}
#: Errors of a write that no process can read any more: the pipe was closed, or the terminal hung up.
_UNREAD: Final = frozenset({errno.EPIPE, errno.EIO})
#: Seconds that what was logged and printed gets to be written before a process exits at once.
_WRITTEN_WITHIN: Final = 1.0
#: Seconds that threads which may run on get to end.
_JOINED_WITHIN: Final = 1.0


def open_closed_streams() -> None:
    """Open the null device for each closed one of stdin, stdout and stderr.

    A closed descriptor would be given to the next file that is opened, such as the database, and whatever a task's
    subprocess prints would be written into that file.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - open until the process ends
            os.set_inheritable(stream.fileno(), True)  # noqa: FBT003 - its signature
            setattr(sys, name, stream)


def drop_unwritten() -> None:
    """Drop what is left for stdout if it cannot be written: Python would report it again, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


class _Writer(io.FileIO):
    """A descriptor that drops what no process can read any more."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, and return the number of bytes written or dropped."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _UNREAD:
                raise
            return memoryview(data).nbytes


def drop_unread(name: str) -> None:
    """Drop what is printed on this stream ("stdout" or "stderr") once its reader went away, instead of raising.

    A stream that the program has replaced is not changed.
    """
    stream = getattr(sys, name)
    if stream is not getattr(sys, f"__{name}__") or not isinstance(stream, io.TextIOWrapper):
        return
    stream.flush()
    writer = _Writer(stream.fileno(), "w", closefd=False)
    replaced = io.TextIOWrapper(
        writer if stream.write_through else io.BufferedWriter(writer),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    setattr(sys, name, replaced)


def exit_at_once(code: int) -> NoReturn:
    """End this process with this code: no other thread is waited for, and no code of the program runs at the exit.

    What was logged and printed is written before, if that takes no longer than a second.
    """
    # In a thread: one that prints into a full pipe, whose reader hangs, has the lock of the stream for ever.
    writer = threading.Thread(target=_write_buffered, name="astyqueue:exit", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system has no thread left
        writer.start()
        writer.join(_WRITTEN_WITHIN)
    os._exit(code)


def exit_soon(code: int) -> None:
    """Have this process end with this code although a thread may run on for ever: Python has a second to join threads.

    If all end in time, Python exits as usual, and what is registered with `atexit` has all the time that it takes.
    """
    joined = threading.Event()
    atexit.register(joined.set)

    def exit_unless_joined() -> None:
        if not joined.wait(_JOINED_WITHIN):
            exit_at_once(code)

    try:
        threading.Thread(target=exit_unless_joined, name="astyqueue:exit", daemon=True).start()
    except RuntimeError:  # the system has no thread left
        exit_at_once(code)


def _write_buffered() -> None:
    for write in (logging.shutdown, sys.stderr.flush, sys.stdout.flush):
        with contextlib.suppress(Exception):
            write()
