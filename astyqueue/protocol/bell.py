"""The doorbell of a queue: two cells that tell other processes where to look. Losing a ring costs delay, nothing else.

The *bell* names the places, among the current rows, that were sent to; *wanted* names a row that a process cannot get a claim into,
because another one keeps it busy. Both are overwritten in place, and who listens sees that they changed.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import StoreError
from astyqueue.model.message import FORMAT
from astyqueue.protocol.rows import bell_row
from astyqueue.protocol.steps import Send, Steps
from astyqueue.store import Batch, Column, Name, Put, Slice

BELL: Final = Name(0, 0, ids.LEAST, 0)
WANTED: Final = Name(0, 0, ids.LEAST, 1)
#: More places than this are told as "any".
_NAMED: Final = 32
_NONCE: Final = 8


class Heard(NamedTuple):
    """The two cells as they are; None where nobody has written yet."""

    bell: bytes | None
    wanted: bytes | None


class Wish(NamedTuple):
    """Who wants to get a claim into which row."""

    process: str
    row: str


def ring(queue: str, places: Iterable[int], nonce: bytes) -> Steps[None]:
    """Tell whoever listens that these rows were sent to, by their places among the current ones."""
    named = sorted(set(places))
    told = named if len(named) <= _NAMED else []
    yield from _hint(queue, BELL, FORMAT + nonce + struct.pack(f">{len(told)}H", *told))


def rung_for(bell: bytes) -> set[int] | None:
    """The places that a ring names, or None for any."""
    packed = bell[1 + _NONCE :]
    return set(struct.unpack(f">{len(packed) // 2}H", packed)) if packed and not len(packed) % 2 else None


def want(queue: str, wish: Wish, nonce: bytes) -> Steps[None]:
    """Ask whoever keeps a row busy to leave it alone for a moment."""
    yield from _hint(queue, WANTED, FORMAT + nonce + "\n".join(wish).encode())


def wish_in(wanted: bytes) -> Wish | None:
    """What a wanted cell asks for; None if it cannot be read, for it is but a hint."""
    process, found, row = wanted[1 + _NONCE :].decode(errors="replace").partition("\n")
    return Wish(process, row) if found else None


def cells(queue: str) -> Slice:
    """Where the two cells are."""
    return Slice(bell_row(queue), BELL.type, 0)


def heard(columns: list[Column]) -> Heard:
    """The two cells, as read."""
    present = {column.name: column.value for column in columns}
    return Heard(present.get(BELL), present.get(WANTED))


def _hint(queue: str, name: Name, value: bytes) -> Steps[None]:
    with contextlib.suppress(StoreError):  # what it would have told is found a little later all the same
        yield Send(Batch(bell_row(queue), (Put(name, value),)))
