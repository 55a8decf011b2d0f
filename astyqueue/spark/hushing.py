"""Keeping back what Java says while Spark starts: a dozen lines about itself, which matter only if it does not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

_STDERR: Final = 2
#: Lines that end what is kept back, written after it into the same pipe, so that nothing overtakes them.
_DROP: Final = b"\x00astyqueue: it started\n"
_SHOW: Final = b"\x00astyqueue: it did not start\n"


@contextmanager
def kept_back() -> Iterator[int]:
    """A descriptor, to be the stderr of a process that is started in this block.

    What it says before the end of the block is dropped, or shown if the block raises; what it says later goes to our own stderr.
    """
    reading, writing = os.pipe()
    shown = Event()
    Thread(target=_pass_on, args=(reading, shown), name="astyqueue:stderr", daemon=True).start()
    try:
        yield writing
    except BaseException:
        os.write(writing, _SHOW)
        shown.wait()
        raise
    else:
        os.write(writing, _DROP)
    finally:
        os.close(writing)


def _pass_on(reading: int, shown: Event) -> None:
    with os.fdopen(reading, "rb") as lines:
        *kept, last = _until_decided(lines)
        _write(b"" if last.endswith(_DROP) else b"".join(kept) + last.removesuffix(_SHOW))
        shown.set()
        for line in lines:
            _write(line)


def _until_decided(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line
        if line.endswith((_DROP, _SHOW)):
            return


def _write(text: bytes) -> None:
    while text:
        text = text[os.write(_STDERR, text) :]
