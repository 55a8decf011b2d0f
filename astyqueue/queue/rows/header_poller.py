"""Learns what other processes do in a queue's rows, by plain reads of headers and by the doorbell.

A poll reads the headers of many rows in one request: it shows the owner of each row, whether the row changed, and
whether anything waits in it. It only decides which rows to scan. Between polls the doorbell signals new messages.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Final

from astyqueue import ids
from astyqueue.errors import SliceTooLong, Undecodable
from astyqueue.protocol.claiming.scan import has_work
from astyqueue.protocol.coordination.doorbell import RowRequest
from astyqueue.protocol.layout.columns import HEADER, Header, Type, decode_header
from astyqueue.protocol.steps import Steps, read
from astyqueue.queue.rows.deadline_heap import DeadlineHeap
from astyqueue.queue.rows.doorbell import Doorbell
from astyqueue.queue.rows.row_lease import RowLease
from astyqueue.queue.rows.row_states import RowState, RowStates
from astyqueue.store import Column, Named, Slice
from astyqueue.units import NEVER, SECOND

#: The pause between two reads of a row's header: of a current row after recent traffic; of another current row, and of
#: one with timers or a recent change; of a resting row.
_CURRENT: Final = SECOND
_OPEN: Final = 2 * SECOND
_RESTING: Final = 60 * SECOND
#: A past row is read again when the time since its last change has grown by a tenth: few messages land very late in it.
_PART: Final = 10
_TRAFFIC: Final = 60 * SECOND
#: The number of rows in one poll.
_TOGETHER: Final = 32
#: The pause before a poll without an answer is tried again.
_UNANSWERED: Final = 5 * SECOND
#: The time over which a new process spreads its scans of past rows.
_IN_NO_HURRY: Final = 30 * SECOND
#: How long the owner leaves a requested row alone, and how long the requesting process tries to claim from it.
_PAUSE: Final = SECOND // 25
_TRYING: Final = 3 * SECOND // 10
#: The turn of a row that was never polled: before every other.
_FIRST: Final = 1
#: The pause between two requests (±50 %): while a process has more than its fair share, and when there are too few
#: rows.
_UNFAIR: Final = SECOND // 10
_SCARCE: Final = SECOND
#: This number of refusals of one claim in a single-row queue means that other processes are nearer to the store.
_CROWDED_OUT: Final = 3


class HeaderPoller:
    """Polls the headers and the doorbell for one process, and decides which rows to scan."""

    def __init__(self, row_states: RowStates) -> None:
        """Plan a poll of every row."""
        self.doorbell = Doorbell(row_states.ring, row_states.clock)
        self.wishes = RebalanceRequests(row_states.me)
        self._row_states = row_states
        self._clock = row_states.clock
        self._agenda = DeadlineHeap()
        self._closes = 0
        self._current: list[RowState] = []
        self.start_anew()

    def start_anew(self) -> None:
        """Poll every row as soon as possible."""
        self._closes = 0
        for row in self._row_states.of:
            self._agenda.set(row, _FIRST)

    def hurry(self) -> None:
        """Poll the current rows next."""
        for visit in self._current:
            self._agenda.set(visit.snapshot.row, _FIRST)

    @property
    def complete(self) -> bool:
        """Whether every row was polled at least once, and every current row since the last `hurry`."""
        return self._agenda.next() > _FIRST

    def next_event(self, now: int) -> int:
        """The moment of the next read."""
        return min(self._agenda.next(), now + self.doorbell.next_time - self._clock.monotonic(), self._closes)

    def by(self, visit: RowState, moment: int) -> None:
        """Poll a row's header at this moment at the latest."""
        self._agenda.by(visit.snapshot.row, moment)

    def visited(self, visit: RowState, now: int) -> None:
        """Record the header that a scan of this process has read."""
        if visit.snapshot.known:
            visit.lease.seen(visit.snapshot.value, visit.snapshot.header, self._clock.monotonic())
        self.by(visit, now + self._pace(visit, now))

    def _pace(self, visit: RowState, now: int) -> int:
        """The pause until a header is read again: short where new work is likely or timers are pending."""
        if visit in self._current:
            return _CURRENT if now - self._row_states.last_traffic < _TRAFFIC else _OPEN
        if visit.snapshot.timers:
            return _OPEN
        return min(max(_OPEN, (self._clock.monotonic() - visit.lease.since) // _PART), _RESTING)

    def read(self, now: int) -> Steps[None]:
        """Poll the rows whose turn it is, and peek into those that their owners leave idle."""
        self._turn(now)
        rows = [self._row_states.of[row] for row in self._agenda.take_several(now, _TOGETHER)]
        if not rows:
            return
        for visit in rows:
            self._agenda.set(visit.snapshot.row, now + _UNANSWERED)
        found = yield from read(*[Named(visit.snapshot.row, (HEADER,)) for visit in rows])
        for visit, columns in zip(rows, found, strict=True):
            self._see(visit, columns[0].value if columns else None, now)
        yield from self._peek([visit for visit in rows if self._is_idle(visit)], now)

    def _turn(self, now: int) -> None:
        """When the next time shard begins, poll its rows."""
        if now < self._closes:
            return
        self._current, self._closes = self._row_states.current(now), self._row_states.ring.closes(now)
        for visit in self._current:
            self._agenda.set(visit.snapshot.row, 0)

    def _see(self, visit: RowState, value: bytes | None, now: int) -> None:
        """Record a row's current header."""
        header = self._decoded(visit, value)
        visit.snapshot.surveyed(value, now)
        changed = visit.lease.seen(value, header, self._clock.monotonic())
        if changed and not visit.snapshot.known:
            visit.heads = [cursors[0] for cursors in header.cursors] if header else self._row_states.first_heads
            visit.floor = header.floor if header else None
            visit.work = NEVER
            self._row_states.look_at(visit, self._first_scan(visit, now))
        elif visit.work < NEVER:
            self._row_states.look_at(visit, max(visit.work, now))
        self._agenda.set(visit.snapshot.row, now + self._pace(visit, now))

    def _first_scan(self, visit: RowState, now: int) -> int:
        """When to scan a row of which only the header is known; a peek that finds due messages brings the scan forward.

        A past row is scanned only for messages that landed late and unseen: that can wait, and there are many such
        rows.
        """
        if visit in self._current:
            return max(visit.floor or now, now)
        return now + int(random.random() * _IN_NO_HURRY)

    def _decoded(self, visit: RowState, value: bytes | None) -> Header | None:
        """The header in these bytes; if it is undecodable, the row is scanned, and the scan raises the error."""
        try:
            return decode_header(visit.snapshot.row, value) if value is not None else None
        except Undecodable:
            self._row_states.look_at(visit, visit.not_before)
            return None

    def _is_idle(self, visit: RowState) -> bool:
        """Whether to peek into a row: it is past, ours, insisted on, or its owner left it unchanged for a while."""
        at = self._clock.monotonic()
        if not self._row_states.shared or visit not in self._current or visit.snapshot.row in self._row_states.insisted:
            return True
        return at - visit.lease.since >= visit.lease.waits(at)

    def _peek(self, rows: list[RowState], now: int) -> Steps[None]:
        """Peek for messages in these rows past their scan cursors; a message due later sets the time of the scan.

        A row that is known to have work is left out: under load that would be most rows, at each ring of the doorbell.
        """
        asked = [(visit, wanted) for visit in rows if visit.work > now for wanted in self._open_work(visit, now)]
        if not asked:
            return
        try:
            found = yield from read(*[wanted for _, wanted in asked])
        except SliceTooLong:
            self._scan_all(rows)
        else:
            self._found(asked, found)

    def _scan_all(self, rows: list[RowState]) -> None:
        """Scan all these rows: the peek was too long for the store, and a scan reads slice by slice."""
        for visit in rows:
            self._row_states.look_at(visit, visit.not_before)

    def _found(self, asked: list[tuple[RowState, Slice]], found: list[list[Column]]) -> None:
        for (visit, _), columns in zip(asked, found, strict=True):
            if columns:
                self._row_states.look_at(visit, ids.moment(columns[0].name.id))

    def listen(self, now: int, *, busy: bool) -> Steps[None]:
        """Read from the doorbell whether other processes sent to current rows, or request one of ours."""
        if self._clock.monotonic() < self.doorbell.next_time:
            return
        now_open = [] if self._row_states.shared else self._current
        asked = [(visit, wanted) for visit in now_open for wanted in self._open_work(visit, now)]
        try:
            heard, found = yield from self.doorbell.listen(*[wanted for _, wanted in asked])
        except SliceTooLong:
            self.doorbell.pace(now - self._row_states.last_traffic, busy=busy)
            self._scan_all(self._current)
            return
        self._found(asked, found)
        self.doorbell.pace(now - self._row_states.last_traffic, busy=busy)
        if heard.wish and (visit := self._row_states.of.get(heard.wish.row)):
            self._yield_row(visit, heard.wish, now)
        yield from self._hear([visit for place, visit in enumerate(self._current) if place in heard.places], now)

    def _hear(self, rung: list[RowState], now: int) -> Steps[None]:
        """Peek for what was sent to our rows; others' rows are left to their owners for a while."""
        for visit in rung:
            if not visit.lease.ours:
                self._row_states.look_at(visit, now)
        yield from self._peek([visit for visit in rung if visit.lease.ours], now)

    def _yield_row(self, visit: RowState, wish: RowRequest, now: int) -> None:
        """Leave a row alone for a moment, for the process that requests it."""
        if wish.process != self._row_states.me and (visit.lease.ours or not self._row_states.shared):
            visit.obliging = now + _PAUSE

    def wish(self, now: int) -> Steps[None]:
        """With nothing to do here, request a row: of a process that has too many, or one in which our claims fail."""
        at = self._clock.monotonic()
        row = self.wishes.next(
            {visit.snapshot.row: visit.lease for visit in self._current if self._row_states.shared}, at
        )
        if row is None:
            return
        visit = self._row_states.of[row]
        visit.lease.asked_until = at + _TRYING
        yield from self.doorbell.want(RowRequest(self._row_states.me, row))
        self._row_states.look_at(visit, now)

    def _open_work(self, visit: RowState, now: int) -> list[Slice]:
        """The slices that show the open work of a row: the next message of each priority, the next timer unless known.

        They end a little after the row's next poll, which finds later messages in time even if it is late or tried
        again: the tombstones of all delayed messages that were cancelled or debounced may lie between the head and the
        next one.
        """
        row, floor = visit.snapshot.row, visit.floor
        until = now + min(max(0, self._agenda.at(row) - now), _RESTING) + 2 * _UNANSWERED
        timers = (
            []
            if visit.snapshot.known or floor is None
            else [Slice(row, Type.TIMER, 0, after=ids.first_at(floor), limit=1, values=False)]
        )
        return [*has_work(row, visit.seen_heads, until), *timers]


class RebalanceRequests:
    """Decides which row one process requests of others; moments are monotonic."""

    def __init__(self, me: str) -> None:
        """`me` is the name of this process."""
        self._me = me
        self._next = 0
        self._crowded_out: str | None = None

    def refused(self, row: str, times: int) -> None:
        """Record that a claim in a row without owners was refused this number of times."""
        if times >= _CROWDED_OUT:
            self._crowded_out = row

    def next(self, leases: Mapping[str, RowLease], at: int) -> str | None:
        """The row that an idle process should request, by the leases of the current rows; None for no request."""
        if at < self._next:
            return None
        row, self._crowded_out = self._crowded_out, None
        if row is None:
            return self._row_of_busiest(leases, at)
        self._rest(at, _UNFAIR)
        return row

    def _rest(self, at: int, pause: int) -> None:
        """Make no request for a while; requests made at the same moment overwrite each other, hence the jitter."""
        self._next = at + int(pause * (0.5 + random.random()))

    def _row_of_busiest(self, leases: Mapping[str, RowLease], at: int) -> str | None:
        """A row of the process that has most of them, if this one has less than its fair share."""
        owners = Counter(lease.owner for lease in leases.values() if lease.active(at))
        part = owners.total() // len({*owners, self._me})
        mine = owners.pop(self._me, 0)
        busiest = owners.most_common(1)
        if not busiest or mine >= max(1, part) or busiest[0][1] <= mine:
            return None
        owner, most = busiest[0]
        self._rest(at, _UNFAIR if most > part else _SCARCE)
        return random.choice([row for row, lease in leases.items() if lease.owner == owner])
