"""Decides which row to scan next: affects cost and delay, never safety.

Every row has a moment of its next scan, which may end in a claim: after a send to it or a claim that left messages,
when a message or timer in it falls due, or when a late scan does. The row with the earliest moment is next, so none
starves.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from astyqueue.clock import Clock
from astyqueue.errors import StoreError
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.layout.rows import Ring, is_home
from astyqueue.protocol.row.bounded_reads import MessageSizes, ReadWindow
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Steps, read
from astyqueue.queue.row_sharing.deadline_heap import DeadlineHeap
from astyqueue.queue.row_sharing.header_poller import HeaderPoller
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch, QueueActivity
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.rescans import RescanScheduler
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.store import Named
from astyqueue.units import BEGINNING, NEVER, SECOND, MonotonicUs

#: The pause before another scan for due messages that were not claimed (a suspect that must be claimed alone, or a
#: message from a clock that is ahead).
_AGAIN: Final = SECOND // 20
#: The pause of a row in which no occurrence could be fired.
_NOTHING_FIRED: Final = SECOND // 20
#: How long an occurrence is left to the owner of its row.
_FIRED_BY_OWNER: Final = SECOND
#: The pause between two reads of the headers of rows with schedules, by a process without credit.
_LOOK: Final = SECOND
#: The pause between two reads of a busy row's header, which show whether another process works there.
_WATCHED: Final = SECOND // 2
#: The number of rows whose rescans are checked together: in the turn of an idle queue, and otherwise.
_RESCANS_IN_TURN: Final = 2
_RESCANS_TOGETHER: Final = 8
#: In place of a moment: a header commit made the snapshot of the row stale.
_CHANGED: Final = -1


class RowScheduler:
    """Chooses the next row of a queue for one process.

    Any thread reports what makes a row due (`report_due`, `report_changed`) and requests scans (`request`, `answered`).
    The leader calls everything else: each round `begin_round`, and then `poll`, `next_row` and `visiting`, or
    `when_out_of_work`.

    `shared`: rows have owners; a single row is used by all processes.
    """

    def __init__(
        self, ring: Ring, clock: Clock, me: str, doorbell: PacedDoorbell, *, watch: ActivityWatch | None = None
    ) -> None:
        """Plan a poll of every row at once, the current rows first: the process `me` knows nothing of any row.

        All queues of a connection share one `watch`.
        """
        self.activity = QueueActivity(ring.queue, watch or ActivityWatch(clock), clock)
        self.shared = ring.shared
        self._ring = ring
        self._clock = clock
        patience = 1 + random.random()
        self._scans = DeadlineHeap()
        self.rows = _unknown_rows(ring, self._scans)
        self.poller = HeaderPoller(
            ring, clock, me, self.rows, doorbell=doorbell, activity=self.activity, patience=patience
        )
        self._rescans = RescanScheduler(ring, clock, me, self.rows, seed=patience)
        self._lock = threading.Lock()
        self._reported: dict[str, int] = {}
        self._requested = 0
        self._requested_before_round = 0
        self._is_to_ignore_owners = False
        self._ignores_owners = False
        self._polled_for = 0
        self._answered = 0
        self._latest = 0
        self._next_look = BEGINNING

    def __repr__(self) -> str:
        """How much it plans, and what was requested of it."""
        planned = sum(row.due != NEVER for row in self.rows.values())
        requests = f"requested {self._requested}, answered {self._answered}"
        return f"<RowScheduler: work in {planned} of {len(self.rows)} rows, {len(self._reported)} reported, {requests}>"

    def report_due(self, row: str, moment: int, now: int) -> None:
        """Report that this process sent to a row a message due at `moment`. Safe from any thread."""
        self.activity.traffic(now)
        self._report(row, moment)

    def report_changed(self, row: str) -> None:
        """Report a header commit of this process that its snapshot of the row does not have. Safe from any thread."""
        self._report(row, _CHANGED)

    def _report(self, row: str, moment: int) -> None:
        """Keep only the least moment for each row: a process that only sends has no leader to take them in."""
        with self._lock:
            self._reported[row] = min(moment, self._reported.get(row, moment))

    def request(self, *, ignoring_owners: bool) -> int:
        """Have the leader check every current row for due messages; returns a number for `answered`.

        With `ignoring_owners`, no row in which something is due is left to its owner, which may be gone: neither a
        current row nor a past one. Safe from any thread.
        """
        with self._lock:
            self._is_to_ignore_owners |= ignoring_owners
            self._requested += 1
            return self._requested

    def answered(self, request: int) -> bool:
        """Whether every current row was checked since that request, or no waiter could have got anything."""
        return self._answered >= request

    @property
    def unwatched(self) -> bool:
        """Whether nothing has to be followed now: the queue is idle, was not woken, and no consumer came."""
        return self.activity.unwatched and self._answered >= self._requested

    def begin_round(self, now: int, *, working: bool = False) -> bool:
        """Begin with the requests made until now; returns whether the clock was set back since the last round.

        If it was, every row is polled and scanned from its new time. While this process is `working` on messages of the
        queue, the queue is in use.
        """
        self._follow_use(now, working=working)
        set_back, self._latest = now < self._latest - SECOND, now
        if set_back:
            self.activity.last_traffic = min(self.activity.last_traffic, now)
            self.poller.plan.start_anew(now)
            self._rescans.was_set_back(now)
            for row in self.rows.values():
                row.scan_anew(now)
        with self._lock:
            self._requested_before_round = self._requested
            ignores_owners, self._is_to_ignore_owners = self._is_to_ignore_owners, False
        if ignores_owners:
            self._ignores_owners = True
            for row in self.rows.values():
                row.ignore_owner(now)
        return set_back

    def _follow_use(self, now: int, *, working: bool) -> None:
        """Change between use and idleness; after missed notices, poll all rows as when the queue becomes idle."""
        if working:
            self.activity.used()
        if self.activity.idle and (self.activity.in_use or self.activity.was_used):
            self.activity.begin_use()
            self.poller.begin_use(now)
        elif self.activity.must_poll_all or not (self.activity.idle or self.activity.in_use):
            self.activity.begin_idling(now)
            self.poller.plan.end_use(now)

    def at_rest(self, now: int) -> bool:
        """Whether nothing has to be read before the next event: the queue is idle, and all of it was polled."""
        return self.poller.plan.at_rest(now)

    def has_nothing_due(self, now: int) -> bool:
        """Whether the queue is idle, and this process knows of no message or read that is due in it."""
        return self.at_rest(now) and not self.activity.turn and self.next_event(now) > now

    def _take_in_reports(self, now: int) -> None:
        """Plan scans of the rows that other threads reported."""
        with self._lock:
            reported, self._reported = self._reported, {}
        for name, moment in reported.items():
            if moment == _CHANGED:
                self.rows[name].scan_changed(now)
            else:
                self.rows[name].scan_at(moment)

    def poll(self, now: int) -> Steps[None]:
        """Read the doorbell, poll headers and rescan for late messages, each if it is time."""
        idle, turn = self.activity.idle, self.activity.turn
        self.poller.plan.begin_time_shard(now)
        if idle and turn:
            yield from self.poller.sweep(now)
        else:
            yield from self.poller.read_doorbell(now)
            yield from self.poller.read_headers(now)
        if turn or not idle or self._rescans.under_way:
            yield from self._rescans.go_on(now, most=_RESCANS_IN_TURN if idle else _RESCANS_TOGETHER)
        self.activity.turn = False

    def scan_now(self, rows: Iterable[str], now: int) -> None:
        """Plan a scan of these rows: a settle that waits for its commit ends a message of a group there."""
        for name in rows:
            self.rows[name].scan_at(now)

    def poll_soon(self, row: RowState) -> None:
        """Poll the header of a row at once: another process may have changed it in a way that concerns this one."""
        self.poller.poll_by(row, self._clock.now())

    def next_row(self, now: int) -> RowState | None:
        """The row whose scan has been due longest, to be visited; a row that another process works in is left to it."""
        self._take_in_reports(now)
        while (name := self._scans.take(now)) is not None:
            row = self.rows[name]
            if (until := row.left_alone_until) > now:
                self._scans.set(name, until)
            elif self.poller.may_claim(row, now):
                self.poller.has_work = True
                row.due = NEVER
                return row
        return None

    def has_scan_due(self, now: int) -> bool:
        """Whether a row is due to be scanned, or was reported to be."""
        return bool(self._reported) or self._scans.next() <= now

    def visiting(self, row: RowState) -> RowVisit:
        """A visit of a row, as a context manager."""
        return RowVisit(row, self.poller, self.activity, self._clock, shared=self.shared)

    def _look_for_schedules(self, now: int) -> Steps[None]:
        """Once a second, find the rows of schedules that other processes changed: without credit nothing is polled.

        One in which nothing is due yet is not read: beside a process that works in it, its header is new each time.
        Errors of the store are ignored. An idle queue learns of changes by notices.
        """
        at = self._clock.monotonic()
        homes = [row for name in self._ring.homes() if (row := self.rows[name]).snapshot.fires and row.known]
        if self.activity.idle or at < self._next_look or not homes:
            return
        self._next_look = at + _LOOK
        with contextlib.suppress(StoreError):
            found = yield from read(*[Named(row.name, (HEADER,)) for row in homes])
            for row, columns in zip(homes, found, strict=True):
                row.check_if_due(columns[0].value if columns else None, now)

    def next_row_to_fire(self, now: int) -> Steps[RowState | None]:
        """A row in which an occurrence of a schedule may be due.

        One that another process owns is left to it for a second. Then the row is read again: without credit this
        process polls no rows, and so does not know whether that process has fired the occurrence or is gone.
        """
        yield from self._look_for_schedules(now)
        self._take_in_reports(now)
        for name in self._ring.homes():
            row = self.rows[name]
            if not self.poller.is_owned_by_another(row):
                if row.may_have_occurrence(now):
                    return row
            elif row.may_have_occurrence(now - _FIRED_BY_OWNER) and self.poller.is_abandoned(row):
                row.snapshot.forget()
                return row
        return None

    def fire_schedules(self, *, on: bool) -> None:
        """Set whether rows are visited when an occurrence of a schedule in them falls due."""
        for row in self.rows.values():
            row.fire_schedules(on=on)

    def when_out_of_work(self, now: int, *, has_credit: bool) -> Steps[None]:
        """With no known work: poll for waiting consumers, read the doorbell more often, request a row of others.

        Without credit no consumer could get anything now, so all requests made before this round are answered.
        """
        if not has_credit:
            self._answered = max(self._answered, self._requested_before_round)
            return
        if self._polled_for < self._requested:
            self._polled_for = self._requested
            self.poller.plan.poll_current_next()
        if not self.poller.plan.complete or (self._ignores_owners and self.poller.plan.is_overdue(now)):
            return
        self._answered = self._polled_for
        if self._polled_for == self._requested and self._ignores_owners:
            self._ignores_owners = False
            for row in self.rows.values():
                row.ignores_owner = False
        yield from self.poller.when_out_of_work(now)

    def next_event(self, now: int) -> int:
        """The moment of the next scan or read."""
        if self._reported:
            return now
        event = min(self._scans.next(), self.poller.next_event(now))
        if self.activity.idle and not self._rescans.under_way:
            return event
        return min(event, self._rescans.next_event(now))


class RowVisit:
    """One visit of a row by the leader. It ends as `finished`, `fired` or `busy`, which plan the next scan of the row.

    If it ends otherwise, the row is scanned again: at once after a cancellation, after a pause if an error was raised.
    """

    def __init__(
        self, row: RowState, poller: HeaderPoller, activity: QueueActivity, clock: Clock, *, shared: bool
    ) -> None:
        """Begin now; `shared`: rows have owners."""
        self.row = row
        self.began = clock.now()
        self._poller = poller
        self._activity = activity
        self._clock = clock
        self._shared = shared
        self._over = False

    def __enter__(self) -> Self:
        """The row is visited inside this block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the row back unless the visit has come to its end."""
        if self._over:
            return
        if isinstance(error, Exception):
            self.row.failed(self._clock.now())
        self.row.scan_at(self.began)

    def finished(self, *, more: bool, refused: int = 0, traffic: bool = False) -> None:
        """End it after a claim: whether the row has more to claim, and how often the claim was refused.

        With `traffic`, the claim got or changed something.
        """
        row, now = self.row, self._clock.now()
        if traffic:
            self._activity.traffic(now)
        row.failures = 0
        snapshot = row.snapshot
        snapshot.apply_settles()
        self._poller.scanned(row, now)
        if refused and self._shared:
            row.due = now
            if not row.retry_refused_claim(now):
                self._poller.poll_by(row, now)
        elif more or refused or snapshot.header is None:
            self._poller.refused(row, refused)
            row.scan_at(now)
        elif (due := snapshot.next_scan(now)) is not None:
            row.scan_at(due, earliest=max(due, now + _AGAIN))
        row.scan_for_expected(self.began)
        row.ignores_owner = row.ignores_owner and refused > 0
        self._over = True

    def fired(self, count: int) -> None:
        """End it after firing schedules; the next claim begins with a scan, as in a new row."""
        now = self._clock.now()
        if not count:
            self.row.not_before = now + _NOTHING_FIRED
        self.row.scan_at(now)
        self._over = True

    def busy(self, pause: int, tries: int) -> None:
        """End it because the row's lock is busy; after several tries the row is requested from its owner."""
        self.row.not_before = self.began + pause
        self.row.scan_at(self.began)
        self._poller.poll_by(self.row, self.began + _WATCHED)
        self._poller.refused(self.row, tries)
        self._over = True

    @property
    def unchanged_since(self) -> MonotonicUs:
        """The monotonic moment since which the row's header is unchanged, as far as this process knows."""
        return self._poller.unchanged_since(self.row)


def _unknown_rows(ring: Ring, scans: DeadlineHeap) -> dict[str, RowState]:
    """All rows, nothing known of any.

    Rows of the ring share a read window, as they fill alike; all rows share message sizes.
    """
    window, sizes, levels = ReadWindow(), MessageSizes(), ring.layout.priorities
    return {
        name: RowState(
            RowSnapshot(name, levels, sizes=sizes, window=ReadWindow(None if is_home(name) else window)), scans
        )
        for name in ring.rows()
    }
