"""Waking those that wait for a journal to change, and the thread that ends batches in time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from astyqueue.clock import Clock
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: So that the thread does not spin where a full disk lets no batch end.
_LEAST_DELAY_US: Final = SECOND // 1_000


class Listeners:
    """The readers and writers of this process that wait for new records, or for room. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """`clock` decides when a wait ends without a signal."""
        self._clock = clock
        self._lock = threading.Lock()
        self._wakeups: frozenset[Wakeup] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._wakeups)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Wakeup]:
        """A wake-up that every `notify` sets; look once more at what you wait for before the first wait."""
        wakeup = Wakeup(self._clock)
        with self._lock:
            self._wakeups |= {wakeup}
        try:
            yield wakeup
        finally:
            with self._lock:
                self._wakeups -= {wakeup}

    def notify(self) -> None:
        """Wake all of them."""
        for wakeup in self._wakeups:
            wakeup.set()


class BatchTimer:
    """A thread that calls `finish` at most `delay_us` microseconds after a record was appended and is not finished.

    It starts with the first record, rests while there is none, and is a daemon: a journal that is not closed does not
    keep its process alive.
    """

    def __init__(self, clock: Clock, delay_us: int, *, is_open: Callable[[], bool], finish: Callable[[], None]) -> None:
        """`is_open` is whether records wait; it and `finish` are called in the thread. The least delay is 1 ms."""
        self._clock: Final = clock
        self._delay_us: Final = max(delay_us, _LEAST_DELAY_US)
        self._is_open: Final = is_open
        self._finish: Final = finish
        self._wakeup: Final = Wakeup(clock)
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._resting = True
        self._closed = False

    def started(self) -> None:
        """Note that a record waits. Cheap unless the thread rests."""
        if self._resting:
            self._rouse()

    def _rouse(self) -> None:
        with self._lock:
            self._resting = False
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="astyqueue-journal", daemon=True)
                self._thread.start()
        self._wakeup.set()

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
                self._resting = True
                if not self._is_open():  # nothing came between the first look and the note that the thread rests
                    self._wakeup.wait()
                    continue
                self._resting = False
            until = self._clock.monotonic() + self._delay_us
            while not self._closed and self._clock.monotonic() < until:
                self._wakeup.wait(until)
            if not self._closed:
                self._finish()
