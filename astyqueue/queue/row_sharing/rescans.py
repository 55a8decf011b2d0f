"""Rescans the rows of a queue for messages that landed late: affects cost and delay, never safety.

Every row is rescanned, whether it is written to now or not. A cell in the row records its last rescan, so that only one
of the queue's processes does it; if the cell is lost, the row is rescanned once more.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import StoreError, Undecodable
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.row.cursors import SCAN_LAGS
from astyqueue.protocol.row.rescan import RESCANNED, LastRescan, RowRescan, last_rescan_in, write_last_rescan
from astyqueue.protocol.steps import Client, Steps, read
from astyqueue.queue.row_sharing.deadline_heap import DeadlineHeap
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.store import Column, Named
from astyqueue.structured_log import log_event
from astyqueue.units import BEGINNING, SECOND

_log: Final = logging.getLogger("astyqueue.queue")
#: The time between two rescans of a row. A row that never closes is rescanned from this long before the last rescan.
EVERY: Final = 12 * 3_600 * SECOND
#: A new process waits for a minute, then reads the rescan cells of all rows within four (of an idle queue, those of two
#: rows in each turn). Later reads are delayed by up
#: to five minutes at random: processes do not come at once, and most often another one was first.
_FIRST: Final = 60 * SECOND
_SPREAD: Final = 4 * 60 * SECOND
_LATER: Final = 5 * 60 * SECOND
#: A rescan without a sign of progress for five minutes counts as abandoned; a live one writes a sign every minute.
_DEAD: Final = 5 * 60 * SECOND
_PROGRESS_EVERY: Final = 60 * SECOND
#: The pause between two pages: claims and settles have their turn.
_PAUSE: Final = SECOND // 20
#: Ordinary scans find messages younger than this.
_LOOKED_AT: Final = SCAN_LAGS[-1]


def due(ring: Ring, row: str, last: LastRescan) -> int:
    """When to rescan a row: half a day after the last rescan, or when its turn is over and the scans have passed it."""
    if not last.began:
        return 0
    again, seen_to = last.began + EVERY, last.began - _LOOKED_AT
    turn = ring.turn(row, seen_to)
    if turn is None:
        return again
    end = turn + ring.layout.time_shard_us
    return min(again, (end if end > seen_to else end + ring.lap) + _LOOKED_AT)


def since(ring: Ring, row: str, last: LastRescan, now: int) -> int:
    """Where to begin a rescan: at the last turn that was over at the rescan before; else half a day before that.

    A row that was never rescanned: its last two turns, or a day.
    """
    seen_to = (last.began or now) - _LOOKED_AT
    turn = ring.turn(row, seen_to - (ring.layout.time_shard_us if last.began else ring.lap))
    return turn if turn is not None else seen_to - (EVERY if last.began else 2 * EVERY)


@dataclass(slots=True)
class _Going:
    """The current rescan of this process; `said` is when it last wrote a sign of progress."""

    rescan: RowRescan
    before: LastRescan
    began: int
    said: int


class RescanScheduler:
    """Does the rescans of one process, one row and one page at a time."""

    def __init__(self, ring: Ring, clock: Clock, me: str, rows: Mapping[str, RowState], *, seed: float) -> None:
        """Plan to read the cell of every row within five minutes; `seed` makes delays differ between processes."""
        self._rows = rows
        self._ring = ring
        self._clock = clock
        self._process = Client(me, clock.now)
        self._agenda = DeadlineHeap()
        self._going: _Going | None = None
        self._next = BEGINNING
        self._chance = random.Random(seed)
        now = self._clock.now()
        for row in rows:
            self._agenda.set(row, now + _FIRST + self._up_to(_SPREAD))

    def was_set_back(self, now: int) -> None:
        """After the clock was set back: no row waits longer than usual from its new time."""
        for row in self._rows:
            self._agenda.lower(row, now + EVERY)

    def next_event(self, now: int) -> int:
        """The moment of the next read."""
        pause = self._next - self._clock.monotonic()
        return max(now + pause, now if self._going else self._agenda.next())

    @property
    def under_way(self) -> bool:
        """Whether this process is rescanning a row."""
        return self._going is not None

    def go_on(self, now: int, most: int) -> Steps[None]:
        """Do the next small part, if it is due: the cells of `most` rows, or a page of a rescan.

        An unreadable row is left for later: claims from it raise the error.
        """
        if self.next_event(now) > now:
            return
        self._next = self._clock.monotonic() + _PAUSE
        try:
            yield from (self._choose(now, most) if self._going is None else self._go_on(self._going, now))
        except (StoreError, Undecodable):
            self._going = None

    def _choose(self, now: int, most: int) -> Steps[None]:
        """Read the cells of rows, and begin with the first row whose rescan is due and not done by another process."""
        rows = self._agenda.take_several(now, most)
        for row in rows:
            self._agenda.set(row, now + _DEAD + self._up_to(_LATER))
        found = yield from read(*[Named(row, (HEADER, RESCANNED)) for row in rows])
        for row, columns in zip(rows, found, strict=True):
            cells = {column.name: column for column in columns}
            last = last_rescan_in(cells.get(RESCANNED), now)
            moment = due(self._ring, row, last if HEADER in cells else LastRescan(now))
            if last.going > now - _DEAD:
                moment = max(moment, last.going + _DEAD)
            if moment > now:
                self._agenda.set(row, moment + self._up_to(_LATER))
            elif self._going is None:
                yield from self._begin(row, last, now, header=cells[HEADER])
            else:
                self._agenda.set(row, now)

    def _begin(self, row: str, last: LastRescan, now: int, *, header: Column) -> Steps[None]:
        """Begin with a row; if there is nothing to rescan in it, it is done at once and nothing is written."""
        begin, state = since(self._ring, row, last, now), self._rows[row]
        levels, window, heads = self._ring.layout.priorities, state.read_window, state.heads or ()
        rescan = RowRescan(self._process, row, levels, begin, window=window, heads=heads)
        yield from rescan.begin(header)
        if rescan.over:
            self._agenda.set(row, due(self._ring, row, LastRescan(now)) + self._up_to(_LATER))
            return
        self._going = _Going(rescan, last, began=now, said=now)
        yield from write_last_rescan(row, last._replace(going=now))

    def _go_on(self, going: _Going, now: int) -> Steps[None]:
        rescan, listed = going.rescan, going.rescan.listed
        try:
            yield from rescan.go_on()
        finally:
            if rescan.listed > listed:
                self._found(rescan.row, rescan.listed - listed, now)
        if rescan.over:
            self._going = None
            done = LastRescan(going.began)
            self._agenda.set(rescan.row, due(self._ring, rescan.row, done) + self._up_to(_LATER))
            yield from write_last_rescan(rescan.row, done)
        elif now - going.said >= _PROGRESS_EVERY:
            going.said = now
            yield from write_last_rescan(rescan.row, going.before._replace(going=now))

    def _found(self, row: str, count: int, now: int) -> None:
        """Scan a row now: the rescan made messages due in it and changed its header."""
        log_event(_log, logging.WARNING, "late_messages_found", row=row, messages=count)
        self._rows[row].scan_changed(now)

    def _up_to(self, most: int) -> int:
        return int(self._chance.random() * most)
