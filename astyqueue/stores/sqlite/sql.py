"""The SQL statements on columns.

The tables are in `schema/sqlite`. The columns of a row are stored together, in the order of their names.
"""

from __future__ import annotations

from typing import Final

DATA_VERSION: Final = "PRAGMA data_version"
BEGIN: Final = "BEGIN IMMEDIATE"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"

#: `IN` lists have these lengths only, padded with their last name, so that few statements have to be prepared;
#: the longest is the usual size of a claim.
LENGTHS: Final = (1, 8, 32, 64, 200)
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
#: The put with the later stamp wins; of two with one stamp the one with the greater value, as in every store.
_SEND: Final = """
    INSERT INTO TABLE (row, name, stamp, expires, value) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (row, name) DO UPDATE SET stamp = excluded.stamp, expires = excluded.expires, value = excluded.value
    WHERE (excluded.stamp, excluded.value) >= (stamp, value) OR expires <= ?
"""
#: A commit always wins, and its stamp is later than that of the column it overwrites.
_COMMIT: Final = """
    INSERT INTO TABLE (row, name, stamp, expires, value) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (row, name) DO UPDATE
    SET stamp = max(excluded.stamp, stamp + 1), expires = excluded.expires, value = excluded.value
"""
_FORGET: Final = "DELETE FROM TABLE WHERE (row, name) IN (SELECT row, name FROM TABLE WHERE expires < ? LIMIT ?)"
_NEXT_EXPIRY: Final = "SELECT min(expires) FROM TABLE WHERE expires > ?"


class Statements:
    """The statements on one table; `TABLE` in the texts below stands for its name."""

    def __init__(self, table: str) -> None:
        """Build the statements for `table`."""

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
