"""Encodes names of columns as bytes that sort in the order of names, and checks batches, for all adapters.

One byte for the type, one for the priority (inverted, because higher priorities come first), sixteen for the id, one
for the state. Encoded names compare bytewise like the names, so any ordered map of bytes can store a row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from astyqueue.errors import BadInput, BadSetting
from astyqueue.ids import GREATEST, LEAST
from astyqueue.store import ENTRIES, HISTORY, Batch, Column, Expectation, Name, Slice

#: The tables of every store.
TABLES: Final = frozenset({ENTRIES, HISTORY})

_NAME: Final = struct.Struct(">BB16sB")
_HIGHEST: Final = 255
#: Greater than every encoded name.
_END: Final = b"\xff" * (_NAME.size + 1)
#: Appended to an id, it makes a bound beyond every state of that id.
_BEYOND_STATES: Final = b"\xff\x00"
#: Appended to an id, it makes the least bound greater than the id.
_BEYOND_ID: Final = b"\x00"
#: `tuple.__new__` halves the cost of a row; this is the innermost loop of a read.
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
        message = f"invalid name of a column: {error}. Types, priorities and states are 0 to 255, ids are sixteen bytes"
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
    """The range of a slice in encoded names: from `low`, inclusive, to `high`, exclusive.

    `ids`, when it is not None, bounds the ids likewise: a slice over all priorities is not one range of names.
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
    """The encoded names of a batch; one that stores could not all apply in the same way raises BadInput."""
    known(batch.table)
    puts = encode_all([put.name for put in batch.puts])
    deletes = encode_all(batch.deletes)
    if puts and deletes and not set(deletes).isdisjoint(puts):
        both = decode(min(set(deletes).intersection(puts)))
        message = f"row {batch.row}: {both} is both put and deleted in one batch; omit one of the two"
        raise BadInput(message)
    if any(put.ttl is not None and put.ttl < 1 for put in batch.puts):
        message = f"row {batch.row}: a time to live is at least one second; omit it to keep a column for good"
        raise BadInput(message)
    return Changes(puts, deletes)


def committed_changes(batch: Batch, expects: tuple[Expectation, ...]) -> tuple[Changes, list[bytes]]:
    """The encoded names of a commit and of its expectations.

    A put with a stamp raises BadInput: the store stamps commits.
    """
    if any(put.stamp is not None for put in batch.puts):
        message = f"row {batch.row}: the puts of a commit must have no stamps; the store stamps commits"
        raise BadInput(message)
    return changes(batch), encode_all([expected.name for expected in expects])


def known(table: str) -> None:
    """Raise BadSetting for an unknown table."""
    if table not in TABLES:
        message = f"unknown table {table!r}; the tables of a store are: {', '.join(sorted(TABLES))}"
        raise BadSetting(message)
