"""Which of two versions of a cell stands, as on real servers."""

from __future__ import annotations

import itertools

import pytest

from tests.simulation.cassandra.storage import DELETED, EXPIRING, LASTING, Cell, Row, merged

NAME = b"name"


def surviving(*cells: Cell) -> set[Cell]:
    """What stands after these came, in any order."""
    found = set()
    for order in itertools.permutations(cells):
        row = Row()
        for cell in order:
            row.apply({NAME: cell})
        found.add(row.cells[NAME])
    return found


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        (Cell(2, LASTING, 0, b"a"), Cell(1, LASTING, 0, b"b")),
        (Cell(1, DELETED, 5, b""), Cell(1, LASTING, 0, b"b")),
        (Cell(1, EXPIRING, 5, b"a"), Cell(1, LASTING, 0, b"b")),
        (Cell(1, DELETED, 5, b""), Cell(1, EXPIRING, 9, b"b")),
        (Cell(1, LASTING, 0, b"x"), Cell(1, LASTING, 0, b"a")),
        (Cell(2, LASTING, 0, b"a"), Cell(1, DELETED, 5, b"")),
    ],
    ids=["later", "deleted", "expiring", "deleted beats expiring", "larger value", "written behind a tombstone"],
)
def test_of_two_versions_one_stands_whichever_came_first(winner: Cell, loser: Cell) -> None:
    assert surviving(winner, loser) == {winner}


def test_what_several_replicas_have_is_merged_name_by_name() -> None:
    old, new, tombstone = Cell(1, LASTING, 0, b"old"), Cell(2, LASTING, 0, b"new"), Cell(3, DELETED, 0, b"")
    assert merged([{b"a": old, b"b": new}, {b"a": new, b"c": tombstone}]) == {b"a": new, b"b": new, b"c": tombstone}


def test_tombstones_are_purged_once_they_are_old() -> None:
    row = Row()
    row.apply({b"a": Cell(1, DELETED, 10, b""), b"b": Cell(1, DELETED, 20, b""), b"c": Cell(1, LASTING, 0, b"")})
    assert row.purge(15) == 1
    assert list(row.cells) == [b"b", b"c"]
