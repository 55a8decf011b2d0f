"""One process's knowledge of a queue's rows, and when each is next scanned: affects cost and delay, never safety."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.ids import Id
from astyqueue.protocol.layout.rows import Ring, is_home
from astyqueue.protocol.row.bounded_reads import MessageSizes, ScanWindow
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.queue.rows.deadline_heap import DeadlineHeap
from astyqueue.queue.rows.row_lease import RowLease
from astyqueue.units import NEVER

#: In place of a moment: a header commit made the snapshot of the row stale.
_CHANGED: Final = -1


@dataclass(slots=True, eq=False)
class RowState:
    """A row in one process. `work`: the earliest known moment at which something in it is or will be due.

    The row is left alone until `not_before` after consecutive `failures`, and until `obliging` for a process that
    requested it.
    """

    snapshot: RowSnapshot
    lease: RowLease
    heads: list[Id] = field(default_factory=list)
    floor: int | None = None
    work: int = NEVER
    not_before: int = 0
    failures: int = 0
    obliging: int = 0

    @property
    def seen_heads(self) -> list[Id]:
        """The known position of the first scan, by priority."""
        return self.snapshot.looks.heads if self.snapshot.known else self.heads


class RowStates:
    """All rows of a queue in one process, and when each is next scanned."""

    def __init__(self, ring: Ring, clock: Clock, me: str) -> None:
        """`me` is the name of this process; nothing is known of any row yet."""
        self.ring = ring
        self.clock = clock
        self.me = me
        self.last_traffic = 0
        self.looks = DeadlineHeap()
        self.asked = 0
        self._asking = threading.Lock()
        self.insisted: set[str] = set()
        self._news: dict[str, int] = {}
        self._levels = ring.layout.priorities
        self.patience = 1 + random.random()
        self._strides = ScanWindow()
        self._sizes = MessageSizes()
        self.of = {
            row: RowState(self._snapshot(row), RowLease(me, self.patience), self.first_heads) for row in ring.rows()
        }

    def _snapshot(self, row: str) -> RowSnapshot:
        """An empty snapshot. Rows of the ring share a scan window, as they fill alike; all rows share message sizes."""
        return RowSnapshot(
            row, self._levels, sizes=self._sizes, strides=ScanWindow(None if is_home(row) else self._strides)
        )

    @property
    def shared(self) -> bool:
        """Whether rows have owners; a single row is used by all processes."""
        return self.ring.shared

    @property
    def first_heads(self) -> list[Id]:
        """The scan positions in a row that was never scanned."""
        return [ids.LEAST] * self._levels

    @property
    def news(self) -> bool:
        """Whether another thread reported something that the leader has not taken in yet."""
        return bool(self._news)

    def sent(self, row: str, moment: int, now: int) -> None:
        """Report that this process sent to a row a message due at `moment`. Safe from any thread."""
        self.last_traffic = now
        self._report(row, moment)

    def changed(self, row: str) -> None:
        """Report a header commit of this process that its snapshot of the row does not have. Safe from any thread."""
        self._report(row, _CHANGED)

    def _report(self, row: str, moment: int) -> None:
        """Keep only the least moment for each row: a process that only sends has no leader to take them in."""
        with self._asking:
            self._news[row] = min(moment, self._news.get(row, moment))

    def ask(self, now: int, *, insist: bool) -> int:
        """Have the leader check every current row for open work; returns the number of the request.

        With `insist`, no row is left to its owner. Safe from any thread.
        """
        with self._asking:
            if insist:
                self.insisted.update(self.ring.current(now))
            self.asked += 1
            return self.asked

    def take_in(self, now: int) -> None:
        """Apply what other threads reported."""
        with self._asking:
            news, self._news = self._news, {}
        for row, moment in news.items():
            if moment == _CHANGED:
                self.of[row].snapshot.forget()
            self.look_at(self.of[row], now if moment == _CHANGED else moment)

    def held_back(self, visit: RowState) -> int:
        """Until when to leave a row alone; a row that a caller insists on is not left to other processes."""
        return visit.not_before if visit.snapshot.row in self.insisted else max(visit.not_before, visit.obliging)

    def fire(self, *, on: bool) -> None:
        """Set whether rows are visited when a slot of a schedule in them falls due."""
        for visit in self.of.values():
            visit.snapshot.fires = on and is_home(visit.snapshot.row)

    def with_slot(self, now: int) -> RowState | None:
        """A row in which a slot may be due and which no other process owns."""
        self.take_in(now)
        homes = (self.of[row] for row in self.ring.homes())
        return next(
            (visit for visit in homes if visit.not_before <= now and _may_fire(visit, now, shared=self.shared)), None
        )

    def look_at(self, visit: RowState, work: int, *, at: int = 0) -> None:
        """Scan a row at the moment `work`, when something in it is due; not before `at`."""
        visit.work = min(visit.work, work)
        self.looks.by(visit.snapshot.row, max(visit.work, visit.not_before, at))

    def current(self, now: int) -> list[RowState]:
        """The rows that messages due now are written to."""
        return [self.of[row] for row in self.ring.current(now)]


def _may_fire(visit: RowState, now: int, *, shared: bool) -> bool:
    if not visit.snapshot.fires or (shared and not visit.lease.ours):
        return False
    slot = visit.snapshot.next_slot if visit.snapshot.known else now
    return slot is not None and slot <= now
