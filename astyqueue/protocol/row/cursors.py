"""How far one process has scanned a row: one cursor for each priority and scan.

Each range of ids is scanned first when it is due, and again by the late scans. Cursors move by what was read, never by
the clock; a clock can only hold them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import SCANS
from astyqueue.units import NEVER, SECOND

#: Delay of each scan after an id is due: the first scan, then three late ones, because sends land out of order.
SCAN_LAGS: Final = (0, SECOND // 2, 10 * SECOND, 600 * SECOND)
#: Shortest time between two reads of each late scan.
_EVERY: Final = (0, SECOND // 2, 5 * SECOND, 60 * SECOND)


@dataclass(slots=True)
class ScanCursors:
    """The scan cursors of one row. Losing or corrupting them costs extra reads, never a message.

    `scanned_at`: when each scan last read. `reached`: by priority, how far this process has been, which may be beyond
    the head: the last message that it claimed from a timer instead of by the first scan, or where the head was before
    it was set back, by a clock or by the header of another process.
    """

    cursors: list[list[Id]] = field(default_factory=list)
    scanned_at: list[int] = field(default_factory=lambda: [0] * SCANS)
    reached: dict[int, Id] = field(default_factory=dict)

    @property
    def heads(self) -> list[Id]:
        """The position of the first scan, by priority."""
        return [cursors[0] for cursors in self.cursors]

    def take_over(self, stored: Sequence[Sequence[Id]], levels: int) -> None:
        """Use the cursors that a header stores; priorities that it does not list are scanned from the start."""
        for level, head in enumerate(self.heads):
            self._has_reached(level, head)
        padded = [*stored, *[(ids.LEAST,) * SCANS] * (levels - len(stored))]
        self.cursors = [list(cursors) for cursors in padded[:levels]]

    def hold_back(self, now: int) -> bool:
        """Move every cursor back to at most `now` less its lag; returns whether a head (first scan) was moved back.

        A head more than a second ahead means that the clock was set back at an unknown time, and ids have started again
        from there: it goes back to the longest lag before `now`. A head that is less ahead goes back to `now`.
        """
        self.scanned_at = [min(moment, now) for moment in self.scanned_at]
        bound = ids.first_at(now + 1)
        for level in [level for level, id_ in self.reached.items() if id_ > bound]:
            self.reached[level] = _in_sight(now)
        ahead = [level for level, head in enumerate(self.heads) if head > bound]
        for level in ahead:
            self._set_back(level, now)
        for cursors in self.cursors:
            for scan in range(1, SCANS):
                cursors[scan] = min(cursors[scan], cursors[0], ids.first_at(now - SCAN_LAGS[scan]))
        return bool(ahead)

    def _set_back(self, level: int, now: int) -> None:
        clock_was = self.cursors[level][0] > ids.first_at(now + SECOND)
        self.cursors[level][0] = ids.first_at(now - SCAN_LAGS[-1]) if clock_was else ids.first_at(now + 1)
        if clock_was:
            self._has_reached(level, _in_sight(now))

    def claimed_by_timer(self, level: int, id_: Id) -> None:
        """Record a message that was claimed from a timer that listed it."""
        self._has_reached(level, id_)

    def _has_reached(self, level: int, id_: Id) -> None:
        self.reached[level] = max(id_, self.reached.get(level, id_))

    def found_empty(self, level: int) -> None:
        """Record that no message of this priority waits beyond the head, so that tombstones there are not read again.

        The head moves to the last message that was claimed from a timer, as if the first scan had met it. A head that
        was set back moves to where it may have been.
        """
        cursors = self.cursors[level]
        cursors[0] = max(cursors[0], self.reached.get(level, cursors[0]))

    def pass_over(self, level: int, moment: int) -> None:
        """Move the head to half a second before `moment`."""
        cursors = self.cursors[level]
        cursors[0] = max(cursors[0], _in_sight(moment))

    def late(self, now: int) -> list[int]:
        """Which of the late scans have something to read now."""
        return [scan for scan in range(1, SCANS) if self._late_at(scan, now) <= now]

    def late_scans_made(self, scans: Sequence[int], now: int) -> None:
        """Record late scans that read at `now`, once what they found is claimed or they found nothing."""
        for scan in scans:
            self.scanned_at[scan] = now

    def next_late(self, now: int) -> int:
        """When the next late scan has something to read; NEVER if all have reached the heads."""
        return min(self._late_at(scan, now) for scan in range(1, SCANS))

    def _late_at(self, scan: int, now: int) -> int:
        """When a late scan is next worth a read; NEVER once it has reached the head in each priority."""
        if not any(cursors[scan] < cursors[0] for cursors in self.cursors):
            return NEVER
        lowest = min(ids.moment(cursors[scan]) for cursors in self.cursors if cursors[scan] < cursors[0])
        return max(self.scanned_at[scan] + _EVERY[scan], min(lowest, now) + SCAN_LAGS[scan])


def _in_sight(moment: int) -> Id:
    """The position half a second before `moment`: from there the first scan still meets what lands in between."""
    return ids.first_at(moment - SCAN_LAGS[1])
