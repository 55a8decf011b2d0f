"""The thread that ends batches in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from astyqueue.clock import Clock
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: So that the thread does not spin where a full disk lets no batch end.
_LEAST_DELAY_US: Final = SECOND // 1_000


class BatchTimer:
    """A thread that calls `finish` at most `delay_us` microseconds after a record was appended and is not finished.

    It starts with the first record, rests while there is none, and is a daemon: a journal that is not closed does not
    keep its process alive.
    """

    def __init__(self, clock: Clock, delay_us: int, *, is_open: Callable[[], bool], finish: Callable[[], None]) -> None:
        """`is_open` is whether records wait; the thread calls it and `finish`. The least delay is 1 ms."""
        self._clock: Final = clock
        self._delay_us: Final = max(delay_us, _LEAST_DELAY_US)
        self._is_open: Final = is_open
        self._finish: Final = finish
        self._wakeup: Final = Wakeup(clock)
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._rests = 1  # how often the thread began to rest, before its start too
        self._woken = 0  # from which of these it was woken; noted after that, because who does so may be interrupted
        self._closed = False

    def started(self) -> None:
        """Note that a record waits. Cheap unless the thread rests. Where no thread can be started it calls `finish`."""
        if self._woken != self._rests:
            self._rouse()

    def _rouse(self) -> None:
        rest = self._rests
        if self._has_thread():
            self._wakeup.set()
            self._woken = rest
        elif not self._closed:
            self._finish()

    def _has_thread(self) -> bool:
        """Start the thread, unless it runs; False if there is none, as in a process that may have no more threads."""
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="astyqueue-journal", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            return self._thread is not None

    def close(self) -> None:
        """End the thread, without a last `finish`."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wakeup.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed:
            if not self._is_open():
                self._rests += 1
                if not self._is_open():  # nothing came between the first look and the note that the thread rests
                    self._wakeup.wait()
                    continue
                self._woken = self._rests
            until = self._clock.monotonic() + self._delay_us
            while not self._closed and self._clock.monotonic() < until:
                self._wakeup.wait(until)
            if not self._closed:
                self._finish()
