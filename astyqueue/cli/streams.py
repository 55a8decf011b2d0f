"""The standard streams of a process that was started with some of them closed, or whose reader goes away."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MODES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}
#: Errors of a write that no process can read any more: the pipe was closed, or the terminal hung up.
_UNREAD: Final = frozenset({errno.EPIPE, errno.EIO})


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
