"""The tables of a database file: the statements that create them, and a comparison with those of a file."""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Final, NamedTuple

from astyqueue.store import ENTRIES, HISTORY
from astyqueue.stores.sqlite.sql import READABLE

_TABLE: Final = """
    CREATE TABLE TABLE_NAME (
        row TEXT NOT NULL, name BLOB NOT NULL, stamp INTEGER NOT NULL, expires INTEGER, value BLOB NOT NULL,
        PRIMARY KEY (row, name)
    ) WITHOUT ROWID
"""
#: Costs nothing for columns that stay for good, which are nearly all.
_EXPIRING: Final = "CREATE INDEX TABLE_NAME_expiring ON TABLE_NAME (expires) WHERE expires IS NOT NULL"


class _Part(NamedTuple):
    """A row of `sqlite_master`: the type of an object, its name, its table and its statement."""

    kind: str
    name: str
    table: str
    statement: str


def _parts(table: str) -> tuple[_Part, _Part]:
    return (
        _Part("table", table, table, _TABLE.replace("TABLE_NAME", table)),
        _Part("index", f"{table}_expiring", table, _EXPIRING.replace("TABLE_NAME", table)),
    )


#: The tables that each format adds to the one before it, and its other statements.
_FORMATS: Final = (_parts(ENTRIES), _parts(HISTORY))
_BESIDE: Final = ((READABLE,), ())
#: The format that this release makes.
NEWEST: Final = len(_FORMATS)
_OURS: Final = frozenset({ENTRIES, HISTORY})
#: SQLite stores statements without the whitespace around them; `_alike` ignores that within them.
_KEPT: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"


def upgrades(version: int) -> list[str]:
    """The statements that upgrade a file of this format to the newest."""
    steps = zip(_FORMATS[version:], _BESIDE[version:], strict=True)
    return [statement for parts, beside in steps for statement in (*(part.statement for part in parts), *beside)]


def difference(connection: sqlite3.Connection, version: int) -> str:
    """How the schema of a file differs from astyqueue's of this format; empty if it does not.

    The statements of astyqueue's tables are compared word by word, so that no view, trigger, default or computed index
    runs SQL that came with the file. Tables and views with other names are ignored: astyqueue never reads them.
    """
    if version < 1:
        return f"has the invalid format {version}"
    wanted = [_alike(part) for part in chain.from_iterable(_FORMATS[:version])]
    there = {_alike(_Part(*row)) for row in connection.execute(_KEPT)}
    for part in sorted(there.difference(wanted)):
        if part.kind == "trigger" or not _OURS.isdisjoint((part.table.lower(), part.name.lower())):
            return f"has {part.kind} {part.name!r:.80}, which astyqueue did not make"
    return next((f"lacks {part.kind} {part.name!r}" for part in wanted if part not in there), "")


def _alike(part: _Part) -> _Part:
    return part._replace(statement=" ".join(part.statement.split()))
