"""Names of columns as Cassandra keeps them, and back.

The driver turns every value into bytes by way of Python objects. A column's key is five values and there are hundreds in
a batch, so the bytes are made here straight from the name; ids differ from timeuuids in the order of their bytes only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from astyqueue.errors import BadInput
from astyqueue.ids import Id
from astyqueue.store import Column, Name

#: The values that find a column in its row, and those of a column that was found, with its value and write time.
Key = tuple[bytes, bytes, bytes, bytes]
Found = tuple[int, int, UUID, int, bytes, int]

_BYTES: Final = range(256)
_TURNED: Final = bytes(byte ^ 0x80 for byte in _BYTES)
_WITH_VERSION: Final = bytes(byte & 0x0F | 0x10 for byte in _BYTES)
_WITHOUT_VERSION: Final = bytes(byte & 0x0F for byte in _BYTES)
#: A `tinyint` is signed; the numbers in names are not, so half of its range is theirs.
_TINY: Final = {number: bytes((number,)) for number in range(128)}
#: A tuple (type, priority, id, state) in a list: every part after its length.
_LISTED: Final = struct.Struct(">iisisi16sis")
_LISTED_BYTES: Final = _LISTED.size - 4
_COUNT: Final = struct.Struct(">i")
#: Making a tuple's subclass straight from its parts halves the cost of a row; this is the innermost loop of a read.
_new: Final = tuple.__new__


def timeuuid(id_: Id) -> bytes:
    """The bytes of an id's timeuuid."""
    return id_[4:8] + id_[2:4] + id_[:1].translate(_WITH_VERSION) + id_[1:2] + id_[8:].translate(_TURNED)


def id_of(kept: bytes) -> Id:
    """The id of a timeuuid's bytes."""
    return kept[6:7].translate(_WITHOUT_VERSION) + kept[7:8] + kept[4:6] + kept[:4] + kept[8:].translate(_TURNED)


def tiny(number: int) -> bytes:
    """A type, priority or state; more than 127 raises BadInput."""
    try:
        return _TINY[number]
    except KeyError:
        raise _does_not_fit(number) from None


def key(name: Name) -> Key:
    """The values that find a column in its row; a name that does not fit raises BadInput."""
    kind, priority, id_, state = name
    try:
        return _TINY[kind], _TINY[priority], timeuuid(id_), _TINY[state]
    except KeyError as error:
        raise _does_not_fit(error.args[0]) from None


def _does_not_fit(number: int) -> BadInput:
    return BadInput(f"{number} does not fit: on Cassandra types, priorities and states are 0 to {len(_TINY) - 1}")


def key_list(names: Iterable[Name]) -> bytes:
    """Names as one value: a list of tuples."""
    packed = [_LISTED.pack(_LISTED_BYTES, 1, kind, 1, priority, 16, id_, 1, state) for kind, priority, id_, state in map(key, names)]
    return _COUNT.pack(len(packed)) + b"".join(packed)


def columns(rows: Iterable[Found]) -> list[Column]:
    """Columns of what was selected, in the same order."""
    return [
        _new(Column, (_new(Name, (kind, priority, id_of(id_.bytes), state)), value, written))
        for kind, priority, id_, state, value, written in rows
    ]
