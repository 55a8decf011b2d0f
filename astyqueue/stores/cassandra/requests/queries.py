"""The CQL statements of the store, prepared once per session, and the driver requests for reads and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from cassandra.cluster import Session
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement

from astyqueue import ids
from astyqueue.ids import GREATEST, LEAST
from astyqueue.store import Batch, Column, Expectation, Name, Named, Put, Slice, Wanted
from astyqueue.stores.cassandra.requests import codec

#: Columns in a page: a plain read of more needs another request. An exact read has no pages: it must be one request.
PAGE: Final = 2000
#: Names in one request. The server looks up each name separately, so more of them only delay the first answer.
NAMES: Final = 500

#: Whether the batch was applied, the row, and a column with its current value.
Refusal = tuple[bool, str, int, int, UUID, int, bytes]

_LONG: Final = 8
_INT: Final = 4
_NOBODYS: Final = Name(0, 0, LEAST, 0)
_COLUMN: Final = "row = ? AND type = ? AND priority = ? AND id = ? AND state = ?"
_FOUND: Final = "SELECT type, priority, id, state, {value}, WRITETIME(value) FROM {table} WHERE row = ?"
_VALUE: Final = {True: "value", False: "(blob) 0x"}
_AFTER: Final = {True: ">", False: ">="}
_PUT: Final = "UPDATE {table} USING TIMESTAMP ? AND TTL ? SET value = ? WHERE {column}"
_DELETE: Final = "DELETE FROM {table} WHERE {column}"
_DELETE_IF: Final = "DELETE FROM {table} WHERE {column} IF value = ?"
_COMMIT: Final = "UPDATE {table} USING TTL ? SET value = ? WHERE {column}"
_COMMIT_IF: Final = "UPDATE {table} USING TTL ? SET value = ? WHERE {column} IF value = ?"
#: True for any stored value, because its argument is a new nonce: it makes a batch without expectations conditional.
_ALWAYS: Final = "UPDATE {table} SET value = ? WHERE {column} IF value != ?"
_SLICE: Final = _FOUND + " AND type = ? AND priority = ? AND id {after} ? AND id < ? LIMIT ?"
_SLICE_OF_TYPE: Final = _FOUND + " AND type = ? LIMIT ?"
_NAMED: Final = _FOUND + " AND (type, priority, id, state) IN ?"


def questions(statements: Statements, wanted: Wanted, *, exact: bool) -> list[BoundStatement]:
    """The requests for a slice or for names; their answers together are the columns."""
    row = wanted.row.encode()
    if isinstance(wanted, Slice):
        asked = [_slice(statements, wanted, row)]
    else:
        names = wanted.names if len(wanted.names) <= NAMES else sorted(set(wanted.names), key=_order)
        chunks = [names[start : start + NAMES] for start in range(0, len(names), NAMES)]
        asked = [bound(statements.named[wanted.values], [row, codec.key_list(chunk)]) for chunk in chunks]
    for each in asked:
        each.fetch_size = None if exact else PAGE
        each.is_idempotent = True
    return asked


def wanted_of(wanted: Wanted, rows: Iterable[codec.Found]) -> list[Column]:
    """The wanted columns among the rows of a page; the limit of a slice counts over all pages, and is not applied."""
    columns = codec.columns(rows)
    if isinstance(wanted, Named) or wanted.priority is not None or _is_whole(wanted):
        return columns
    after = ids.after(wanted.after) if wanted.beyond else wanted.after
    return [column for column in columns if after <= column.name.id < wanted.until]


def sent(statements: Statements, batch: Batch) -> BatchStatement:
    """An unconditional batch; idempotent, because it carries its write times."""
    row = batch.row.encode()
    changes = [
        bound(statements.put, [_number(stamp, _LONG), _number(ttl, _INT), bytes(value), row, *codec.key(name)])
        for name, value, stamp, ttl in batch.puts
    ]
    changes += [bound(statements.delete, [row, *codec.key(name)]) for name in batch.deletes]
    together = _together(changes)
    together.is_idempotent = True
    return together


def committed(statements: Statements, batch: Batch, expects: Iterable[Expectation]) -> BatchStatement:
    """A batch that is applied only if every expectation holds."""
    row = batch.row.encode()
    left = dict(expects)
    return _together(
        [
            *([] if left else [bound(statements.always, [UNSET_VALUE, row, *codec.key(_NOBODYS), ids.nonce()])]),
            *(_put(statements, put, row, expected=left) for put in batch.puts),
            *(_deleted(statements, name, row, expected=left) for name in batch.deletes),
            *_checked(statements, row, left),
        ]
    )


def present(expects: Iterable[Expectation], rows: Iterable[Refusal]) -> dict[Name, bytes | None]:
    """The values of all columns in the expectations; a refusal contains only those that exist."""
    found: dict[Name, bytes | None] = dict.fromkeys(each.name for each in expects)
    for _, _, kind, priority, id_, state, value in rows:
        found[Name(kind, priority, codec.id_of(id_.bytes), state)] = value
    return found


def bound(statement: PreparedStatement, values: list[object]) -> BoundStatement:
    """A statement with encoded values (bytes, None or unset): the driver's own encoding takes three times as long."""
    made = BoundStatement(statement)
    made.values = values
    return made


def _slice(statements: Statements, wanted: Slice, row: bytes) -> BoundStatement:
    limit = _number(wanted.limit, _INT)
    kind = codec.tiny(wanted.type)
    if wanted.priority is None:
        return bound(statements.slices_of_type[wanted.values], [row, kind, limit if _is_whole(wanted) else UNSET_VALUE])
    bounds = (codec.timeuuid(wanted.after), codec.timeuuid(wanted.until))
    return bound(
        statements.slices[wanted.values, wanted.beyond], [row, kind, codec.tiny(wanted.priority), *bounds, limit]
    )


def _is_whole(wanted: Slice) -> bool:
    """Whether the slice has no bounds on ids."""
    return wanted.after == LEAST and wanted.until == GREATEST and not wanted.beyond


def _order(name: Name) -> tuple[int, int, bytes, int]:
    return name.type, -name.priority, name.id, name.state


def _put(statements: Statements, put: Put, row: bytes, *, expected: dict[Name, bytes | None]) -> BoundStatement:
    values = [_number(put.ttl, _INT), bytes(put.value), row, *codec.key(put.name)]
    if put.name in expected:
        return bound(statements.commit_if, [*values, expected.pop(put.name)])
    return bound(statements.commit, values)


def _deleted(statements: Statements, name: Name, row: bytes, *, expected: dict[Name, bytes | None]) -> BoundStatement:
    if name in expected:
        return bound(statements.delete_if, [row, *codec.key(name), expected.pop(name)])
    return bound(statements.delete, [row, *codec.key(name)])


def _checked(statements: Statements, row: bytes, expected: dict[Name, bytes | None]) -> Iterator[BoundStatement]:
    """The expectations on columns that the commit does not change."""
    for name, value in expected.items():
        yield bound(statements.commit_if, [UNSET_VALUE, UNSET_VALUE, row, *codec.key(name), value])


def _number(number: int | None, size: int) -> object:
    return UNSET_VALUE if number is None else number.to_bytes(size, signed=True)


def _together(changes: Iterable[BoundStatement]) -> BatchStatement:
    """An unlogged batch: all of it is in one row, one partition, so it is one mutation and needs no log."""
    batch = BatchStatement(BatchType.UNLOGGED)
    for change in changes:
        batch.add(change)
    return batch


class Statements:
    """The statements for one table; `slices` by (values, beyond), `slices_of_type` and `named` by values."""

    def __init__(self, session: Session, table: str) -> None:
        """Prepare all statements; `table` is its qualified, quoted name."""

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
        self.slices_of_type: Final = {
            values: prepared(_SLICE_OF_TYPE, value=_VALUE[values]) for values in (True, False)
        }
        self.named: Final = {values: prepared(_NAMED, value=_VALUE[values]) for values in (True, False)}
