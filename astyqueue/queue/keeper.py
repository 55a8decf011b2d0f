"""A thread that renews leases for those who hold deliveries without a dispatcher.

It can renew only while the interpreter lets threads run: code that holds the interpreter lock longer than 60 % of a lease
(a C extension that does not release it) stops every thread of the process, and the lease runs out. Choose leases longer
than that, or run such code in a process of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from astyqueue.errors import AstyqueueError

_log: Final = logging.getLogger("astyqueue.queue")


class Keeper:
    """Runs `keep` in a thread of its own as long as anybody is inside this context manager."""

    def __init__(self, keep: Callable[[Callable[[], bool]], None], wake: Callable[[], None]) -> None:
        """`keep` gets a function that tells when to stop; `wake` has it look."""
        self._keep = keep
        self._wake = wake
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        """Begin to keep leases, if nobody did."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                threading.Thread(target=self._run, name="astyqueue:keeper", daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop once nobody is inside any more."""
        with self._lock:
            self._inside -= 1
        self._wake()

    def _run(self) -> None:
        try:
            self._keep(lambda: not self._inside)
        except AstyqueueError:
            _log.exception("leases are not renewed any more; what is held may be handed out again when its lease runs out")
