"""The message groups of one row as its timers show them: which are busy, and which messages wait behind others.

A claim notes the group of a message in the timer that it makes for it. So a message that a timer of another state than
BLOCKED lists with its group was handed out before: it is leased, backing off, snoozed or parked, and keeps its group
busy until it has ended. Messages that are only listed as due, by an idempotent send, a rescan or a redrive, have no
group there yet.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import Entry, Mark, State, Timer, hidden_by

#: Messages that may be BLOCKED in a row. A row's timers are read together and each claim may search them, so that this
#: bounds both: a thousand entries are 27 kB.
MOST_BLOCKED: Final = 1_000

#: The order of a group's messages: the highest priority first, then by id.
GroupOrder = tuple[int, Id]
_NOBODY: Final[frozenset[Id]] = frozenset()
_NOTHING: Final[Mapping[Id, str]] = MappingProxyType({})


class BlockedEntry(NamedTuple):
    """A message that waits for an earlier one of its group, and the timer that lists it."""

    group_order: GroupOrder
    entry: Entry
    timer: Timer


def group_order(entry: Entry | Mark) -> GroupOrder:
    """The place of a message in the order of its group."""
    return -entry.priority, entry.id


class GroupIndex:
    """The groups of the messages that a row's timers list; empty, and without cost, where no message has one."""

    __slots__ = ("_begun", "_free", "_groups", "_lines", "blocked")

    def __init__(self) -> None:
        """Without messages; `blocked`: those that wait for others of their group."""
        self.blocked: set[Id] = set()
        self._groups: dict[Id, int] = {}
        self._begun: dict[int, dict[Id, str]] = {}
        self._lines: dict[int, list[BlockedEntry]] = {}
        self._free: set[int] = set()

    def __bool__(self) -> bool:
        """Whether a timer lists a message of a group."""
        return bool(self._begun or self._lines)

    def __repr__(self) -> str:
        """How many groups are busy, and how many messages wait."""
        return f"<GroupIndex: {len(self._begun)} groups busy, {len(self.blocked)} messages blocked>"

    def add(self, timer: Timer) -> None:
        """Add the messages of a timer that have groups."""
        for one in hidden_by(timer):
            if not one.group:
                continue
            if timer.state == State.BLOCKED and isinstance(one, Entry):
                self.blocked.add(one.id)
                insort(self._lines.setdefault(one.group, []), BlockedEntry(group_order(one), one, timer), key=_order_of)
            else:
                self._begun.setdefault(one.group, {})[one.id] = timer.holder
                self._groups[one.id] = one.group
            self._note(one.group)

    def remove(self, timer: Timer) -> None:
        """Remove the messages of a timer that is gone."""
        for one in hidden_by(timer):
            if not one.group:
                continue
            if timer.state == State.BLOCKED:
                self.blocked.discard(one.id)
                self._leave(self._lines.get(one.group, []), group_order(one))
            else:
                self._begun.get(one.group, {}).pop(one.id, None)
                self._groups.pop(one.id, None)
            self._note(one.group)

    @staticmethod
    def _leave(line: list[BlockedEntry], order: GroupOrder) -> None:
        at = bisect_left(line, order, key=_order_of)
        if at < len(line) and line[at].group_order == order:
            del line[at]

    def _note(self, group: int) -> None:
        """Note whether a message of this group could be claimed now; drop what is empty."""
        if not self._begun.get(group):
            self._begun.pop(group, None)
        if not self._lines.get(group):
            self._lines.pop(group, None)
        if group in self._lines and group not in self._begun:
            self._free.add(group)
        else:
            self._free.discard(group)

    @property
    def has_free(self) -> bool:
        """Whether a message waits in a group that is no longer busy."""
        return bool(self._free)

    def has_begun(self, id_: Id) -> bool:
        """Whether this message was handed out, has a group and has not ended."""
        return id_ in self._groups

    def is_busy(self, group: int, *, apart_from: Id, ending: AbstractSet[Id]) -> bool:
        """Whether another message of the group was handed out and has not ended; those `ending` count as ended."""
        return any(one != apart_from and one not in ending for one in self._begun.get(group, _NOBODY))

    def is_leased_by_others(self, group: int, me: str) -> bool:
        """Whether another process than this one may end a message of the group by a settle, unseen here."""
        return any(holder not in ("", me) for holder in self._begun.get(group, _NOTHING).values())

    def first(self, group: int) -> GroupOrder | None:
        """The place of the first message that waits in a group; None if none does."""
        line = self._lines.get(group)
        return line[0].group_order if line else None

    def free(self, *, ending: AbstractSet[Id] = _NOBODY) -> Iterator[BlockedEntry]:
        """The first message that waits in each group that is not busy, or no longer when these have ended."""
        freed = {group for id_ in ending if (group := self._groups.get(id_)) in self._lines}
        groups = [*self._free, *[group for group in freed if group and self._begun[group].keys() <= ending]]
        return (self._lines[group][0] for group in groups)

    def timers(self) -> list[Timer]:
        """The timers that list blocked messages."""
        return list({one.timer.name: one.timer for line in self._lines.values() for one in line}.values())


def _order_of(blocked: BlockedEntry) -> GroupOrder:
    return blocked.group_order
