"""Learning what other processes do in a queue's rows: by plain readings of headers, and by the doorbell.

A survey reads the headers of many rows at once and decides nothing but where to look: it tells whose a row is, whether it
changed, and whether anything waits in it. Between surveys the doorbell tells of what was just sent.
"""

from __future__ import annotations

import random
from typing import Final

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.errors import SliceTooLong, Undecodable
from astyqueue.protocol.bell import Wish
from astyqueue.protocol.columns import HEADER, Header, Type, decode_header
from astyqueue.protocol.look import glance
from astyqueue.protocol.steps import Steps, read
from astyqueue.queue.agenda import NEVER, Agenda
from astyqueue.queue.doorbell import Doorbell
from astyqueue.queue.visits import Visit, Visits
from astyqueue.queue.wishes import Wishes
from astyqueue.store import Column, Named, Slice

#: How often the header of a row is read: of one that is written to, while there was traffic lately; of one in which
#: something is open, or that has just changed; of one that rests.
_CURRENT: Final = SECOND
_OPEN: Final = 2 * SECOND
_RESTING: Final = 60 * SECOND
#: A row of the past is read again when the time since its last change is longer by such a part: few land very late in it.
_PART: Final = 10
_TRAFFIC: Final = 60 * SECOND
#: Rows of one survey.
_TOGETHER: Final = 32
#: A survey that got no answer is tried again so much later.
_UNANSWERED: Final = 5 * SECOND
#: Over so long a new process spreads its looks at rows of the past.
_IN_NO_HURRY: Final = 30 * SECOND
#: How long a row is left alone for somebody who wants it, and how long who asked tries to get in.
_PAUSE: Final = SECOND // 25
_TRYING: Final = 3 * SECOND // 10
#: The turn of a row that was never surveyed: before every other.
_FIRST: Final = 1


class Survey:
    """What one process knows of the others."""

    def __init__(self, visits: Visits) -> None:
        """Every row is to be surveyed."""
        self.doorbell = Doorbell(visits.ring, visits.clock)
        self.wishes = Wishes(visits.me)
        self._visits = visits
        self._clock = visits.clock
        self._agenda = Agenda()
        self._closes = 0
        self._current: list[Visit] = []
        self.start_anew()

    def start_anew(self) -> None:
        """Have every row surveyed as soon as may be."""
        self._closes = 0
        for row in self._visits.of:
            self._agenda.set(row, _FIRST)

    def hurry(self) -> None:
        """Have the current rows surveyed next."""
        for visit in self._current:
            self._agenda.set(visit.sight.row, _FIRST)

    @property
    def complete(self) -> bool:
        """Whether every row was seen at least once, and since the last hurry."""
        return self._agenda.next() > _FIRST

    def next_event(self, now: int) -> int:
        """When there will be something to read."""
        return min(self._agenda.next(), now + self.doorbell.next_time - self._clock.monotonic(), self._closes)

    def by(self, visit: Visit, moment: int) -> None:
        """See a row's header at this moment at the latest."""
        self._agenda.by(visit.sight.row, moment)

    def visited(self, visit: Visit, now: int) -> None:
        """Take note of what a look here has shown of the header."""
        if visit.sight.known:
            visit.lease.seen(visit.sight.value, visit.sight.header, self._clock.monotonic())
        self.by(visit, now + self._pace(visit, now))

    def _pace(self, visit: Visit, now: int) -> int:
        """How long until a header is read again: often where work may turn up, or something is hidden."""
        if visit in self._current:
            return _CURRENT if now - self._visits.last_traffic < _TRAFFIC else _OPEN
        if visit.sight.timers:
            return _OPEN
        return min(max(_OPEN, (self._clock.monotonic() - visit.lease.since) // _PART), _RESTING)

    def read(self, now: int) -> Steps[None]:
        """Read the headers of the rows whose turn it is, and see whether anything waits in those that nobody moves."""
        self._turn(now)
        visits = [self._visits.of[row] for row in self._agenda.take_several(now, _TOGETHER)]
        if not visits:
            return
        for visit in visits:
            self._agenda.set(visit.sight.row, now + _UNANSWERED)
        found = yield from read(*[Named(visit.sight.row, (HEADER,)) for visit in visits])
        for visit, columns in zip(visits, found, strict=True):
            self._see(visit, columns[0].value if columns else None, now)
        yield from self._glance([visit for visit in visits if self._lies_still(visit)], now)

    def _turn(self, now: int) -> None:
        """When the next time shard begins, survey its rows."""
        if now < self._closes:
            return
        self._current, self._closes = self._visits.current(now), self._visits.ring.closes(now)
        for visit in self._current:
            self._agenda.set(visit.sight.row, 0)

    def _see(self, visit: Visit, value: bytes | None, now: int) -> None:
        """Take note of a row's header as it stands."""
        header = self._decoded(visit, value)
        visit.sight.surveyed(value, now)
        changed = visit.lease.seen(value, header, self._clock.monotonic())
        if changed and not visit.sight.known:
            visit.heads = [cursors[0] for cursors in header.cursors] if header else self._visits.first_heads
            visit.floor = header.floor if header else None
            visit.work = NEVER
            self._visits.look_at(visit, self._first_look(visit, now))
        elif visit.work < NEVER:
            self._visits.look_at(visit, max(visit.work, now))
        self._agenda.set(visit.sight.row, now + self._pace(visit, now))

    def _first_look(self, visit: Visit, now: int) -> int:
        """When to look at a row of which nothing is known but its header; what lies open in it has it looked at sooner.

        In a row of the past there may be what landed late and nobody saw: there is no hurry, and there are many such rows.
        """
        if visit in self._current:
            return max(visit.floor or now, now)
        return now + int(random.random() * _IN_NO_HURRY)

    def _decoded(self, visit: Visit, value: bytes | None) -> Header | None:
        """The header in these bytes; what cannot be read has the row looked at, which tells."""
        try:
            return decode_header(visit.sight.row, value) if value is not None else None
        except Undecodable:
            self._visits.look_at(visit, visit.not_before)
            return None

    def _lies_still(self, visit: Visit) -> bool:
        """Whether a row is of the past, ours, or was not moved by its owner for a while: then we see for ourselves what is open."""
        at = self._clock.monotonic()
        if not self._visits.shared or visit not in self._current or visit.sight.row in self._visits.insisted:
            return True
        return at - visit.lease.since >= visit.lease.waits(at)

    def _glance(self, visits: list[Visit], now: int) -> Steps[None]:
        """See whether anything is open in these rows beyond what was looked at; what is due later tells when to look.

        A row that is known to have work is not asked: under load that would be most rows, at each ring of the bell.
        """
        asked = [(visit, wanted) for visit in visits if visit.work > now for wanted in self._questions(visit, now)]
        if not asked:
            return
        try:
            found = yield from read(*[wanted for _, wanted in asked])
        except SliceTooLong:
            self._look_at_all(visits)
        else:
            self._found(asked, found)

    def _look_at_all(self, visits: list[Visit]) -> None:
        """A glance was too much for the store; a look goes through it stretch by stretch."""
        for visit in visits:
            self._visits.look_at(visit, visit.not_before)

    def _found(self, asked: list[tuple[Visit, Slice]], found: list[list[Column]]) -> None:
        for (visit, _), columns in zip(asked, found, strict=True):
            if columns:
                self._visits.look_at(visit, ids.moment(columns[0].name.id))

    def listen(self, now: int, *, busy: bool) -> Steps[None]:
        """Hear whether other processes sent anything to the rows that are written to now, or want one of ours."""
        if self._clock.monotonic() < self.doorbell.next_time:
            return
        now_open = [] if self._visits.shared else self._current
        asked = [(visit, wanted) for visit in now_open for wanted in self._questions(visit, now)]
        try:
            heard, found = yield from self.doorbell.listen(*[wanted for _, wanted in asked])
        except SliceTooLong:
            self.doorbell.pace(now - self._visits.last_traffic, busy=busy)
            self._look_at_all(self._current)
            return
        self._found(asked, found)
        self.doorbell.pace(now - self._visits.last_traffic, busy=busy)
        if heard.wish and (visit := self._visits.of.get(heard.wish.row)):
            self._oblige(visit, heard.wish, now)
        yield from self._hear([visit for place, visit in enumerate(self._current) if place in heard.places], now)

    def _hear(self, rung: list[Visit], now: int) -> Steps[None]:
        """See what was sent to our rows; others' are left to their owners for a while."""
        for visit in rung:
            if not visit.lease.ours:
                self._visits.look_at(visit, now)
        yield from self._glance([visit for visit in rung if visit.lease.ours], now)

    def _oblige(self, visit: Visit, wish: Wish, now: int) -> None:
        """Leave a row alone for a moment, for somebody who wants it."""
        if wish.process != self._visits.me and (visit.lease.ours or not self._visits.shared):
            visit.obliging = now + _PAUSE

    def wish(self, now: int) -> Steps[None]:
        """With nothing to do here, ask for a row of which others have too many, or from which they crowd us out."""
        at = self._clock.monotonic()
        row = self.wishes.next({visit.sight.row: visit.lease for visit in self._current if self._visits.shared}, at)
        if row is None:
            return
        visit = self._visits.of[row]
        visit.lease.asked_until = at + _TRYING
        yield from self.doorbell.want(Wish(self._visits.me, row))
        self._visits.look_at(visit, now)

    def _questions(self, visit: Visit, now: int) -> list[Slice]:
        """The slices that tell what is open in a row: its next message of each priority, and its next timer unless all are known.

        What is due long after the row's next survey is not asked for: between the head and the first of it may lie all the delayed
        messages that were cancelled or debounced. That survey sees it in time, also if it is late or tried again.
        """
        row, floor = visit.sight.row, visit.floor
        until = now + min(max(0, self._agenda.at(row) - now), _RESTING) + 2 * _UNANSWERED
        timers = [] if visit.sight.known or floor is None else [Slice(row, Type.TIMER, 0, after=ids.first_at(floor), limit=1, values=False)]
        return [*glance(row, visit.seen_heads, until), *timers]
