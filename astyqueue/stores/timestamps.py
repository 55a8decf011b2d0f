"""Write times for plain puts without a stamp."""

from __future__ import annotations

import threading

from astyqueue.clock import Clock


class Stamps:
    """The current time in µs, strictly increasing: of two sends by one store the later always wins."""

    def __init__(self, clock: Clock) -> None:
        """Stamp by `clock`; while it is set back, stamps increase by 1 µs."""
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        """A stamp greater than all before it."""
        with self._lock:
            self._last = max(self._clock.now(), self._last + 1)
            return self._last
