"""A row that is claimed from under a lock, and what claims and polls cost after many locks were taken and released."""

from __future__ import annotations

import statistics

from astyqueue import MessageQueue
from astyqueue.protocol.claiming.claim import ClaimResult, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.column_lock import remove
from astyqueue.protocol.steps import Steps
from astyqueue.queue.options import DEFAULT_OPTIONS, with_lock
from benchmarks.figures import Run
from benchmarks.filelocks import lock_of
from benchmarks.poll_process import Row, tombstones
from benchmarks.target import CLOCK
from benchmarks.workload import NotMeasured


class LockedRow(Row):
    """One row, claimed from under its lock, as the claimer does."""

    def __init__(self, url: str, name: str, lock: tuple[str, str]) -> None:
        """Know nothing of it yet; each lock, by its name and as it is written, has queues of its own."""
        super().__init__(url, f"{name}-{lock[0]}")
        self._lock = with_lock(DEFAULT_OPTIONS, lock_of(lock[1]), "5s").lock(self.queue.core.process, CLOCK)

    def look(self) -> Steps[ClaimResult]:
        """Acquire, claim, let go."""
        row = self.snapshot.row
        grip = yield from self._lock.acquire(row)
        if grip is None:
            message = f"row {row} is locked, and nobody else is here"
            raise NotMeasured(message)
        behaviour = self.queue.settings.behaviour
        order = ClaimRequest(
            MOST, behaviour.lease_us, behaviour.max_attempts, leases=self._lock.leases, unlocks=grip.columns
        )
        claimed = yield from claim(self.queue.core.process, self.snapshot, order)
        if grip.columns and not claimed.unlocked:
            yield from remove(row, grip.columns)
        grip.let_go()
        return claimed


def churned(url: str, lock: tuple[str, str], claims: int) -> None:
    """Take so many messages, one by one, through the used row."""
    row = LockedRow(url, "used", lock)
    for _ in range(claims):
        row.claim()
    row.queue.close()


def compared(url: str, lock: tuple[str, str], samples: int) -> Run:
    """Polls and claims of the used row and of the fresh one, in turn; milliseconds, and ratios of their medians."""
    fresh, used = (LockedRow(url, name, lock) for name in ("fresh", "used"))
    for row in (fresh, used):
        row.claim()
    for _ in range(samples):
        for row in (fresh, used):
            row.polls.append(row.poll())
            row.claims.append(row.claim())
    poll, claimed = ([statistics.median(getattr(row, kind)) for row in (fresh, used)] for kind in ("polls", "claims"))
    read = tombstones(used)
    _close(fresh.queue, used.queue)
    return {
        "poll_ms": poll[1],
        "claim_ms": claimed[1],
        "poll_ratio": poll[1] / poll[0],
        "claim_ratio": claimed[1] / claimed[0],
        "tombstones_per_poll": read,
    }


def _close(*queues: MessageQueue) -> None:
    for queue in queues:
        queue.close()
