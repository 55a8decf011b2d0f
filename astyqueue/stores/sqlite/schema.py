"""The tables of a database file: the statements that create them, and a comparison with those of a file.

The files in `schema/sqlite` are numbered by the format that they bring a database file to.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import Final, NamedTuple

from astyqueue.store import ENTRIES, HISTORY
from astyqueue.stores.schema_files import parts

_OURS: Final = frozenset({ENTRIES, HISTORY})
#: A view of ours: people may drop it, and a statement that writes to it must run nothing.
_VIEW: Final = "readable"
_KEPT: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"


class _Definition(NamedTuple):
    """A row of `sqlite_master`: the type of an object, its name, its table and its statement."""

    kind: str
    name: str
    table: str
    statement: str


def newest() -> int:
    """The format that this release makes."""
    return parts("sqlite")[-1].version


def upgrades(version: int) -> list[str]:
    """The statements that upgrade a file of this format to the newest."""
    return [statement for part in parts("sqlite") if part.version > version for statement in part.statements]


def difference(connection: sqlite3.Connection, version: int) -> str:
    """How the schema of a file differs from astyqueue's of this format; empty if it does not.

    The statements of astyqueue's tables are compared word by word, so that no view, trigger, default or computed index
    runs SQL that came with the file. Tables and views with other names are ignored, and so are triggers on them:
    astyqueue never reads or writes them. Such a trigger runs only by a statement of its user, even if it writes to our
    tables, and that user could write to them without it.
    """
    if version < 1:
        return f"has the invalid format {version}"
    wanted, there = _tables(version), set(_definitions(connection))
    for found in sorted(there.difference(wanted)):
        is_of_view = found.kind == "trigger" and found.table.lower() == _VIEW
        if is_of_view or not _OURS.isdisjoint((found.table.lower(), found.name.lower())):
            return f"has {found.kind} {found.name!r:.80}, which astyqueue did not make"
    return next((f"lacks {each.kind} {each.name!r}" for each in wanted if each not in there), "")


@cache
def _tables(version: int) -> tuple[_Definition, ...]:
    """The tables and indexes of a file of this format, in the order in which they are made.

    Not its view, which people may drop.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        for part in parts("sqlite"):
            for statement in part.statements if part.version <= version else ():
                connection.execute(statement)
        return tuple(each for each in _definitions(connection) if each.kind != "view")


def _definitions(connection: sqlite3.Connection) -> list[_Definition]:
    """What a file has, with single spaces in the statements."""
    found = [_Definition(*row) for row in connection.execute(_KEPT)]
    return [each._replace(statement=" ".join(each.statement.split())) for each in found]
