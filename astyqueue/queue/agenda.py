"""What is to be done when: a heap in which a moment may be changed."""

from __future__ import annotations

import heapq
from typing import Final

NEVER: Final = 1 << 62
#: Entries that were overtaken are swept out once there are so many times as many entries as rows.
_STALE: Final = 4


class Agenda:
    """One moment for each row; the earliest first, and of equal ones the one that was set first."""

    def __init__(self) -> None:
        """Nothing is to be done."""
        self._entries: dict[str, tuple[int, int, str]] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._turns = 0

    def at(self, row: str) -> int:
        """When this row's turn is; NEVER if it has none."""
        entry = self._entries.get(row)
        return entry[0] if entry else NEVER

    def set(self, row: str, moment: int) -> None:
        """Give a row its moment in the place of the one it had."""
        if self.at(row) == moment:
            return
        self._turns += 1
        entry = self._entries[row] = (moment, self._turns, row)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > _STALE * len(self._entries):
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def by(self, row: str, moment: int) -> None:
        """Give a row this moment, unless it has an earlier one."""
        if moment < self.at(row):
            self.set(row, moment)

    def next(self) -> int:
        """The earliest moment of all."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def take(self, now: int) -> str | None:
        """The row whose turn came first, if it has come; it then has none."""
        if self.next() > now:
            return None
        row = heapq.heappop(self._heap)[2]
        del self._entries[row]
        return row

    def take_several(self, now: int, most: int) -> list[str]:
        """The rows whose turns came first, so many at most."""
        taken: list[str] = []
        while len(taken) < most and (row := self.take(now)) is not None:
            taken.append(row)
        return taken
