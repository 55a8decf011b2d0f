"""What one process knows of a queue's rows, and when each is next looked at: cost and delay, never safety."""

from __future__ import annotations

import random
import threading
from collections import deque
from dataclasses import dataclass, field

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.ids import Id
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.sight import Sight
from astyqueue.queue.agenda import NEVER, Agenda
from astyqueue.queue.rowlease import RowLease


@dataclass(slots=True, eq=False)
class Visit:
    """A row in one process. `work`: since when something in it is due, or will be, as far as is known."""

    sight: Sight
    lease: RowLease
    heads: list[Id] = field(default_factory=list)
    floor: int | None = None
    work: int = NEVER
    once_more: int = 0
    not_before: int = 0

    @property
    def seen_heads(self) -> list[Id]:
        """How far the first look has come, by priority, as far as is known."""
        return self.sight.heads if self.sight.known else self.heads


class Visits:
    """All rows of a queue in one process, and the looks that are due."""

    def __init__(self, ring: Ring, clock: Clock, me: str) -> None:
        """Nothing is known of any row."""
        self.ring = ring
        self.clock = clock
        self.me = me
        self.last_traffic = 0
        self.looks = Agenda()
        self.asked = 0
        self._asking = threading.Lock()
        self.insisted: set[str] = set()
        self._arrived: deque[tuple[str, int]] = deque()
        self._levels = ring.layout.priorities
        patience = 1 + random.random()
        self.of = {row: Visit(Sight(row, self._levels), RowLease(me, patience), self.first_heads) for row in ring.rows()}

    @property
    def shared(self) -> bool:
        """Whether there are rows to share out; a single one is everybody's."""
        return self.ring.layout.concurrency_shards > 1

    @property
    def first_heads(self) -> list[Id]:
        """How far looks have come in a row that nobody looked at."""
        return [ids.LEAST] * self._levels

    @property
    def news(self) -> bool:
        """Whether another thread said something that was not taken in yet."""
        return bool(self._arrived)

    def sent(self, row: str, moment: int, now: int) -> None:
        """Somebody in this process sent to a row, for this moment. Safe from any thread."""
        self.last_traffic = now
        self._arrived.append((row, moment))

    def changed(self, row: str) -> None:
        """Somebody in this process raised a row's header past what is known of it here. Safe from any thread."""
        self._arrived.append((row, -1))

    def ask(self, now: int, *, insist: bool) -> int:
        """Have somebody see what is open in every current row; the number by which this is known. Safe from any thread.

        Who insists leaves no row to its owner.
        """
        with self._asking:
            if insist:
                self.insisted.update(self.ring.current(now))
            self.asked += 1
            return self.asked

    def take_in(self, now: int) -> None:
        """Take note of what other threads said."""
        while self._arrived:
            row, moment = self._arrived.popleft()
            if moment < 0:
                self.of[row].sight.forget()
            self.look_at(self.of[row], max(moment, 0) or now)

    def look_at(self, visit: Visit, work: int) -> None:
        """Something in a row is due at this moment."""
        visit.work = min(visit.work, work)
        self.looks.by(visit.sight.row, max(visit.work, visit.not_before))

    def current(self, now: int) -> list[Visit]:
        """The rows that are written to now."""
        return [self.of[row] for row in self.ring.current(now)]
