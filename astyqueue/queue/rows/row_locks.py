"""Claims from a row only under its lock, and from other rows while it is busy; no lock blocks a row for ever."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import Clock
from astyqueue.protocol.claiming.claim import ClaimResult
from astyqueue.protocol.coordination.column_lock import remove
from astyqueue.protocol.coordination.row_lock import LockHandle, RowLock
from astyqueue.protocol.steps import Steps
from astyqueue.queue.rows.row_scheduler import RowScheduler
from astyqueue.queue.rows.row_states import RowState
from astyqueue.units import SECOND

#: The pause before a busy row is tried again (±50 %), doubled each time up to `_LONGEST_PAUSE`.
_PAUSE: Final = SECOND // 200
_LONGEST_PAUSE: Final = SECOND // 12
_MANY: Final = 10
#: The pause between two reads of a busy row's header, which show whether another process works there.
_WATCHED: Final = SECOND // 2

_log: Final = logging.getLogger("astyqueue.queue")


@dataclass(slots=True)
class _Tries:
    """The tries in sequence that found a row busy, since when (monotonic), and whether its lock is bypassed."""

    since: int
    count: int = 0
    goes_round: bool = False


class RowLocks:
    """The locks of the rows that this process claims from."""

    def __init__(self, lock: RowLock, timeout: int, scheduler: RowScheduler) -> None:
        """A lock that is busy while the row's header does not change for `timeout` microseconds is bypassed."""
        self._lock = lock
        self._timeout = timeout
        self._scheduler = scheduler
        self._clock: Clock = scheduler.row_states.clock
        self._tries: dict[str, _Tries] = {}

    @property
    def leases(self) -> bool:
        """Whether claims take the row lease, so that other processes keep away."""
        return self._lock.leases

    def under(self, visit: RowState, take: Callable[[LockHandle], Steps[ClaimResult]], now: int) -> Steps[bool]:
        """Claim under the lock of a row; if it is busy, return False and try the row again soon."""
        row = visit.snapshot.row
        grip = yield from self._lock.acquire(row)
        if grip is not None:
            self._tries.pop(row, None)
        elif self._goes_round(visit):
            grip = LockHandle()
        else:
            self._leave_alone(visit, now)
            return False
        try:
            yield from self._take(row, grip, take)
        finally:
            grip.let_go()
        return True

    def _take(self, row: str, grip: LockHandle, take: Callable[[LockHandle], Steps[ClaimResult]]) -> Steps[None]:
        """Claim, and delete the lock's columns unless the claim did; if these steps are cancelled, they expire."""
        unlocked = False
        try:
            unlocked = (yield from take(grip)).unlocked
        except Exception:
            yield from _free(row, grip)
            raise
        if not unlocked:
            yield from _free(row, grip)

    def _goes_round(self, visit: RowState) -> bool:
        """Whether to bypass the lock of a busy row: busy for the timeout, and its header did not change since."""
        at = self._clock.monotonic()
        tries = self._tries.setdefault(visit.snapshot.row, _Tries(at))
        if tries.goes_round and not visit.snapshot.known:
            self._tries[visit.snapshot.row] = tries = _Tries(at)
        if not tries.goes_round and at - max(tries.since, visit.lease.since) >= self._timeout:
            seconds = self._timeout / SECOND
            _log.warning("row %s: locked for %g s without progress; its lock is ignored", visit.snapshot.row, seconds)
            tries.goes_round = True
        return tries.goes_round

    def _leave_alone(self, visit: RowState, now: int) -> None:
        """Leave a busy row alone for a moment; after several tries in sequence, request it from its owner."""
        tries = self._tries[visit.snapshot.row]
        pause = int(min(_PAUSE << tries.count, _LONGEST_PAUSE) * (0.5 + random.random()))
        tries.count = min(tries.count + 1, _MANY)
        visit.not_before = now + pause
        self._scheduler.row_states.look_at(visit, now)
        self._scheduler.poller.by(visit, now + _WATCHED)
        self._scheduler.poller.wishes.refused(visit.snapshot.row, tries.count)


def _free(row: str, grip: LockHandle) -> Steps[None]:
    if grip.columns:
        yield from remove(row, grip.columns)
