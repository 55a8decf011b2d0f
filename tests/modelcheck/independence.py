"""What a request can touch, and so which requests may change places without anybody noticing."""

from __future__ import annotations

from typing import NamedTuple

from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Batch, Expectation, Name, Named, Wanted
from astyqueue.waiting import Rest
from tests.modelcheck.schedule import Asked


class Place(NamedTuple):
    """Where a column is."""

    table: str
    row: str
    name: Name


class Reach(NamedTuple):
    """The columns that a request looks at and those that it may change; `calls`: anything at all, such as the clock."""

    looks: tuple[Wanted, ...] = ()
    changes: frozenset[Place] = frozenset()
    calls: bool = False

    def apart_from(self, other: Reach) -> bool:
        """Whether the two requests are answered the same, and leave the same, in either order."""
        if self.calls or other.calls:
            return False
        return (
            self.changes.isdisjoint(other.changes)
            and not self._looks_at(other.changes)
            and not other._looks_at(self.changes)
        )

    def _looks_at(self, places: frozenset[Place]) -> bool:
        return any(_covers(wanted, place) for wanted in self.looks for place in places)


def reach(asked: Asked | None) -> Reach:
    """What may be touched by this request, or by none."""
    match asked:
        case None | Rest():
            return Reach()
        case Read(wanted):
            return Reach(wanted)
        case Send():
            return Reach((), frozenset().union(*map(_changed, asked.batches)))
        case Commit(batch, expects):
            return Reach((_expected(batch, expects),), _changed(batch))
        case _:
            return Reach(calls=True)


def _changed(batch: Batch) -> frozenset[Place]:
    names = [put.name for put in batch.puts] + list(batch.deletes)
    return frozenset(Place(batch.table, batch.row, name) for name in names)


def _expected(batch: Batch, expects: tuple[Expectation, ...]) -> Named:
    return Named(batch.row, tuple(expected.name for expected in expects), table=batch.table)


def _covers(wanted: Wanted, place: Place) -> bool:
    """Whether this column is among those wanted, or would be if it were there; limits may only make it fewer."""
    if (wanted.table, wanted.row) != place[:2]:
        return False
    if isinstance(wanted, Named):
        return place.name in wanted.names
    name = place.name
    return (
        name.type == wanted.type and wanted.priority in (None, name.priority) and wanted.after <= name.id < wanted.until
    )
