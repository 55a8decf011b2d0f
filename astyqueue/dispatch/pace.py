"""How many deliveries a dispatcher takes: so many at a time that no handler waits for a claim and none is hoarded, so many in all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from typing import Final

from astyqueue.clock import SECOND

#: What waits should be done within so long: several claims' worth of time, and short for whoever else could take it.
_HORIZON: Final = SECOND // 10
#: ... and within this part of a lease.
_PART_OF_LEASE: Final = 10
#: The most that wait: two claims, so that one can be under way while the other is worked off.
_MOST: Final = 400
#: The last so many attempts decide what is typical, more or less.
_MEMORY: Final = 8
#: A change by less than this factor changes nothing, so that the bound does not tremble.
_WORTH_A_CHANGE: Final = 2


class Pace:
    """The bound of a backlog, from how long handlers take.

    It starts at zero: each free handler gets one delivery. While handlers turn out quick it grows to what they can take in
    a tenth of a second (or of the lease); when they are slow it shrinks, back to zero if one takes longer than that.
    """

    def __init__(self, threads: int, lease: int, fixed: int | None = None) -> None:
        """For so many handlers at a time and a lease in microseconds; a `fixed` bound is not changed."""
        self.bound = fixed or 0
        self.adapts = fixed is None
        self._budget = threads * min(_HORIZON, lease // _PART_OF_LEASE)
        self._typical = float(2 * self._budget)

    def took(self, microseconds: int) -> None:
        """Take note of one attempt. Called from many threads: an observation lost between two of them matters to nobody."""
        self._typical += (microseconds - self._typical) / _MEMORY

    def adapt(self) -> None:
        """Set the bound to what was observed."""
        wanted = min(_MOST, int(self._budget / max(1.0, self._typical)))
        if self.adapts and (wanted >= self.bound * _WORTH_A_CHANGE or wanted * _WORTH_A_CHANGE <= self.bound):
            self.bound = wanted


class Quota:
    """How many messages a dispatcher begins in all; when the last of them has ended, it is to end.

    No more are claimed than may still begin; where several queues claim for the same place, what comes too late goes back.
    """

    def __init__(self, most: int | None) -> None:
        """Without `most` there is no end."""
        self.on_end: Callable[[], None] = _nobody
        self._most = most
        self._lock = threading.Lock()
        self._begun = 0
        self._ended = 0
        self._lines: list[Sized] = []

    def counts(self, line: Sized) -> None:
        """Count what waits in this line as claimed already."""
        self._lines.append(line)

    def room(self, wanted: int) -> int:
        """As many of the wanted messages as may be claimed."""
        return wanted if self._most is None else max(0, min(wanted, self._most - self._begun - sum(map(len, self._lines))))

    def begin(self) -> bool:
        """Whether one more may begin; if so, it counts."""
        if self._most is None:
            return True
        with self._lock:
            if self._begun == self._most:
                return False
            self._begun += 1
            return True

    def end(self) -> None:
        """One that began has ended, or was given up."""
        if self._most is None:
            return
        with self._lock:
            self._ended += 1
            last = self._ended == self._most
        if last:
            self.on_end()


def _nobody() -> None:
    """The dispatcher has not started."""
