"""Renewing leases for those who hold deliveries without a dispatcher: for threads, in a thread; for tasks, in a task.

A thread can renew only while the interpreter lets threads run: code that holds the interpreter lock longer than 60 % of a
lease (a C extension that does not release it) stops every thread of the process, and the lease runs out. Choose leases
longer than that, or run such code in a process of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.errors import AstyqueueError, Closed
from astyqueue.protocol.steps import Steps
from astyqueue.queue.claimer import Claimer
from astyqueue.queue.holding import Handed, Seat
from astyqueue.wakeup import Rest, Wakeup

_log: Final = logging.getLogger("astyqueue.queue")


def keep(claimer: Claimer, clock: Clock, stopped: Callable[[], bool]) -> Steps[None]:
    """Take part without taking anything, so that leases are renewed while nobody else is here; an error only delays that."""
    while not stopped():
        try:
            yield from claimer.serve(Seat(_nothing, _nobody), stopped)
        except Closed:
            return
        except AstyqueueError:
            _log.exception("leases could not be renewed; trying again")
            yield Rest(Wakeup(clock), clock.monotonic() + SECOND)


def _nothing() -> int:
    """Want nothing."""
    return 0


def _nobody(_: list[Handed]) -> None:
    """Get nothing."""


class Keeper:
    """Runs `keeping` in a thread of its own as long as anybody is inside this context manager."""

    def __init__(self, keeping: Callable[[Callable[[], bool]], None], wake: Callable[[], None]) -> None:
        """`keeping` gets a function that tells when to stop; `wake` has it look."""
        self._keeping = keeping
        self._wake = wake
        self._lock = threading.Lock()
        self._inside = 0
        self._stop = threading.Event()

    def __enter__(self) -> None:
        """Begin to keep leases, if nobody did."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._stop = threading.Event()
                threading.Thread(target=self._keeping, args=(self._stop.is_set,), name="astyqueue:keeper", daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop once nobody is inside any more: this thread for good, for whoever comes next starts another."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stop.set()
        self._wake()
