"""What requests read and change, and so which of them are independent: their order has no effect."""

from __future__ import annotations

from typing import NamedTuple

from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Batch, Expectation, Name, Named, Wanted
from astyqueue.waiting import Rest
from tests.modelcheck.schedule import Action


class ColumnKey(NamedTuple):
    """Where a column is."""

    table: str
    row: str
    name: Name


class Effects(NamedTuple):
    """The columns that a request reads and may change; `unknown`: it may change anything, such as the clock."""

    reads: tuple[Wanted, ...] = ()
    changes: frozenset[ColumnKey] = frozenset()
    unknown: bool = False

    def independent_of(self, other: Effects) -> bool:
        """Whether the two requests are answered the same, and leave the same, in either order."""
        if self.unknown or other.unknown:
            return False
        return (
            self.changes.isdisjoint(other.changes)
            and not self._reads_any(other.changes)
            and not other._reads_any(self.changes)
        )

    def _reads_any(self, keys: frozenset[ColumnKey]) -> bool:
        return any(_covers(wanted, key) for wanted in self.reads for key in keys)


def effects_of(action: Action | None) -> Effects:
    """The effects of this request; of None, nothing."""
    match action:
        case None | Rest():
            return Effects()
        case Read(wanted):
            return Effects(wanted)
        case Send():
            return Effects((), frozenset().union(*map(_changed, action.batches)))
        case Commit(batch, expects):
            return Effects((_expected(batch, expects),), _changed(batch))
        case _:
            return Effects(unknown=True)


def _changed(batch: Batch) -> frozenset[ColumnKey]:
    names = [put.name for put in batch.puts] + list(batch.deletes)
    return frozenset(ColumnKey(batch.table, batch.row, name) for name in names)


def _expected(batch: Batch, expects: tuple[Expectation, ...]) -> Named:
    return Named(batch.row, tuple(expected.name for expected in expects), table=batch.table)


def _covers(wanted: Wanted, key: ColumnKey) -> bool:
    """Whether this column is among those wanted, or would be if it were there; limits may only make it fewer."""
    if (wanted.table, wanted.row) != key[:2]:
        return False
    if isinstance(wanted, Named):
        return key.name in wanted.names
    name = key.name
    return (
        name.type == wanted.type and wanted.priority in (None, name.priority) and wanted.after <= name.id < wanted.until
    )
