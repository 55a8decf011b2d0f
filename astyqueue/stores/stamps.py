"""Write times for plain puts that claim none."""

from __future__ import annotations

import threading

from astyqueue.clock import Clock


class Stamps:
    """The present, in microseconds, and never the same twice: the later of two sends of one store always stands."""

    def __init__(self, clock: Clock) -> None:
        """Stamps of `clock`, as long as it goes forward."""
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        """A stamp later than all before it."""
        with self._lock:
            self._last = max(self._clock.now(), self._last + 1)
            return self._last
