"""How far one process has looked through a row: a cursor for each priority and look.

Each stretch of ids is looked at when it is due, and again later. Cursors move by what was read, never by the clock; a clock
can only hold them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.columns import LOOKS

_SECOND: Final = 1_000_000
#: A stretch of ids is looked at when it is due and again so much later, because producers land out of order.
LAGS: Final = (0, _SECOND // 2, 10 * _SECOND, 600 * _SECOND)
#: How often each of the late looks is worth its read.
_EVERY: Final = (0, _SECOND // 2, 5 * _SECOND, 60 * _SECOND)
#: Later than any moment.
NEVER: Final = 1 << 62


@dataclass(slots=True)
class Looks:
    """The looks through one row. Corrupting or forgetting them costs reads, never a promise.

    `looked`: when each look last read; `set_back`: for priorities whose head was set back over ids that were read before, the
    moment up to which they may have been.
    """

    cursors: list[list[Id]] = field(default_factory=list)
    looked: list[int] = field(default_factory=lambda: [0] * LOOKS)
    set_back: dict[int, int] = field(default_factory=dict)

    @property
    def heads(self) -> list[Id]:
        """How far the first look has come, by priority."""
        return [cursors[0] for cursors in self.cursors]

    def take_over(self, stored: Sequence[Sequence[Id]], levels: int) -> None:
        """Stand where a header says that the looks stand; priorities that it does not tell of are looked at from the start."""
        padded = [*stored, *[(ids.LEAST,) * LOOKS] * (levels - len(stored))]
        self.cursors = [list(cursors) for cursors in padded[:levels]]
        self.set_back.clear()

    def hold_back(self, now: int) -> bool:
        """Let no cursor be later than this moment less its lag; whether one was that the first look had reached.

        A head that is further ahead than clocks differ means that the clock was set back, nobody knows when: ids have begun
        again from there, so the longest lag is walked again from the head on.
        """
        self.looked = [min(looked, now) for looked in self.looked]
        ahead = [level for level, head in enumerate(self.heads) if head > ids.first_at(now + 1)]
        for level in ahead:
            self._set_back(level, now)
        for cursors in self.cursors:
            for look in range(1, LOOKS):
                cursors[look] = min(cursors[look], cursors[0], ids.first_at(now - LAGS[look]))
        return bool(ahead)

    def _set_back(self, level: int, now: int) -> None:
        clock_was = self.cursors[level][0] > ids.first_at(now + _SECOND)
        self.cursors[level][0] = ids.first_at(now - LAGS[-1]) if clock_was else ids.first_at(now + 1)
        if clock_was:
            self.set_back[level] = now

    def found_empty(self, level: int) -> None:
        """Take note that nothing of this priority waits from the head on: if it was set back, that need not be read again and again."""
        if level in self.set_back:
            self.pass_over(level, self.set_back[level])

    def pass_over(self, level: int, moment: int) -> None:
        """Let the first look go on at this moment; what lands in the last while before it is met by it, not only by the late ones."""
        cursors = self.cursors[level]
        cursors[0] = max(cursors[0], ids.first_at(moment - LAGS[1]))

    def late(self, now: int) -> list[int]:
        """Which of the late looks have a stretch to read now."""
        return [look for look in range(1, LOOKS) if self._late_at(look, now) <= now]

    def next_late(self, now: int) -> int:
        """When the next late look has a stretch to read."""
        return min(self._late_at(look, now) for look in range(1, LOOKS))

    def _late_at(self, look: int, now: int) -> int:
        """When a late look is next worth its read: it has come up to the head, or has that long to wait."""
        if not any(cursors[look] < cursors[0] for cursors in self.cursors):
            return NEVER
        behind = min(ids.moment(cursors[look]) for cursors in self.cursors if cursors[look] < cursors[0])
        return max(self.looked[look] + _EVERY[look], min(behind, now) + LAGS[look])
