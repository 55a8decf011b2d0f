"""One row of a queue in one process: its snapshot and its next scan. Affects cost and delay, never safety."""

from __future__ import annotations

import contextlib
from typing import Final

from astyqueue.errors import Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import decode_header
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.row.bounded_reads import ReadWindow
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.queue.row_sharing.deadline_heap import DeadlineHeap
from astyqueue.units import NEVER, SECOND

#: The pause of a row after an error, doubled after each further one: other rows have their turn, and an error that is
#: over costs little delay.
_AFTER_ERROR: Final = SECOND // 20
LONGEST_AFTER_ERROR: Final = 5 * SECOND
#: The claims that a consumer that does not wait tries in one row: each of one commit, or of up to three in rows without
#: row leases. Another process has made progress with each that is refused.
_REFUSALS: Final = 8


class RowState:
    """One row in one process. Only the leader changes it.

    `due`: the earliest known moment at which something in it is or will be due. `not_before`: it is not scanned before,
    because of consecutive `failures` or a busy lock. `yielded_until`: until then it is left to a process that requested
    it. `ignores_owner`: a consumer that does not wait requested a scan, whichever process owns the row; after a claim
    that was refused because other processes were at work there, that still holds for `refusals_left` more. `expected`:
    when the next message is due that a probe has shown.
    """

    __slots__ = (
        "_scans",
        "due",
        "expected",
        "failures",
        "ignores_owner",
        "name",
        "not_before",
        "refusals_left",
        "snapshot",
        "yielded_until",
    )

    def __init__(self, snapshot: RowSnapshot, scans: DeadlineHeap) -> None:
        """`scans` has the moment of the next scan of each row."""
        self.name = snapshot.row
        self.snapshot = snapshot
        self._scans = scans
        self.due = NEVER
        self.expected = NEVER
        self.not_before = 0
        self.failures = 0
        self.yielded_until = 0
        self.ignores_owner = False
        self.refusals_left = 0

    def __repr__(self) -> str:
        """The row, when something in it is due, and what keeps it from being scanned; moments in microseconds."""
        due = "nothing due" if self.due == NEVER else f"due {self.due}"
        return f"<RowState {self.name}: {due}, not before {self.left_alone_until}, {self.failures} failures>"

    def scan_at(self, due: int, *, earliest: int = 0) -> None:
        """Plan a scan for what is due at this moment, not before `earliest`; an earlier plan stays."""
        self.due = min(self.due, due)
        self._scans.lower(self.name, max(self.due, self.not_before, earliest))

    def ignore_owner(self, now: int) -> None:
        """Scan what is due, whichever process owns the row and also if the last scan has passed it over."""
        self.ignores_owner, self.refusals_left = True, _REFUSALS
        if self.due <= now:
            self.scan_at(self.due)

    def retry_refused_claim(self, now: int) -> bool:
        """Count a refused claim. While the owner is ignored and refusals are left, plan the next try at once.

        Returns whether it did.
        """
        self.refusals_left -= 1
        self.ignores_owner = self.ignores_owner and self.refusals_left > 0
        if self.ignores_owner:
            self.scan_at(now)
        return self.ignores_owner

    def expect(self, moment: int) -> None:
        """Plan a scan for a message that is due at this moment, also if the row is scanned for another reason before.

        A scan reads no messages that are due later.
        """
        self.expected = min(self.expected, moment)
        self.scan_at(moment)

    def scan_for_expected(self, began: int) -> None:
        """After a scan that began at this moment, plan the next one for a message that was not due then."""
        if self.expected <= began:
            self.expected = NEVER
        elif self.expected != NEVER:
            self.due = min(self.due, self.expected)
            self._scans.lower(self.name, max(self.expected, self.not_before))

    def scan_soon(self) -> None:
        """Plan a scan as soon as the row may be scanned: it cannot be known whether something is due."""
        self.scan_at(self.not_before)

    def scan_only_at(self, due: int) -> None:
        """Plan a scan as if nothing else were known to be due in the row."""
        self.due = NEVER
        self.scan_at(due)

    def scan_next(self, now: int) -> None:
        """Plan the next scan by the snapshot, after a settle of this process: when a message given back falls due."""
        self.snapshot.apply_settles()
        due = self.snapshot.next_scan(now)
        if due is not None:
            self.scan_at(due)

    def scan_if_blocked(self, now: int) -> None:
        """Read the timers again if messages are blocked: a settle elsewhere, unseen in the header, may end that."""
        if self.snapshot.forget_blocked():
            self.scan_at(now)

    def scan_changed(self, now: int) -> None:
        """Forget the snapshot and plan a scan: a commit of this process that it does not have changed the header."""
        self.snapshot.forget()
        self.scan_at(now)

    def scan_anew(self, now: int) -> None:
        """Scan the row now, after the clock was set back: moments that were noted before mean nothing now."""
        self.due, self.not_before, self.yielded_until = now, 0, 0
        self.expected = NEVER
        self.snapshot.clock_was_set_back(now)
        self._scans.set(self.name, now)

    def failed(self, now: int) -> None:
        """Leave the row alone for a while after an error: 50 ms, doubled each time up to 5 s."""
        self.not_before = now + min(_AFTER_ERROR << min(self.failures, 8), LONGEST_AFTER_ERROR)
        self.failures += 1

    @property
    def left_alone_until(self) -> int:
        """Until when it is not scanned, though something may be due."""
        return self.not_before if self.ignores_owner else max(self.not_before, self.yielded_until)

    @property
    def known(self) -> bool:
        """Whether this process knows the row's current header, as far as it can know."""
        return self.snapshot.header is not None

    def check_header(self, value: bytes | None, now: int) -> None:
        """Forget the snapshot if it has another header than this, which a poll has read."""
        self.snapshot.check_header(value, now)

    def check_if_due(self, value: bytes | None, now: int) -> None:
        """As `check_header`, unless this header says that nothing in the row is due yet."""
        with contextlib.suppress(Undecodable):  # the next read of the row reports it
            if value is not None and decode_header(self.name, value).floor > now:
                return
        self.check_header(value, now)

    @property
    def heads(self) -> list[Id] | None:
        """The position of the first scan, by priority; None while the header is not known."""
        return self.snapshot.scans.heads if self.snapshot.header else None

    @property
    def has_timers(self) -> bool:
        """Whether messages are known to be hidden in it."""
        return bool(self.snapshot.timers and self.snapshot.timers.by_name)

    @property
    def read_window(self) -> ReadWindow:
        """How much time one read of its messages may cover."""
        return self.snapshot.window

    def fire_schedules(self, *, on: bool) -> None:
        """Set whether this process fires the schedules of the row."""
        self.snapshot.fires = on and is_home(self.name)

    def may_have_occurrence(self, now: int) -> bool:
        """Whether an occurrence that this process fires may be due in it."""
        if self.not_before > now or not self.snapshot.fires:
            return False
        occurrence = self.snapshot.next_occurrence if self.snapshot.timers is not None else now
        return occurrence is not None and occurrence <= now
