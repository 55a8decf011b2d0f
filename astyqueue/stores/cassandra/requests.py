"""The questions of a read and the changes of a batch as requests to the driver, and its answers as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement

from astyqueue import ids
from astyqueue.ids import GREATEST, LEAST
from astyqueue.store import Batch, Column, Expectation, Name, Named, Put, Slice, Wanted
from astyqueue.stores.cassandra import cells
from astyqueue.stores.cassandra.statements import Statements

#: Columns of a page: a plain read of more goes to the server again. An exact one must be one request, or it is not exact.
PAGE: Final = 2000
#: Names in one question. The server finds each by itself, so more of them only make the wait for the first longer.
NAMES: Final = 500

#: Whether the batch was applied, the row, and a column with its present value.
Refusal = tuple[bool, str, int, int, UUID, int, bytes]

_LONG: Final = 8
_INT: Final = 4
_NOBODYS: Final = Name(0, 0, LEAST, 0)


def questions(statements: Statements, wanted: Wanted, *, exact: bool) -> list[BoundStatement]:
    """What to ask for a slice or for names; the answers together are the columns."""
    row = wanted.row.encode()
    if isinstance(wanted, Slice):
        asked = [_slice(statements, wanted, row)]
    else:
        names = wanted.names if len(wanted.names) <= NAMES else sorted(set(wanted.names), key=_order)
        chunks = [names[start : start + NAMES] for start in range(0, len(names), NAMES)]
        asked = [bound(statements.named[wanted.values], [row, cells.key_list(chunk)]) for chunk in chunks]
    for each in asked:
        each.fetch_size = None if exact else PAGE
        each.is_idempotent = True
    return asked


def answer(wanted: Wanted, rows: Iterable[cells.Found]) -> list[Column]:
    """The columns that were asked for among the rows that were found."""
    if isinstance(wanted, Named) or wanted.priority is not None or _is_whole(wanted):
        return cells.columns(rows)
    after = ids.behind(wanted.after) if wanted.beyond else wanted.after
    between = (column for row in rows for column in cells.columns((row,)) if after <= column.name.id < wanted.until)
    return list(islice(between, wanted.limit))


def sent(statements: Statements, batch: Batch) -> BatchStatement:
    """A batch that looks at nothing; it may be sent twice, for its write times go with it."""
    row = batch.row.encode()
    changes = [
        bound(statements.put, [_number(stamp, _LONG), _number(ttl, _INT), bytes(value), row, *cells.key(name)])
        for name, value, stamp, ttl in batch.puts
    ]
    changes += [bound(statements.delete, [row, *cells.key(name)]) for name in batch.deletes]
    together = _together(changes)
    together.is_idempotent = True
    return together


def committed(statements: Statements, batch: Batch, expects: Iterable[Expectation]) -> BatchStatement:
    """A batch that is applied only if every expectation holds."""
    row = batch.row.encode()
    left = dict(expects)
    return _together(
        [
            *([] if left else [bound(statements.always, [UNSET_VALUE, row, *cells.key(_NOBODYS), ids.nonce()])]),
            *(_put(statements, put, row, expected=left) for put in batch.puts),
            *(_deleted(statements, name, row, expected=left) for name in batch.deletes),
            *_checked(statements, row, left),
        ]
    )


def present(expects: Iterable[Expectation], rows: Iterable[Refusal]) -> dict[Name, bytes | None]:
    """The values of all columns that were expected; a refusal tells of those that are there."""
    found: dict[Name, bytes | None] = dict.fromkeys(each.name for each in expects)
    for _, _, kind, priority, id_, state, value in rows:
        found[Name(kind, priority, cells.id_of(id_.bytes), state)] = value
    return found


def bound(statement: PreparedStatement, values: list[object]) -> BoundStatement:
    """A statement with values that are bytes already (or None, or unset): the driver's own way takes three times as long."""
    made = BoundStatement(statement)
    made.values = values
    return made


def _slice(statements: Statements, wanted: Slice, row: bytes) -> BoundStatement:
    limit = _number(wanted.limit, _INT)
    kind = cells.tiny(wanted.type)
    if wanted.priority is None:
        return bound(statements.slices_of_type[wanted.values], [row, kind, limit if _is_whole(wanted) else UNSET_VALUE])
    bounds = (cells.timeuuid(wanted.after), cells.timeuuid(wanted.until))
    return bound(statements.slices[wanted.values, wanted.beyond], [row, kind, cells.tiny(wanted.priority), *bounds, limit])


def _is_whole(wanted: Slice) -> bool:
    """Whether no ids are left out."""
    return wanted.after == LEAST and wanted.until == GREATEST and not wanted.beyond


def _order(name: Name) -> tuple[int, int, bytes, int]:
    return name.type, -name.priority, name.id, name.state


def _put(statements: Statements, put: Put, row: bytes, *, expected: dict[Name, bytes | None]) -> BoundStatement:
    values = [_number(put.ttl, _INT), bytes(put.value), row, *cells.key(put.name)]
    if put.name in expected:
        return bound(statements.commit_if, [*values, expected.pop(put.name)])
    return bound(statements.commit, values)


def _deleted(statements: Statements, name: Name, row: bytes, *, expected: dict[Name, bytes | None]) -> BoundStatement:
    if name in expected:
        return bound(statements.delete_if, [row, *cells.key(name), expected.pop(name)])
    return bound(statements.delete, [row, *cells.key(name)])


def _checked(statements: Statements, row: bytes, expected: dict[Name, bytes | None]) -> Iterator[BoundStatement]:
    """Expectations of columns that the commit leaves as they are."""
    for name, value in expected.items():
        yield bound(statements.commit_if, [UNSET_VALUE, UNSET_VALUE, row, *cells.key(name), value])


def _number(number: int | None, size: int) -> object:
    return UNSET_VALUE if number is None else number.to_bytes(size, signed=True)


def _together(changes: Iterable[BoundStatement]) -> BatchStatement:
    """One row is one partition, and a batch on one partition is one mutation: there is nothing to log."""
    batch = BatchStatement(BatchType.UNLOGGED)
    for change in changes:
        batch.add(change)
    return batch
