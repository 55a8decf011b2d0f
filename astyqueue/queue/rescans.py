"""When the rows of a queue are rescanned for what landed late: cost and delay, never safety.

Every row has its turn whether anything moves in it or not. A cell in the row says when it was last rescanned, so that the
processes of a queue do it once between them; where the cell is lost, it is done once more.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.errors import StoreError, Undecodable
from astyqueue.protocol.columns import HEADER
from astyqueue.protocol.looks import LAGS
from astyqueue.protocol.process import Process
from astyqueue.protocol.rescan import RESCANNED, Rescanned, RowRescan, note_rescanned, rescanned_in
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps, read
from astyqueue.queue.agenda import Agenda
from astyqueue.queue.visits import Visits
from astyqueue.store import Column, Named

_log: Final = logging.getLogger("astyqueue.queue")
#: How often a row is rescanned, and how much further than the last time a row is rescanned that never closes.
EVERY: Final = 12 * 3_600 * SECOND
#: A new process has other things to do at first. Then it asks about its rows within this time, and about each again so much
#: later than it might: processes are not to come at once, and most often another one was first.
_FIRST: Final = 60 * SECOND
_SPREAD: Final = 4 * 60 * SECOND
_LATER: Final = 5 * 60 * SECOND
#: A process that says so rarely that it goes on is taken for dead; and how often one that lives says so.
_DEAD: Final = 5 * 60 * SECOND
_SAYS: Final = 60 * SECOND
#: Between two pages, so that claims and settles have their turn.
_PAUSE: Final = SECOND // 20
#: Rows that are asked about together.
_TOGETHER: Final = 8
#: The ordinary looks see to what is younger than this.
_LOOKED_AT: Final = LAGS[-1]


def due(ring: Ring, row: str, last: Rescanned) -> int:
    """When a row is to be rescanned: half a day after the last time, or once its turn is over and the looks have gone through it."""
    if not last.began:
        return 0
    again, seen_to = last.began + EVERY, last.began - _LOOKED_AT
    turn = ring.turn(row, seen_to)
    if turn is None:
        return again
    end = turn + ring.layout.time_shard_us
    return min(again, (end if end > seen_to else end + ring.lap) + _LOOKED_AT)


def since(ring: Ring, row: str, last: Rescanned, now: int) -> int:
    """From where a row is to be rescanned: the turn that was the last to be over at the time before; or half a day before that.

    Of a row that nobody ever rescanned, its last two turns, or a day.
    """
    seen_to = (last.began or now) - _LOOKED_AT
    turn = ring.turn(row, seen_to - (ring.layout.time_shard_us if last.began else ring.lap))
    return turn if turn is not None else seen_to - (EVERY if last.began else 2 * EVERY)


@dataclass(slots=True)
class _Going:
    """The rescan that this process is at; `said` is when it last told the others."""

    rescan: RowRescan
    before: Rescanned
    began: int
    said: int


class Rescans:
    """The rescans of one process: one row at a time, a page at a time."""

    def __init__(self, visits: Visits, me: str) -> None:
        """Ask about every row within five minutes."""
        self._visits = visits
        self._ring = visits.ring
        self._clock = visits.clock
        self._process = Process(me, visits.clock.now)
        self._agenda = Agenda()
        self._going: _Going | None = None
        self._next = 0
        self._chance = random.Random(visits.patience)
        now = self._clock.now()
        for row in visits.of:
            self._agenda.set(row, now + _FIRST + self._up_to(_SPREAD))

    def was_set_back(self, now: int) -> None:
        """The clock was set back: no row waits longer than usual from the time it shows."""
        for row in self._visits.of:
            self._agenda.by(row, now + EVERY)

    def next_event(self, now: int) -> int:
        """When there is something to read."""
        pause = self._next - self._clock.monotonic()
        return max(now + pause, now if self._going else self._agenda.next())

    def go_on(self, now: int) -> Steps[None]:
        """Do a little of it, if it is time. A row that cannot be read now is left for later: whoever claims from it will hear of that."""
        if self.next_event(now) > now:
            return
        self._next = self._clock.monotonic() + _PAUSE
        try:
            yield from (self._choose(now) if self._going is None else self._go_on(self._going, now))
        except (StoreError, Undecodable):
            self._going = None

    def _choose(self, now: int) -> Steps[None]:
        """Ask about rows, and begin with the first that others have not seen to."""
        rows = self._agenda.take_several(now, _TOGETHER)
        for row in rows:
            self._agenda.set(row, now + _DEAD + self._up_to(_LATER))
        found = yield from read(*[Named(row, (HEADER, RESCANNED)) for row in rows])
        for row, columns in zip(rows, found, strict=True):
            cells = {column.name: column for column in columns}
            last = rescanned_in(cells.get(RESCANNED), now)
            moment = due(self._ring, row, last if HEADER in cells else Rescanned(now))
            if last.going > now - _DEAD:
                moment = max(moment, last.going + _DEAD)
            if moment > now:
                self._agenda.set(row, moment + self._up_to(_LATER))
            elif self._going is None:
                yield from self._begin(row, last, now, header=cells[HEADER])
            else:
                self._agenda.set(row, now)

    def _begin(self, row: str, last: Rescanned, now: int, *, header: Column) -> Steps[None]:
        """Begin with a row; one in which nothing has passed is done with at once, and nothing is written."""
        strides = self._visits.of[row].sight.strides
        rescan = RowRescan(self._process, row, self._ring.layout.priorities, since(self._ring, row, last, now), strides=strides)
        yield from rescan.begin(header)
        if rescan.over:
            self._agenda.set(row, due(self._ring, row, Rescanned(now)) + self._up_to(_LATER))
            return
        self._going = _Going(rescan, last, began=now, said=now)
        yield from note_rescanned(row, last._replace(going=now))

    def _go_on(self, going: _Going, now: int) -> Steps[None]:
        rescan, listed = going.rescan, going.rescan.listed
        try:
            yield from rescan.go_on()
        finally:
            if rescan.listed > listed:
                self._found(rescan.row, rescan.listed - listed, now)
        if rescan.over:
            self._going = None
            done = Rescanned(going.began)
            self._agenda.set(rescan.row, due(self._ring, rescan.row, done) + self._up_to(_LATER))
            yield from note_rescanned(rescan.row, done)
        elif now - going.said >= _SAYS:
            going.said = now
            yield from note_rescanned(rescan.row, going.before._replace(going=now))

    def _found(self, row: str, count: int, now: int) -> None:
        """What was listed is due now; the header that is known here is another by now."""
        _log.warning("row %s: %d messages had landed behind what was read; they are handed out now", row, count)
        visit = self._visits.of[row]
        visit.sight.forget()
        self._visits.look_at(visit, now)

    def _up_to(self, most: int) -> int:
        return int(self._chance.random() * most)
