"""What one process knows of a queue's rows, and when each is next looked at: cost and delay, never safety."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.ids import Id
from astyqueue.protocol.picking import Sizes
from astyqueue.protocol.rows import Ring, is_home
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.stretches import Strides
from astyqueue.queue.agenda import NEVER, Agenda
from astyqueue.queue.rowlease import RowLease

#: In the place of a moment: the row's header was raised past what is known here.
_CHANGED: Final = -1


@dataclass(slots=True, eq=False)
class Visit:
    """A row in one process. `work`: since when something in it is due, or will be, as far as is known.

    It is left alone until `not_before` for as many `failures` in a row, and until `obliging` for somebody who wants it.
    """

    sight: Sight
    lease: RowLease
    heads: list[Id] = field(default_factory=list)
    floor: int | None = None
    work: int = NEVER
    not_before: int = 0
    failures: int = 0
    obliging: int = 0

    @property
    def seen_heads(self) -> list[Id]:
        """How far the first look has come, by priority, as far as is known."""
        return self.sight.looks.heads if self.sight.known else self.heads


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
        self._news: dict[str, int] = {}
        self._levels = ring.layout.priorities
        self.patience = 1 + random.random()
        self._strides = Strides()
        self._sizes = Sizes()
        self.of = {row: Visit(self._sight(row), RowLease(me, self.patience), self.first_heads) for row in ring.rows()}

    def _sight(self, row: str) -> Sight:
        """Nothing is known of a row yet; those of the ring fill alike, and all hold messages of one queue."""
        return Sight(row, self._levels, sizes=self._sizes, strides=Strides(None if is_home(row) else self._strides))

    @property
    def shared(self) -> bool:
        """Whether there are rows to share out; a single one is everybody's."""
        return self.ring.shared

    @property
    def first_heads(self) -> list[Id]:
        """How far looks have come in a row that nobody looked at."""
        return [ids.LEAST] * self._levels

    @property
    def news(self) -> bool:
        """Whether another thread said something that was not taken in yet."""
        return bool(self._news)

    def sent(self, row: str, moment: int, now: int) -> None:
        """Somebody in this process sent to a row, for this moment. Safe from any thread."""
        self.last_traffic = now
        self._tell(row, moment)

    def changed(self, row: str) -> None:
        """Somebody in this process raised a row's header past what is known of it here. Safe from any thread."""
        self._tell(row, _CHANGED)

    def _tell(self, row: str, moment: int) -> None:
        """Keep the least for each row: whoever only sends has nobody to take it in."""
        with self._asking:
            self._news[row] = min(moment, self._news.get(row, moment))

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
        with self._asking:
            news, self._news = self._news, {}
        for row, moment in news.items():
            if moment == _CHANGED:
                self.of[row].sight.forget()
            self.look_at(self.of[row], now if moment == _CHANGED else moment)

    def held_back(self, visit: Visit) -> int:
        """Until when a row is to be left alone; who insists obliges nobody."""
        return visit.not_before if visit.sight.row in self.insisted else max(visit.not_before, visit.obliging)

    def fire(self, *, on: bool) -> None:
        """Whether rows are looked at when a slot of a schedule falls due in them."""
        for visit in self.of.values():
            visit.sight.fires = on and is_home(visit.sight.row)

    def with_slot(self, now: int) -> Visit | None:
        """A row in which a slot may be due, as far as is known, if it is not for others to fire it."""
        self.take_in(now)
        homes = (self.of[self.ring.home(shard)] for shard in range(self.ring.layout.concurrency_shards))
        return next((visit for visit in homes if visit.not_before <= now and _may_fire(visit, now, shared=self.shared)), None)

    def look_at(self, visit: Visit, work: int, *, at: int = 0) -> None:
        """Something in a row is due at this moment; it is looked at then, or `at` a later one unless somebody asks."""
        visit.work = min(visit.work, work)
        self.looks.by(visit.sight.row, max(visit.work, visit.not_before, at))

    def current(self, now: int) -> list[Visit]:
        """The rows that are written to now."""
        return [self.of[row] for row in self.ring.current(now)]


def _may_fire(visit: Visit, now: int, *, shared: bool) -> bool:
    if not visit.sight.fires or (shared and not visit.lease.ours):
        return False
    slot = visit.sight.next_slot if visit.sight.known else now
    return slot is not None and slot <= now
