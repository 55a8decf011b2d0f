"""Every line of SQL that runs on columns.

A row's columns lie together, in the order of their names, because the primary key of a table without rowids is its
place on disk. Times come before the value, so that looking at them never walks the pages of a long value.
"""

from __future__ import annotations

from typing import Final

DATA_VERSION: Final = "PRAGMA data_version"
BEGIN: Final = "BEGIN IMMEDIATE"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"

#: `IN` lists come in these lengths only, filled up with their last name, so that few statements have to be prepared;
#: the longest is the usual size of a claim.
LENGTHS: Final = (1, 8, 32, 64, 200)


class Statements:
    """The statements on one table; `TABLE` in the texts below stands for its name."""

    def __init__(self, table: str) -> None:
        """Write them down once."""

        def on(text: str) -> str:
            return text.replace("TABLE", table)

        self.send: Final = on(_SEND)
        self.commit: Final = on(_COMMIT)
        self.forget: Final = on(_FORGET)
        self.next_expiry: Final = on(_NEXT_EXPIRY)
        self.slices: Final = {
            (values, by_id): on(_SLICE).replace("VALUE", _VALUE[values]).replace("IDS", _IDS[by_id])
            for values in (True, False)
            for by_id in (True, False)
        }
        self.named: Final = {
            (values, length): on(_NAMED).replace("VALUE", _VALUE[values]).replace("NAMES", _marks(length))
            for values in (True, False)
            for length in LENGTHS
        }
        self.deletes: Final = {length: on(_DELETE).replace("NAMES", _marks(length)) for length in LENGTHS}


def _marks(length: int) -> str:
    return ", ".join("?" * length)


_VALUE: Final = {True: "value", False: "x''"}
_IDS: Final = {True: "AND substr(name, 3, 16) >= ? AND substr(name, 3, 16) < ?", False: ""}
_SLICE: Final = """
    SELECT name, VALUE, stamp FROM TABLE
    WHERE row = ? AND name >= ? AND name < ? AND (expires IS NULL OR expires > ?) IDS ORDER BY name LIMIT ?
"""
_NAMED: Final = """
    SELECT name, VALUE, stamp FROM TABLE
    WHERE row = ? AND (expires IS NULL OR expires > ?) AND name IN (NAMES) ORDER BY name
"""
_DELETE: Final = "DELETE FROM TABLE WHERE row = ? AND name IN (NAMES)"

#: A plain put gives way to a later stamp; of two with one stamp the greater value stands, as everywhere.
_SEND: Final = """
    INSERT INTO TABLE (row, name, stamp, expires, value) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (row, name) DO UPDATE SET stamp = excluded.stamp, expires = excluded.expires, value = excluded.value
    WHERE (excluded.stamp, excluded.value) >= (stamp, value) OR expires <= ?6
"""
#: A commit stands in any case, and is stamped later than what it overwrites.
_COMMIT: Final = """
    INSERT INTO TABLE (row, name, stamp, expires, value) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (row, name) DO UPDATE SET stamp = max(excluded.stamp, stamp + 1), expires = excluded.expires, value = excluded.value
"""
_FORGET: Final = "DELETE FROM TABLE WHERE (row, name) IN (SELECT row, name FROM TABLE WHERE expires < ? LIMIT ?)"
_NEXT_EXPIRY: Final = "SELECT min(expires) FROM TABLE WHERE expires > ?"
