"""Converts names of columns to and from Cassandra's encoding.

The driver encodes every value from a Python object. A column's key is five values and a batch has hundreds, so the
bytes are made here directly from the name; ids differ from timeuuids in the order of their bytes only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from astyqueue.errors import BadInput
from astyqueue.ids import Id
from astyqueue.store import Column, Name

#: The clustering key of a column, and a selected row: key, value and write time.
Key = tuple[bytes, bytes, bytes, bytes]
Found = tuple[int, int, UUID, int, bytes, int]

_BYTES: Final = range(256)
_TURNED: Final = bytes(byte ^ 0x80 for byte in _BYTES)
_WITH_VERSION: Final = bytes(byte & 0x0F | 0x10 for byte in _BYTES)
_WITHOUT_VERSION: Final = bytes(byte & 0x0F for byte in _BYTES)
#: A `tinyint` is signed and the numbers in names are not, so half of its range is available.
_TINY: Final = {number: bytes((number,)) for number in range(128)}
#: A tuple (type, priority, id, state) in a list: each part is preceded by its length.
_LISTED: Final = struct.Struct(">iisisi16sis")
_LISTED_BYTES: Final = _LISTED.size - 4
_COUNT: Final = struct.Struct(">i")
#: `tuple.__new__` halves the cost of a row; this is the innermost loop of a read.
_new: Final = tuple.__new__


def timeuuid(id_: Id) -> bytes:
    """The bytes of an id's timeuuid."""
    return id_[4:8] + id_[2:4] + id_[:1].translate(_WITH_VERSION) + id_[1:2] + id_[8:].translate(_TURNED)


def id_of(kept: bytes) -> Id:
    """The id of a timeuuid's bytes."""
    return kept[6:7].translate(_WITHOUT_VERSION) + kept[7:8] + kept[4:6] + kept[:4] + kept[8:].translate(_TURNED)


def tiny(number: int) -> bytes:
    """A type, priority or state as a `tinyint`; more than 127 raises BadInput."""
    try:
        return _TINY[number]
    except KeyError:
        raise _does_not_fit(number) from None


def key(name: Name) -> Key:
    """The clustering key of a column; a number above 127 raises BadInput."""
    kind, priority, id_, state = name
    try:
        return _TINY[kind], _TINY[priority], timeuuid(id_), _TINY[state]
    except KeyError as error:
        raise _does_not_fit(error.args[0]) from None


def _does_not_fit(number: int) -> BadInput:
    return BadInput(f"{number} is out of range: on Cassandra types, priorities and states are 0 to {len(_TINY) - 1}")


def key_list(names: Iterable[Name]) -> bytes:
    """Names encoded as one value: a list of tuples."""
    packed = [
        _LISTED.pack(_LISTED_BYTES, 1, kind, 1, priority, 16, id_, 1, state)
        for kind, priority, id_, state in map(key, names)
    ]
    return _COUNT.pack(len(packed)) + b"".join(packed)


def columns(rows: Iterable[Found]) -> list[Column]:
    """The columns of the selected rows, in the same order."""
    return [
        _new(Column, (_new(Name, (kind, priority, id_of(id_.bytes), state)), value, written))
        for kind, priority, id_, state, value, written in rows
    ]
