"""The timers of a row as one process knows them: what they hide, when they are due, and which messages are dead."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import Entry, Header, Mark, State, Timer, hidden_by, timer_without
from astyqueue.protocol.row.group_index import GroupIndex
from astyqueue.store import Name

Heap = list[tuple[int, Name]]
#: A heap is swept when it has more than _STALE entries for each known timer, and for _FEW more.
_STALE: Final = 4
_FEW: Final = 1_000


class TimerChange(NamedTuple):
    """What a settle did to one timer of a row: the timers in its place, and the messages it dead-lettered.

    `header_change`: for a header commit, the header that was known before it and the one that it wrote.
    """

    timer: Timer
    successors: tuple[Timer, ...]
    dead: tuple[Id, ...]
    header_change: tuple[bytes | None, Header] | None


class TimerIndex:
    """All timers of a row, and what is known only as long as they are: to forget them is to forget all of it.

    `hidden`: the messages that they list. `dead`: the dead letters beyond the head, None until they are read, which is
    after the messages. `settled`: settles of this process that the next scan applies. `groups`: which message groups
    are busy. Entries of the due times of timers that are gone are dropped when they come up.
    """

    __slots__ = ("_claimable", "_occurrences", "_timers", "by_name", "dead", "groups", "hidden", "settled")

    def __init__(self, timers: Iterable[Timer] = ()) -> None:
        """The timers as just read: all that the row has."""
        self.hidden: set[Id] = set()
        self.dead: set[Id] | None = None
        self.settled: list[TimerChange] = []
        self.groups = GroupIndex()
        self._timers: dict[Name, Timer] = {}
        self.by_name: Mapping[Name, Timer] = self._timers
        self._claimable: Heap = []
        self._occurrences: Heap = []
        for timer in timers:
            self.add(timer)

    def __repr__(self) -> str:
        """The number of timers, and of the messages that they hide."""
        return f"<TimerIndex: {len(self._timers)} timers, {len(self.hidden)} messages hidden>"

    def __iter__(self) -> Iterator[Timer]:
        """Each timer."""
        return iter(self._timers.values())

    def occurrences_of(self, schedule: str) -> list[Timer]:
        """The timers of a schedule's next occurrences."""
        return [timer for timer in self.in_state(State.NEXT_OCCURRENCE) if timer.holder == schedule]

    def in_state(self, state: State) -> list[Timer]:
        """The timers of one state."""
        return [timer for timer in self if timer.state == state]

    def hidden_messages(self) -> Iterator[tuple[Timer, Entry | Mark]]:
        """Each message that a timer lists, and that timer."""
        return ((timer, one) for timer in self for one in hidden_by(timer))

    def without(self, leaving: set[Id]) -> list[tuple[Timer, Timer | None]]:
        """Each timer that lists one of these messages, and what remains of it: its other receipts stay valid."""
        listing = [timer for timer in self if any(one.id in leaving for one in hidden_by(timer))]
        return [(timer, timer_without(timer, leaving)) for timer in listing]

    def add(self, timer: Timer) -> None:
        """Add a timer and the marks in it."""
        self._timers[timer.name] = timer
        self.hidden.update([one.id for one in hidden_by(timer)])
        if timer.grouped:
            self.groups.add(timer)
        if timer.state == State.BLOCKED:  # it is never due
            return
        if timer.state == State.NEXT_OCCURRENCE:
            heapq.heappush(self._occurrences, (timer.due, timer.name))
            self._occurrences = _swept(self._occurrences, self._timers)
            return
        for due in (timer.due, *[mark.due for mark in timer.marks]):
            heapq.heappush(self._claimable, (due, timer.name))
        self._claimable = _swept(self._claimable, self._timers)

    def replace(self, gone: Timer, successors: Iterable[Timer]) -> None:
        """Put these timers in the place of one that is gone."""
        if timer := self._timers.pop(gone.name, None):
            self.hidden.difference_update([one.id for one in hidden_by(timer)])
            if timer.grouped:
                self.groups.remove(timer)
        for timer in successors:
            self.add(timer)

    def next_due(self) -> int | None:
        """When the first timer or mark is due, of any state; None if there is none."""
        firsts = _first(self._claimable, self._timers), _first(self._occurrences, self._timers)
        return min([due for due in firsts if due is not None], default=None)

    def next_claim(self) -> int | None:
        """When the next message of a timer may be claimed; None if there is none."""
        return _first(self._claimable, self._timers)

    def next_occurrence(self, postponed: Mapping[Name, int]) -> int | None:
        """When the next occurrence can fire; a postponed one counts from the moment that is given for it on."""
        first = _first(self._occurrences, self._timers)
        if first is None or not postponed:
            return first
        free = (due for due, name in self._occurrences if name in self._timers and name not in postponed)
        return min((*free, *[moment for name, moment in postponed.items() if name in self._timers]), default=None)

    def due(self, now: int) -> list[Timer]:
        """The claimable timers that are due, or have a mark that is, the earliest first.

        Of one moment, the one with the oldest message comes first.
        """
        names: dict[Name, None] = {}
        while (popped := _pop(self._claimable, self._timers, now)) is not None:
            names[popped] = None
        found: list[tuple[int, Id, Name]] = []
        for name in names:
            timer = self._timers[name]
            due = min([timer.due, *[mark.due for mark in timer.marks]])
            heapq.heappush(self._claimable, (due, name))
            found.append((due, min([one.id for one in hidden_by(timer)], default=ids.LEAST), name))
        return [self._timers[name] for _, _, name in sorted(found)]

    def due_occurrences(self, now: int, limit: int, postponed: Mapping[Name, int]) -> list[Timer]:
        """Up to `limit` timers of occurrences that are due and not postponed, the earliest first."""
        found: list[Name] = []
        passed: list[Name] = []
        while len(found) < limit and (name := _pop(self._occurrences, self._timers, now)) is not None:
            (passed if postponed.get(name, 0) > now else found).append(name)
        for name in (*found, *passed):
            heapq.heappush(self._occurrences, (ids.moment(name.id), name))
        return [self._timers[name] for name in dict.fromkeys(found)]


def _first(heap: Heap, known: Mapping[Name, Timer]) -> int | None:
    while heap and heap[0][1] not in known:
        heapq.heappop(heap)
    return heap[0][0] if heap else None


def _pop(heap: Heap, known: Mapping[Name, Timer], now: int) -> Name | None:
    first = _first(heap, known)
    return heapq.heappop(heap)[1] if first is not None and first <= now else None


def _swept(heap: Heap, known: Mapping[Name, Timer]) -> Heap:
    if len(heap) <= _STALE * (len(known) + _FEW):
        return heap
    left = [(due, name) for due, name in set(heap) if name in known]
    heapq.heapify(left)
    return left
