"""Where sends wait while their spool is full; a task that waits there holds no thread."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final

from astyqueue.clock import Clock
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup

#: How often the first sends that wait look for what no signal announces, such as the space of a disk.
_LOOK_EVERY_US: Final = SECOND
#: The same for those behind the first: each of these may wait for what a later one does.
_LOOK_BEHIND_EVERY_US: Final = 5 * SECOND
#: The most sends that look for room at once: enough that those of durability "each" share syncs.
_AT_ONCE: Final = 32
_log: Final = logging.getLogger("astyqueue.spool")


class Room:
    """The sends of one queue that wait for room, in the order in which they came. Thread-safe.

    Logs when one has waited for a second, and when one finds room after that.
    """

    def __init__(self, queue: str, clock: Clock) -> None:
        """No send waits yet."""
        self._queue: Final = queue
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._waiting: Final[dict[Wakeup, None]] = {}
        self._is_logged = False

    @contextlib.contextmanager
    def waiting(self) -> Iterator[Wakeup]:
        """A wake-up for a send, which `look_again` sets; look once more for room before the first wait."""
        wakeup = Wakeup(self._clock)
        try:
            with self._lock:
                self._waiting[wakeup] = None
            yield wakeup
        finally:
            with self._lock:
                self._waiting.pop(wakeup, None)
            self.look_again()

    def look_again(self) -> None:
        """Wake the first sends that wait; those behind them are woken when one of these goes on, or ends."""
        for wakeup in self._first():
            wakeup.set()

    def wait(self, wakeup: Wakeup, reason: str) -> Generator[Rest, None, None]:
        """Rest until there may be room. `reason` is why there is none."""
        pause = _LOOK_EVERY_US if wakeup in self._first() else _LOOK_BEHIND_EVERY_US
        until = self._clock.monotonic() + pause
        yield Rest(wakeup, until)
        if self._clock.monotonic() >= until and self._changed_to(is_logged=True):
            log_event(_log, logging.WARNING, "spool_full", queue=self._queue, reason=reason, effect="sends wait")

    def _first(self) -> list[Wakeup]:
        with self._lock:
            return list(islice(self._waiting, _AT_ONCE))

    def found(self) -> None:
        """A send has found room."""
        if self._is_logged and self._changed_to(is_logged=False):
            log_event(_log, logging.WARNING, "spool_has_room", queue=self._queue)

    def _changed_to(self, *, is_logged: bool) -> bool:
        with self._lock:
            was_logged, self._is_logged = self._is_logged, is_logged
        return was_logged != is_logged
