"""Going to a row only under its lock, and to another one while somebody else has it; no lock stops a row for ever."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.protocol.claim import Claimed
from astyqueue.protocol.columnlock import remove
from astyqueue.protocol.rowlock import Grip, RowLock
from astyqueue.protocol.steps import Steps
from astyqueue.queue.rounds import Rounds
from astyqueue.queue.visits import Visit

#: A busy row is tried again after so long, doubled each time up to the second, half as much more or less.
_PAUSE: Final = SECOND // 200
_LONGEST_PAUSE: Final = SECOND // 12
_MANY: Final = 10
#: The header of a busy row is read so often, to see whether anybody works there.
_WATCHED: Final = SECOND // 2

_log: Final = logging.getLogger("astyqueue.queue")


@dataclass(slots=True)
class _Tries:
    """How often a row was found busy, one time after the other, and since when (monotonic); then its lock is gone round."""

    since: int
    count: int = 0
    goes_round: bool = False


class Locking:
    """The lock of each row that is claimed from here."""

    def __init__(self, lock: RowLock, timeout: int, rounds: Rounds) -> None:
        """A lock that is busy while the row's header stands still for `timeout` microseconds is gone round."""
        self._lock = lock
        self._timeout = timeout
        self._rounds = rounds
        self._clock: Clock = rounds.visits.clock
        self._tries: dict[str, _Tries] = {}

    @property
    def leases(self) -> bool:
        """Whether claims leave their process's name in the header, for others to keep away."""
        return self._lock.leases

    def under(self, visit: Visit, take: Callable[[Grip], Steps[Claimed]], now: int) -> Steps[bool]:
        """Claim under the lock of a row; False if it is busy, and it comes up again soon."""
        row = visit.sight.row
        grip = yield from self._lock.acquire(row)
        if grip is not None:
            self._tries.pop(row, None)
        elif self._goes_round(visit):
            grip = Grip()
        else:
            self._leave_alone(visit, now)
            return False
        try:
            yield from self._take(row, grip, take)
        finally:
            grip.let_go()
        return True

    def _take(self, row: str, grip: Grip, take: Callable[[Grip], Steps[Claimed]]) -> Steps[None]:
        """Claim, and delete the lock's columns if the claim did not; whoever stops these steps half-way leaves them to their time."""
        unlocked = False
        try:
            unlocked = (yield from take(grip)).unlocked
        except Exception:
            yield from _free(row, grip)
            raise
        if not unlocked:
            yield from _free(row, grip)

    def _goes_round(self, visit: Visit) -> bool:
        """Whether a busy row is claimed from all the same: its lock stopped everybody for too long, and nobody has moved it since."""
        at = self._clock.monotonic()
        tries = self._tries.setdefault(visit.sight.row, _Tries(at))
        if tries.goes_round and not visit.sight.known:
            self._tries[visit.sight.row] = tries = _Tries(at)
        if not tries.goes_round and at - max(tries.since, visit.lease.since) >= self._timeout:
            seconds = self._timeout / SECOND
            _log.warning("row %s: locked for %g s while nobody worked there; it is claimed from without its lock", visit.sight.row, seconds)
            tries.goes_round = True
        return tries.goes_round

    def _leave_alone(self, visit: Visit, now: int) -> None:
        """Go elsewhere for a moment; who finds a row busy again and again asks for it."""
        tries = self._tries[visit.sight.row]
        pause = int(min(_PAUSE << tries.count, _LONGEST_PAUSE) * (0.5 + random.random()))
        tries.count = min(tries.count + 1, _MANY)
        visit.not_before = now + pause
        self._rounds.visits.look_at(visit, now)
        self._rounds.survey.by(visit, now + _WATCHED)
        self._rounds.survey.wishes.refused(visit.sight.row, tries.count)


def _free(row: str, grip: Grip) -> Steps[None]:
    if grip.columns:
        yield from remove(row, grip.columns)
