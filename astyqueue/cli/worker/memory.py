"""`worker --max-rss`: notices that the process has become too large."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.dispatch.worker_log import log_event
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: The pause between two looks at the memory.
_EVERY: Final = 2 * SECOND
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """The memory of this process that is not swapped out; where the system does not say, the most it ever was."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class MemoryWatch:
    """Calls `end` once when this process has more resident memory than a limit."""

    def __init__(self, limit: int, end: Callable[[], None]) -> None:
        """`limit` is in bytes."""
        self._limit = limit
        self._end = end

    def start(self) -> None:
        """Look every two seconds, in a new thread."""
        threading.Thread(target=self._run, name="astyqueue:memory", daemon=True).start()

    def _run(self) -> None:
        clock = SystemClock()
        pause = Wakeup(clock)
        while (size := resident_bytes()) <= self._limit:
            pause.wait(clock.monotonic() + _EVERY)
        log_event(logging.WARNING, "max_rss", resident=size, limit=self._limit)
        self._end()
