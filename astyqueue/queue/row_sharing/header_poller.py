"""Learns what other processes do in a queue's rows, by plain reads of headers and by the doorbell.

A poll reads the headers of many rows in one request: it shows the owner of each row, whether the row changed, and
whether anything waits in it. It only decides which rows to scan. Between polls the doorbell signals new messages.
While the queue is idle, a row is polled far ahead, and again in a turn of the queue, or shortly before that time ends.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.errors import SliceTooLong, Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.claiming.scan import work_probes
from astyqueue.protocol.coordination.doorbell import RebalanceRequest
from astyqueue.protocol.layout.columns import HEADER, Header, Type, decode_header
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Steps, read
from astyqueue.queue.row_sharing.idle_queues import QueueActivity
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.poll_plan import PollPlan
from astyqueue.queue.row_sharing.row_lease import RowLease
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.store import Column, Named, Slice
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: The time over which a new process spreads its scans of past rows.
_IN_NO_HURRY: Final = 30 * SECOND
#: The pause before the scan of a current row for messages that landed late: twice that between two polls of it after
#: recent traffic.
_LATE: Final = 2 * SECOND
#: The same in the first poll of a process: less than the wait of a consumer that leaves rows to their owners.
_LATE_AT_FIRST: Final = SECOND // 2
#: How long the owner leaves a requested row alone, and how long the requesting process tries to claim from it.
_PAUSE: Final = SECOND // 25
_TRYING: Final = 3 * SECOND // 10
#: The pause between two requests (±50 %).
_BETWEEN_REQUESTS: Final = SECOND // 10
#: This number of refusals of one claim in a queue with one concurrency shard means that other processes are nearer to
#: the store. A row whose lock was found busy this number of times is requested, too.
_CROWDED_OUT: Final = 3


@dataclass(slots=True, eq=False)
class _PolledRow:
    """A row, and what its header showed: its lease, and while no scan has read it the positions of scans and timers."""

    row: RowState
    lease: RowLease
    heads: list[Id]
    floor: int | None = None
    polled: bool = False

    def probes(self, until: int) -> list[Slice]:
        """The slices that show its open work: the next message of each priority, the next timer unless known."""
        timers = (
            []
            if self.row.known or self.floor is None
            else [Slice(self.row.name, Type.TIMER, 0, after=ids.first_at(self.floor), limit=1, values=False)]
        )
        return [*work_probes(self.row.name, self.row.heads or self.heads, until), *timers]


class HeaderPoller:
    """Polls the headers and the doorbell for one process, and plans scans of the rows in which something may be due.

    `has_work`: this process has claimed since it last had nothing to do.
    """

    def __init__(
        self,
        ring: Ring,
        clock: Clock,
        me: str,
        rows: Mapping[str, RowState],
        *,
        doorbell: PacedDoorbell,
        activity: QueueActivity,
        patience: float,
    ) -> None:
        """Plan a poll of every row by the process `me`, whose `patience` with other owners is between 1 and 2."""
        self.has_work = False
        self.plan = PollPlan(ring, rows, activity, clock)
        self._activity = activity
        self._ring = ring
        self._clock = clock
        self._me = me
        self._doorbell = doorbell
        self._requests = RebalanceRequests(me)
        self._never_scanned = [ids.LEAST] * ring.layout.priorities
        self._rows = {name: _PolledRow(row, RowLease(me, patience), self._never_scanned) for name, row in rows.items()}

    def __repr__(self) -> str:
        """The rows that it polls, and how many have owners."""
        owned = sum(bool(polled.lease.owner) for polled in self._rows.values())
        rows = f"{len(self._rows)} rows, {owned} owned, {len(self.plan.current)} current"
        return f"<HeaderPoller of {self._me}: {rows}>"

    @property
    def _current(self) -> list[_PolledRow]:
        return [self._rows[name] for name in self.plan.current]

    def begin_use(self, now: int) -> None:
        """The queue is in use again: find what other processes did while its doorbell was not read."""
        self.plan.begin_use(now)
        self._doorbell.expect_ring()

    def sweep(self, now: int) -> Steps[None]:
        """Look for what an idle queue has missed: at the doorbell, and in the rows whose polls are oldest."""
        yield from self._read_doorbell(now)
        self.plan.poll_oldest(now)
        yield from self.read_headers(now)

    def next_event(self, now: int) -> int:
        """The moment of the next read."""
        if self._activity.idle:
            return self.plan.next_event()
        return min(self.plan.next_event(), now + (self._doorbell.next_time - self._clock.monotonic()))

    def poll_by(self, row: RowState, moment: int) -> None:
        """Poll a row's header at this moment at the latest."""
        self.plan.by(row.name, moment)

    def is_owned_by_another(self, row: RowState) -> bool:
        """Whether another process owns a row."""
        return self._ring.shared and self._rows[row.name].lease.owned_by_another

    def is_abandoned(self, row: RowState) -> bool:
        """Whether the owner of a row has not changed it for five seconds, as far as this process knows."""
        return not self._rows[row.name].lease.active(self._clock.monotonic())

    def unchanged_since(self, row: RowState) -> MonotonicUs:
        """The monotonic moment since which the header of a row is unchanged, as far as this process knows."""
        return self._rows[row.name].lease.unchanged_since

    def may_claim(self, row: RowState, now: int) -> bool:
        """Whether this process may claim from a row now; if not, its header is polled at the moment at which it may."""
        at, lease = self._clock.monotonic(), self._rows[row.name].lease
        if row.ignores_owner or not self._ring.shared or lease.may_claim(row.due, now, at):
            return True
        self.poll_by(row, now + lease.time_until_claim(row.due, now, at))
        return False

    def refused(self, row: RowState, times: int) -> None:
        """Record that claims in a row were refused, or its lock was busy, this number of times in sequence."""
        self._requests.refused(row.name, times)

    def scanned(self, row: RowState, now: int) -> None:
        """Record the header that a scan of this process has read."""
        polled, snapshot = self._rows[row.name], row.snapshot
        if snapshot.header:
            polled.lease.update(snapshot.header.value, snapshot.header.decoded, self._clock.monotonic())
        self.poll_by(row, now + self._pause(polled, now))

    def _pause(self, polled: _PolledRow, now: int) -> int:
        row = polled.row
        return self.plan.pause(row.name, now, polled.lease.unchanged_since, has_timers=row.has_timers)

    def read_headers(self, now: int) -> Steps[None]:
        """Poll the rows whose turn it is, and probe those that their owners leave unchanged."""
        with self.plan.polling(now) as names:
            if names:
                yield from self._poll([self._rows[name] for name in names], now)

    def _poll(self, rows: list[_PolledRow], now: int) -> Steps[None]:
        found = yield from read(*[Named(polled.row.name, (HEADER,)) for polled in rows])
        for polled, columns in zip(rows, found, strict=True):
            self._apply(polled, columns[0].value if columns else None, now)
        probed = [polled for polled in rows if self._may_probe(polled)]
        for polled in rows:
            if polled not in probed:
                self.plan.unprobed(polled.row.name, now)
        yield from self._probe(probed, now)

    def _apply(self, polled: _PolledRow, value: bytes | None, now: int) -> None:
        """Record a row's current header, and plan a scan if it shows that something may be due."""
        row, header = polled.row, self._decoded(polled.row, value)
        row.check_header(value, now)
        changed = polled.lease.update(value, header, self._clock.monotonic())
        if changed and polled.polled:
            self._activity.used()
        if changed and not row.known:
            polled.heads = [cursors[0] for cursors in header.cursors] if header else self._never_scanned
            polled.floor = header.floor if header else None
            row.scan_only_at(self._first_scan(polled, header, now))
        else:
            row.scan_at(max(row.due, now))
        polled.polled = True
        self.plan.answered(row.name, now, self._pause(polled, now))

    def _first_scan(self, polled: _PolledRow, header: Header | None, now: int) -> int:
        """When to scan a row of which only the header is known; a probe that finds due messages brings that forward.

        A probe does not find messages that landed late, behind the head. Only a scan does, and the process that moved
        the head may have died or have no credit. In most past rows that can wait, as there are many. A new process
        includes those of the turn that ended last; one whose consumer does not wait has all such rows scanned at once,
        because all processes of the queue may live for so short a time.
        """
        row, first = polled.row, not polled.polled
        due = max(polled.floor or now, now)
        late = header is not None and any(min(cursors) < cursors[0] for cursors in header.cursors)
        current = row.name in self.plan.current
        if late and (current or (first and (row.ignores_owner or self.plan.was_current(row.name, now)))):
            pause = _LATE if not first else 0 if row.ignores_owner else _LATE_AT_FIRST
            return min(due, now + pause)
        return due if current else now + int(random.random() * _IN_NO_HURRY)

    def _decoded(self, row: RowState, value: bytes | None) -> Header | None:
        """The header in these bytes; if it is undecodable, the row is scanned, and the scan raises the error."""
        try:
            return decode_header(row.name, value) if value is not None else None
        except Undecodable:
            row.scan_soon()
            return None

    def _may_probe(self, polled: _PolledRow) -> bool:
        """Whether to probe it: it is past, no other process owns it, or its owner is ignored or left it unchanged."""
        if not self._ring.shared or polled.row.name not in self.plan.current or polled.row.ignores_owner:
            return True
        return polled.lease.left_unchanged(self._clock.monotonic())

    def _probe(self, rows: list[_PolledRow], now: int) -> Steps[None]:
        """Look for messages in these rows past their scan cursors; a message due later sets the time of the scan."""
        probes = self._probes(rows, now)
        if not probes:
            return
        try:
            found = yield from read(*[probe for _, probe in probes])
        except SliceTooLong:
            _scan_all(rows)
        else:
            _scan_where_found(probes, found)

    def _probes(self, rows: Iterable[_PolledRow], now: int) -> list[tuple[RowState, Slice]]:
        """The probes of these rows.

        A row that is known to have work is left out: under load that would be most rows, at each ring of the doorbell,
        and each probe passes again the tombstones that its scan is about to pass. Not so in an idle queue, whose next
        poll is far ahead: a scan does not see what falls due until then. Before its first poll nothing of a row is
        known, and a probe would pass all its tombstones.
        """
        found = [polled for polled in rows if polled.polled or polled.row.known]
        waiting = [polled for polled in found if self._activity.idle or polled.row.due > now]
        return [
            (polled.row, probe) for polled in waiting for probe in polled.probes(self.plan.until(polled.row.name, now))
        ]

    def read_doorbell(self, now: int) -> Steps[None]:
        """If it is time, read whether other processes sent to current rows, or request one that this process owns.

        It is read once before the first poll of a queue, so that in an idle one each later ring is new.
        """
        first = self._ring.shared and not self._doorbell.was_read
        if first or (not self._activity.idle and self._clock.monotonic() >= self._doorbell.next_time):
            yield from self._read_doorbell(now)

    def _read_doorbell(self, now: int) -> Steps[None]:
        probes = [] if self._ring.shared else self._probes(self._current, now)
        try:
            news, found = yield from self._doorbell.read(*[probe for _, probe in probes])
        except SliceTooLong:
            self._set_pace(now)
            _scan_all(self._current)
            return
        _scan_where_found(probes, found)
        self._set_pace(now)
        if news.rung:
            self._activity.used()
        if news.request:
            self._yield_row(news.request, now)
        yield from self._scan_or_probe([one for place, one in enumerate(self._current) if place in news.places], now)

    def _set_pace(self, now: int) -> None:
        self._doorbell.set_pace(now - self._activity.last_traffic, has_work=self.has_work)

    def _scan_or_probe(self, rung: list[_PolledRow], now: int) -> Steps[None]:
        """Probe rows that no other process owns; a row of another one is scanned once its owner leaves it unchanged.

        Where messages are blocked, the ring may be for the end of the message that blocked them.
        """
        for polled in rung:
            polled.row.scan_if_blocked(now)
            if polled.lease.owned_by_another:
                polled.row.scan_at(now)
        yield from self._probe([polled for polled in rung if not polled.lease.owned_by_another], now)

    def _yield_row(self, request: RebalanceRequest, now: int) -> None:
        """Leave a row alone for a moment, for the process that requests it."""
        polled = self._rows.get(request.row)
        if polled and request.process != self._me and not self.is_owned_by_another(polled.row):
            polled.row.yielded_until = now + _PAUSE

    def when_out_of_work(self, now: int) -> Steps[None]:
        """With nothing to do here, read the doorbell more often, and request a row if this process should have more.

        The row is one of a process that has too many, or one in which the claims of this process fail.
        """
        if self.has_work:
            self.has_work = False
            self._set_pace(now)
        at = self._clock.monotonic()
        owned = {one.row.name: one.lease.owner for one in self._current if self._ring.shared and one.lease.active(at)}
        name = self._requests.next(owned, at)
        if name is None:
            return
        polled = self._rows[name]
        polled.lease.requested_until = at + _TRYING
        yield from self._doorbell.request(RebalanceRequest(self._me, name))
        polled.row.scan_at(now)


def _scan_all(rows: Iterable[_PolledRow]) -> None:
    """Scan all these rows: a probe was too long for the store, and a scan reads slice by slice."""
    for polled in rows:
        polled.row.scan_soon()


def _scan_where_found(probes: list[tuple[RowState, Slice]], found: list[list[Column]]) -> None:
    """Plan scans for what probes have found."""
    for (row, _), columns in zip(probes, found, strict=True):
        if columns:
            row.expect(ids.moment(columns[0].name.id))


class RebalanceRequests:
    """Decides which row one process requests of others; moments are monotonic."""

    def __init__(self, me: str) -> None:
        """`me` is the name of this process."""
        self._me = me
        self._next = BEGINNING
        self._crowded_out: str | None = None

    def refused(self, row: str, times: int) -> None:
        """Record that claims in a row were refused, or its lock was busy, this number of times in sequence."""
        if times >= _CROWDED_OUT:
            self._crowded_out = row

    def next(self, owners: Mapping[str, str], at: MonotonicUs) -> str | None:
        """The row that a process out of work should request, by the owners of the current rows; None for none."""
        if at < self._next:
            return None
        row, self._crowded_out = self._crowded_out, None
        if row is None:
            return self._row_of_busiest(owners, at)
        self._rest(at)
        return row

    def _rest(self, at: MonotonicUs) -> None:
        """Make no request for a while; requests made at the same moment overwrite each other, hence the jitter."""
        self._next = at + int(_BETWEEN_REQUESTS * (0.5 + random.random()))

    def _row_of_busiest(self, owners: Mapping[str, str], at: MonotonicUs) -> str | None:
        """A row of the process that has most of them, if this one has less than its fair share."""
        if not owners:
            return None
        counts = Counter(owners.values())
        part = counts.total() // len({*counts, self._me})
        mine = counts.pop(self._me, 0)
        busiest = counts.most_common(1)
        if not busiest or mine >= max(1, part) or busiest[0][1] <= mine:
            return None
        owner, _ = busiest[0]
        self._rest(at)
        return random.choice([row for row, owned_by in owners.items() if owned_by == owner])
