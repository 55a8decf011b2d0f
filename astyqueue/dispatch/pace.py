"""How many deliveries may wait for a handler: enough that no handler waits for a claim, few enough that none is hoarded."""

from __future__ import annotations

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
