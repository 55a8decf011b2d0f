"""Decides which row to scan next: affects cost and delay, never safety.

Every row has a moment of its next scan, which may end in a claim: after a send to it or a claim that left messages,
when a message or timer in it falls due, or when a late scan does. The row with the earliest moment is next, so none
starves.
"""

from __future__ import annotations

from typing import Final

from astyqueue.clock import Clock
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Steps
from astyqueue.queue.rows.header_poller import HeaderPoller
from astyqueue.queue.rows.rescans import RescanScheduler
from astyqueue.queue.rows.row_states import RowState, RowStates
from astyqueue.units import NEVER, SECOND

#: The pause before another scan for due messages that were not claimed (a suspect that must be claimed alone, or a
#: message from a clock that is ahead).
_AGAIN: Final = SECOND // 20
#: The pause of a row after an error, doubled after each further one: other rows have their turn, and an error that is
#: over costs little delay.
_POSTPONED: Final = SECOND // 20
POSTPONED_AT_MOST: Final = 5 * SECOND


class RowScheduler:
    """Chooses the next row of a queue for one process."""

    def __init__(self, ring: Ring, clock: Clock, me: str) -> None:
        """Plan a poll of every row at once, the current rows first: this process knows nothing of any row."""
        self.row_states = RowStates(ring, clock, me)
        self.poller = HeaderPoller(self.row_states)
        self.rescans = RescanScheduler(self.row_states, me)
        self._clock = clock
        self.answered = 0
        self._asked = 0
        self._busy = False
        self._latest = 0

    def was_set_back(self, now: int) -> bool:
        """Whether the clock was set back since the last call; if so, poll and scan every row from its new time."""
        set_back, self._latest = now < self._latest - SECOND, now
        if set_back:
            self.row_states.last_traffic = min(self.row_states.last_traffic, now)
            self.poller.start_anew()
            self.rescans.was_set_back(now)
            for row, visit in self.row_states.of.items():
                visit.work, visit.not_before, visit.obliging = now, 0, 0
                visit.snapshot.hold_back(now)
                visit.snapshot.upcoming.postponed.clear()
                self.row_states.looks.set(row, now)
        return set_back

    def look_around(self, now: int) -> Steps[None]:
        """Read the doorbell, poll headers and rescan for late messages, each if it is due."""
        yield from self.poller.listen(now, busy=self._busy)
        yield from self.poller.read(now)
        yield from self.rescans.go_on(now)

    def idle(self, now: int) -> Steps[None]:
        """With no known work: poll for waiting callers, read the doorbell more often, request a row."""
        if self._asked < self.row_states.asked:
            self._asked = self.row_states.asked
            self.poller.hurry()
        if not self.poller.complete:
            return
        self.answered = self._asked
        if self._asked == self.row_states.asked:
            self.row_states.insisted.clear()
        if self._busy:
            self._busy = False
            self.poller.doorbell.pace(now - self.row_states.last_traffic, busy=False)
        yield from self.poller.wish(now)

    def answer(self, asked: int) -> None:
        """Mark calls of `ask` up to this number as answered: no waiter may get anything now."""
        self.answered = max(self.answered, asked)

    def next_event(self, now: int) -> int:
        """The moment of the next scan or read."""
        return (
            now
            if self.row_states.news
            else min(self.row_states.looks.next(), self.poller.next_event(now), self.rescans.next_event(now))
        )

    def choose(self, now: int) -> RowState | None:
        """The row whose scan has been due longest; a row that another process works in is left to it for now."""
        self.row_states.take_in(now)
        while (row := self.row_states.looks.take(now)) is not None:
            visit = self.row_states.of[row]
            if (until := self.row_states.held_back(visit)) > now:
                self.row_states.looks.set(row, until)
            elif self._may_go(visit, now):
                self._busy = True
                visit.work = NEVER
                return visit
        return None

    def _may_go(self, visit: RowState, now: int) -> bool:
        """Whether this process may claim from a row; if not, its header is polled and it comes up again."""
        at = self._clock.monotonic()
        if visit.snapshot.row in self.row_states.insisted:
            self.row_states.insisted.discard(visit.snapshot.row)
            return True
        if not self.row_states.shared or visit.lease.open_for(visit.work, now, at):
            return True
        self.poller.by(visit, now + visit.lease.wait_for(visit.work, now, at))
        return False

    def visited(self, visit: RowState, now: int, *, more: bool, refused: int = 0) -> None:
        """Set the next scan of a row that was just scanned."""
        snapshot = visit.snapshot
        snapshot.take_note()
        visit.failures = 0
        self.poller.visited(visit, now)
        if refused and self.row_states.shared:
            visit.work = now
            self.poller.by(visit, now)
        elif more or refused or not snapshot.known:
            self.poller.wishes.refused(snapshot.row, refused)
            self.row_states.look_at(visit, now)
        elif (next_scan := snapshot.next_look(now)) is not None:
            self.row_states.look_at(visit, next_scan, at=max(next_scan, now + _AGAIN))

    def settled(self, row: str, now: int) -> None:
        """Have a row scanned when the messages just given back in it fall due."""
        visit = self.row_states.of[row]
        visit.snapshot.take_note()
        next_scan = visit.snapshot.next_look(now)
        if next_scan is not None:
            self.row_states.look_at(visit, next_scan)

    def postpone(self, visit: RowState, now: int) -> None:
        """Leave a row alone for a while after an error: 50 ms, doubled each time up to 5 s."""
        visit.not_before = now + min(_POSTPONED << min(visit.failures, 8), POSTPONED_AT_MOST)
        visit.failures += 1
        self.row_states.look_at(visit, now)
