"""Cells as Cassandra keeps them: of two versions of a column the greater one wins, in whatever order they came."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, NamedTuple

#: What a cell is. At equal stamps what ends beats what lasts, and what was deleted beats what expires.
LASTING: Final = 0
EXPIRING: Final = 1
DELETED: Final = 2


class Cell(NamedTuple):
    """A version of one column. The order of these fields is the order in which versions are compared.

    `until` is when it ends or was deleted, in microseconds of its coordinator's clock, and zero for what lasts; of two
    lasting cells with one stamp the larger value stands.
    """

    stamp: int
    kind: int
    until: int
    value: bytes

    def is_live(self, now: int) -> bool:
        """Whether a read at this moment of the reader's clock shows it."""
        return self.kind == LASTING or (self.kind == EXPIRING and self.until > now)


#: Columns by encoded name, with the version to be written.
Changes = dict[bytes, Cell]
Found = dict[bytes, Cell]


class Row:
    """The cells of one row on one replica, tombstones included."""

    __slots__ = ("_names", "cells")

    def __init__(self) -> None:
        """Empty."""
        self.cells: Found = {}
        self._names: list[bytes] = []

    def apply(self, changes: Changes) -> None:
        """Let these versions stand where they are greater."""
        cells = self.cells
        for name, cell in changes.items():
            there = cells.get(name)
            if there is None:
                insort(self._names, name)
            elif there >= cell:
                continue
            cells[name] = cell

    def _forget(self, name: bytes) -> None:
        del self.cells[name]
        del self._names[bisect_left(self._names, name)]

    def between(self, low: bytes, high: bytes) -> Found:
        """All cells with names from `low` up to and without `high`."""
        names, cells = self._names, self.cells
        first = bisect_left(names, low)
        last = bisect_left(names, high, first)
        return {name: cells[name] for name in names[first:last]} if last > first else {}

    def named(self, names: tuple[bytes, ...]) -> Found:
        """The cells with these names."""
        cells = self.cells
        return {name: cells[name] for name in names if name in cells}

    def purge(self, before: int) -> int:
        """Forget tombstones older than this moment; returns their number."""
        old = [name for name, cell in self.cells.items() if cell.kind != LASTING and cell.until < before]
        for name in old:
            self._forget(name)
        return len(old)


def merged(found: list[Found]) -> Found:
    """What several replicas have together, in the order of names."""
    first = found[0]
    if all(other == first for other in found[1:]):
        return first
    together = dict(first)
    for other in found[1:]:
        together.update((name, cell) for name, cell in other.items() if name not in together or together[name] < cell)
    return dict(sorted(together.items()))


def lacking(all_of_it: Found, found: Found) -> Changes:
    """What a replica with these cells does not have yet."""
    return {name: cell for name, cell in all_of_it.items() if found.get(name) != cell}
