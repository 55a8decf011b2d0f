"""Names of columns as bytes that sort in the order of names, and the checks of a batch that all adapters share.

One byte of type, one of priority (turned round, because higher priorities come first), the sixteen of the id, one of
state. Comparing two encoded names byte by byte is comparing the names, so any ordered map of bytes can hold a row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from astyqueue.errors import BadInput, BadSetting
from astyqueue.ids import GREATEST, LEAST
from astyqueue.store import ENTRIES, HISTORY, Batch, Column, Expectation, Name, Slice

#: The tables that a store keeps.
TABLES: Final = frozenset({ENTRIES, HISTORY})

_NAME: Final = struct.Struct(">BB16sB")
_HIGHEST: Final = 255
#: Greater than every encoded name.
_END: Final = b"\xff" * (_NAME.size + 1)
#: Put behind an id it makes a bound that lies beyond every state of that id.
_BEYOND_STATES: Final = b"\xff\x00"
#: Put behind an id alone it makes the least bound that is greater than the id.
_BEYOND_ID: Final = b"\x00"
#: Making a tuple's subclass straight from its parts halves the cost of a row; this is the innermost loop of a read.
_new: Final = tuple.__new__


def encode(name: Name) -> bytes:
    """The nineteen bytes of a name; a type, priority or state outside 0..255 raises BadInput."""
    return encode_all((name,))[0]


def encode_all(names: Iterable[Name]) -> list[bytes]:
    """Each name as `encode` writes it."""
    pack = _NAME.pack
    try:
        return [pack(kind, _HIGHEST - priority, id_, state) for kind, priority, id_, state in names]
    except struct.error as error:
        message = f"a column's name does not fit: {error}. Types, priorities and states are 0 to 255, ids are sixteen bytes"
        raise BadInput(message) from error


def decode(encoded: bytes) -> Name:
    """The name that `encode` wrote."""
    kind, turned, id_, state = _NAME.unpack(encoded)
    return Name(kind, _HIGHEST - turned, id_, state)


def columns(found: Sequence[tuple[bytes, bytes, int]]) -> list[Column]:
    """Columns from (encoded name, value, write time), in the same order."""
    names = _NAME.iter_unpack(b"".join([encoded for encoded, _, _ in found]))
    return [
        _new(Column, (_new(Name, (kind, _HIGHEST - turned, id_, state)), value, written))
        for (_, value, written), (kind, turned, id_, state) in zip(found, names, strict=True)
    ]


class Bounds(NamedTuple):
    """Where a slice lies among encoded names: from `low` up to and without `high`.

    `ids`, when it is not None, bounds the ids as well, in the same manner: a slice over all priorities is not one
    stretch of names.
    """

    low: bytes
    high: bytes
    ids: tuple[bytes, bytes] | None


def bounds(wanted: Slice) -> Bounds:
    """The bounds of a slice."""
    if wanted.priority is not None:
        prefix = bytes((wanted.type, _HIGHEST - wanted.priority))
        return Bounds(prefix + wanted.after + _BEYOND_STATES * wanted.beyond, prefix + wanted.until, None)
    low = bytes((wanted.type,))
    high = bytes((wanted.type + 1,)) if wanted.type < _HIGHEST else _END
    if wanted.after == LEAST and wanted.until == GREATEST and not wanted.beyond:
        return Bounds(low, high, None)
    return Bounds(low, high, (wanted.after + _BEYOND_ID * wanted.beyond, wanted.until))


class Changes(NamedTuple):
    """The encoded names of a batch's puts and of its deletes, each in the order of the batch."""

    puts: list[bytes]
    deletes: list[bytes]


def changes(batch: Batch) -> Changes:
    """The names of a batch, checked: what no store could do in the same manner as the others raises BadInput."""
    known(batch.table)
    puts = encode_all([put.name for put in batch.puts])
    deletes = encode_all(batch.deletes)
    if puts and deletes and not set(deletes).isdisjoint(puts):
        both = decode(min(set(deletes).intersection(puts)))
        message = f"row {batch.row}: {both} is both put and deleted in one batch; leave out one of the two"
        raise BadInput(message)
    if any(put.ttl is not None and put.ttl < 1 for put in batch.puts):
        message = f"row {batch.row}: a time to live is at least one second; leave it out to keep a column for good"
        raise BadInput(message)
    return Changes(puts, deletes)


def committed_changes(batch: Batch, expects: tuple[Expectation, ...]) -> tuple[Changes, list[bytes]]:
    """The names of a commit and of its expectations; a stamped put raises BadInput, for the store gives a commit its time."""
    if any(put.stamp is not None for put in batch.puts):
        message = f"row {batch.row}: a commit's puts carry no stamps; the store gives the time of the commit"
        raise BadInput(message)
    return changes(batch), encode_all([expected.name for expected in expects])


def known(table: str) -> None:
    """Raise BadSetting for a table that stores do not keep."""
    if table not in TABLES:
        message = f"there is no table {table!r}; the tables of a store are: {', '.join(sorted(TABLES))}"
        raise BadSetting(message)
