"""Claims from a row only under its lock, and from other rows while it is busy; no lock blocks a row for ever."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import Clock
from astyqueue.protocol.claiming.claim import ClaimResult
from astyqueue.protocol.coordination.row_lock import LockHandle, RowLock, release_columns
from astyqueue.protocol.steps import Steps
from astyqueue.queue.row_sharing.row_scheduler import RowVisit
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND, MonotonicUs

#: The pause before a busy row is tried again (±50 %), doubled each time up to `_LONGEST_PAUSE`.
_PAUSE: Final = SECOND // 200
_LONGEST_PAUSE: Final = SECOND // 12
_MANY: Final = 10

_log: Final = logging.getLogger("astyqueue.queue")


@dataclass(slots=True)
class _Tries:
    """The tries in sequence that found a row busy, since when (monotonic), and whether its lock is bypassed."""

    since: MonotonicUs
    count: int = 0
    bypassed: bool = False


class RowLocks:
    """The locks of the rows that this process claims from."""

    def __init__(self, lock: RowLock, timeout: int, clock: Clock) -> None:
        """A lock that is busy while the row's header does not change for `timeout` microseconds is bypassed."""
        self._lock = lock
        self._timeout = timeout
        self._clock = clock
        self._tries: dict[str, _Tries] = {}

    @property
    def leases(self) -> bool:
        """Whether claims take the row lease, so that other processes keep away."""
        return self._lock.leases

    def under(self, visit: RowVisit, take: Callable[[LockHandle], Steps[ClaimResult]]) -> Steps[bool]:
        """Claim under the lock of a row; if it is busy, end the visit and return False."""
        row = visit.row.name
        handle = yield from self._lock.acquire(row)
        if handle is not None:
            self._tries.pop(row, None)
        elif self._bypasses(visit):
            handle = LockHandle()
        else:
            self._leave_alone(visit)
            return False
        try:
            yield from self._take(row, handle, take)
        finally:
            handle.let_go()
        return True

    def _take(self, row: str, handle: LockHandle, take: Callable[[LockHandle], Steps[ClaimResult]]) -> Steps[None]:
        """Claim, and delete the lock's columns unless the claim did; if these steps are cancelled, they expire."""
        unlocked = False
        try:
            unlocked = (yield from take(handle)).committed
        except Exception:
            yield from _free(row, handle)
            raise
        if not unlocked:
            yield from _free(row, handle)

    def _bypasses(self, visit: RowVisit) -> bool:
        """Whether to bypass the lock of a busy row: busy for the timeout, and its header did not change since."""
        at, row = self._clock.monotonic(), visit.row
        tries = self._tries.setdefault(row.name, _Tries(at))
        if tries.bypassed and not row.known:
            self._tries[row.name] = tries = _Tries(at)
        if not tries.bypassed and at - max(tries.since, visit.unchanged_since) >= self._timeout:
            log_event(_log, logging.WARNING, "row_lock_bypassed", row=row.name, locked_s=self._timeout / SECOND)
            tries.bypassed = True
        return tries.bypassed

    def _leave_alone(self, visit: RowVisit) -> None:
        """Leave a busy row alone for a moment; after several tries in sequence, it is requested from its owner."""
        tries = self._tries[visit.row.name]
        pause = int(min(_PAUSE << tries.count, _LONGEST_PAUSE) * (0.5 + random.random()))
        tries.count = min(tries.count + 1, _MANY)
        visit.busy(pause, tries.count)


def _free(row: str, handle: LockHandle) -> Steps[None]:
    if handle.columns:
        yield from release_columns(row, handle.columns)
