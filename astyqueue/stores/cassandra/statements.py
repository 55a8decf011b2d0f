"""The CQL of the store, prepared once in a session.

Columns are written by UPDATE only, never by INSERT: so a column is there exactly as long as its value is. In a commit an
UPDATE whose new value is left unset checks its condition and touches nothing, neither the value nor its write time.
"""

from __future__ import annotations

from typing import Final

from cassandra.cluster import Session
from cassandra.query import PreparedStatement

_COLUMN: Final = "row = ? AND type = ? AND priority = ? AND id = ? AND state = ?"
_FOUND: Final = "SELECT type, priority, id, state, {value}, WRITETIME(value) FROM {table} WHERE row = ?"
_VALUE: Final = {True: "value", False: "(blob) 0x"}
_AFTER: Final = {True: ">", False: ">="}

_PUT: Final = "UPDATE {table} USING TIMESTAMP ? AND TTL ? SET value = ? WHERE {column}"
_DELETE: Final = "DELETE FROM {table} WHERE {column}"
_DELETE_IF: Final = "DELETE FROM {table} WHERE {column} IF value = ?"
_COMMIT: Final = "UPDATE {table} USING TTL ? SET value = ? WHERE {column}"
_COMMIT_IF: Final = "UPDATE {table} USING TTL ? SET value = ? WHERE {column} IF value = ?"
#: Passes whatever is there, if the value it is given is nobody's: it makes a batch without expectations a conditional one.
_ALWAYS: Final = "UPDATE {table} SET value = ? WHERE {column} IF value != ?"
_SLICE: Final = _FOUND + " AND type = ? AND priority = ? AND id {after} ? AND id < ? LIMIT ?"
_SLICE_OF_TYPE: Final = _FOUND + " AND type = ? LIMIT ?"
_NAMED: Final = _FOUND + " AND (type, priority, id, state) IN ?"


class Statements:
    """The statements for one table; those that read are by (values, beyond) or by (values)."""

    def __init__(self, session: Session, table: str) -> None:
        """Prepare them all; `table` is its full name as CQL writes it."""

        def prepared(text: str, **parts: str) -> PreparedStatement:
            return session.prepare(text.format(table=table, column=_COLUMN, **parts))

        self.put: Final = prepared(_PUT)
        self.delete: Final = prepared(_DELETE)
        self.commit: Final = prepared(_COMMIT)
        self.commit_if: Final = prepared(_COMMIT_IF)
        self.delete_if: Final = prepared(_DELETE_IF)
        self.always: Final = prepared(_ALWAYS)
        self.slices: Final = {
            (values, beyond): prepared(_SLICE, value=_VALUE[values], after=_AFTER[beyond])
            for values in (True, False)
            for beyond in (True, False)
        }
        self.slices_of_type: Final = {values: prepared(_SLICE_OF_TYPE, value=_VALUE[values]) for values in (True, False)}
        self.named: Final = {values: prepared(_NAMED, value=_VALUE[values]) for values in (True, False)}
