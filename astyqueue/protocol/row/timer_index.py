"""When the timers of a row are due: those whose messages any process may claim, and next occurrences of schedules."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import State, Timer, hidden_by
from astyqueue.store import Name

Timers = Mapping[Name, Timer]
Heap = list[tuple[int, Name]]
#: A heap is swept when it has more than _STALE entries for each known timer, and for _FEW more.
_STALE: Final = 4
_FEW: Final = 1_000


@dataclass(slots=True)
class TimerIndex:
    """The due times of a row's known timers. Entries of timers that are gone are dropped when they come up.

    `postponed`: occurrences that this process cannot fire now, with the moment at which it tries again.
    """

    postponed: dict[Name, int] = field(default_factory=dict)
    _claimable: Heap = field(default_factory=list)
    _occurrences: Heap = field(default_factory=list)

    def __repr__(self) -> str:
        """The number of entries."""
        claimable, occurrences = len(self._claimable), len(self._occurrences)
        return f"<TimerIndex: {claimable} claimable, {occurrences} occurrences, {len(self.postponed)} postponed>"

    def clear(self) -> None:
        """Forget all timers. Postponed occurrences stay postponed."""
        self._claimable.clear()
        self._occurrences.clear()

    def add(self, timer: Timer, known: Timers) -> None:
        """Add a timer and the marks in it."""
        if timer.state == State.NEXT_OCCURRENCE:
            heapq.heappush(self._occurrences, (timer.due, timer.name))
            self._occurrences = _swept(self._occurrences, known)
            return
        for due in (timer.due, *[mark.due for mark in timer.marks]):
            heapq.heappush(self._claimable, (due, timer.name))
        self._claimable = _swept(self._claimable, known)

    def earliest(self, known: Timers) -> int | None:
        """When the first timer or mark is due; None if there is none."""
        firsts = _first(self._claimable, known), _first(self._occurrences, known)
        return min([due for due in firsts if due is not None], default=None)

    def next_claim(self, known: Timers) -> int | None:
        """When the next message of a timer may be claimed; None if there is none."""
        return _first(self._claimable, known)

    def next_occurrence(self, known: Timers) -> int | None:
        """When the next occurrence can fire in this process; a postponed one counts from its postponement's end on."""
        first = _first(self._occurrences, known)
        if first is None or not self.postponed:
            return first
        self.postponed = {name: moment for name, moment in self.postponed.items() if name in known}
        free = (due for due, name in self._occurrences if name in known and name not in self.postponed)
        return min((*free, *self.postponed.values()), default=None)

    def claimable(self, known: Timers, now: int) -> list[Timer]:
        """The timers that are due, or have a mark that is, the earliest first; of one moment, the oldest messages."""
        found: list[tuple[int, Id, Name]] = []
        for name in _due(self._claimable, known, now):
            timer = known[name]
            due = min([timer.due, *[mark.due for mark in timer.marks]])
            heapq.heappush(self._claimable, (due, name))
            found.append((due, min([one.id for one in hidden_by(timer)], default=ids.LEAST), name))
        return [known[name] for _, _, name in sorted(found)]

    def occurrences(self, known: Timers, now: int, limit: int) -> list[Timer]:
        """Up to `limit` timers of occurrences that are due and not postponed, the earliest first."""
        found: list[Name] = []
        passed: list[Name] = []
        while len(found) < limit and (name := _pop(self._occurrences, known, now)) is not None:
            (passed if self.postponed.get(name, 0) > now else found).append(name)
        for name in (*found, *passed):
            heapq.heappush(self._occurrences, (ids.moment(name.id), name))
        return [known[name] for name in dict.fromkeys(found)]


def _first(heap: Heap, known: Timers) -> int | None:
    while heap and heap[0][1] not in known:
        heapq.heappop(heap)
    return heap[0][0] if heap else None


def _pop(heap: Heap, known: Timers, now: int) -> Name | None:
    first = _first(heap, known)
    return heapq.heappop(heap)[1] if first is not None and first <= now else None


def _due(heap: Heap, known: Timers, now: int) -> dict[Name, None]:
    found: dict[Name, None] = {}
    while (name := _pop(heap, known, now)) is not None:
        found[name] = None
    return found


def _swept(heap: Heap, known: Timers) -> Heap:
    if len(heap) <= _STALE * (len(known) + _FEW):
        return heap
    left = [(due, name) for due, name in set(heap) if name in known]
    heapq.heapify(left)
    return left
