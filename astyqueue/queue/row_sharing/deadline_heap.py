"""A heap of deadlines that may be changed."""

from __future__ import annotations

import heapq
from typing import Final

from astyqueue.units import NEVER

#: Stale entries are removed once the heap has this many entries per row.
_STALE: Final = 4


class DeadlineHeap:
    """One deadline for each row; the earliest first, and of equal ones the one that was set first."""

    def __init__(self) -> None:
        """An empty heap."""
        self._entries: dict[str, tuple[int, int, str]] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._sequence = 0

    def at(self, row: str) -> int:
        """The deadline of a row; NEVER if it has none."""
        entry = self._entries.get(row)
        return entry[0] if entry else NEVER

    def set(self, row: str, moment: int) -> None:
        """Set or replace the deadline of a row."""
        if self.at(row) == moment:
            return
        self._sequence += 1
        entry = self._entries[row] = (moment, self._sequence, row)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > _STALE * len(self._entries):
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def lower(self, row: str, moment: int) -> None:
        """Set the deadline of a row unless it has an earlier one."""
        if moment < self.at(row):
            self.set(row, moment)

    def next(self) -> int:
        """The earliest deadline; NEVER if there is none."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def take(self, now: int) -> str | None:
        """Remove and return the row with the earliest deadline if that has passed; else None."""
        if self.next() > now:
            return None
        row = heapq.heappop(self._heap)[2]
        del self._entries[row]
        return row

    def take_several(self, now: int, most: int) -> list[str]:
        """Remove and return the rows with the earliest passed deadlines, at most `most`."""
        taken: list[str] = []
        while len(taken) < most and (row := self.take(now)) is not None:
            taken.append(row)
        return taken
