"""The doorbell of a queue: two cells that show other processes which rows to scan. A lost ring costs only delay.

The *bell* names the rows that were sent to, by their places among the current rows; *wanted* names a row that a process
cannot claim from, because another one keeps it busy. Both are overwritten in place, and listeners compare values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import Closed, StoreError
from astyqueue.ids import Nonce
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.layout.rows import doorbell_row
from astyqueue.protocol.steps import Send, Steps
from astyqueue.store import Batch, Column, Name, Put, Slice

BELL: Final = Name(0, 0, ids.LEAST, 0)
WANTED: Final = Name(0, 0, ids.LEAST, 1)
#: More places than this are written as "any".
_NAMED: Final = 32
_NONCE: Final = 8


class DoorbellCells(NamedTuple):
    """The two cells; None for one that was not written yet."""

    bell: bytes | None
    wanted: bytes | None


class RebalanceRequest(NamedTuple):
    """A process, and the row that it cannot claim from."""

    process: str
    row: str


def bell_of(queue: str, places: Iterable[int], nonce: Nonce) -> Batch:
    """What announces to listening processes that messages were sent to rows at these places among the current ones."""
    named = sorted(set(places))
    written = named if len(named) <= _NAMED else []
    return _cell(queue, BELL, FORMAT + nonce + struct.pack(f">{len(written)}H", *written))


def rows_rung(bell: bytes) -> set[int] | None:
    """The places that a ring names; None: any."""
    packed = bell[1 + _NONCE :]
    return set(struct.unpack(f">{len(packed) // 2}H", packed)) if packed and not len(packed) % 2 else None


def request_rebalance(queue: str, request: RebalanceRequest, nonce: Nonce) -> Steps[None]:
    """Request that the process that keeps a row busy leaves it alone for a moment."""
    yield from write_hints([_cell(queue, WANTED, FORMAT + nonce + "\n".join(request).encode())])


def rebalance_request_in(wanted: bytes) -> RebalanceRequest | None:
    """The request in a wanted cell; None if it cannot be read."""
    process, found, row = wanted[1 + _NONCE :].decode(errors="replace").partition("\n")
    return RebalanceRequest(process, row) if found else None


def cells(queue: str) -> Slice:
    """The slice of the two cells."""
    return Slice(doorbell_row(queue), BELL.type, 0)


def doorbell_cells(columns: list[Column]) -> DoorbellCells:
    """The two cells among the columns read."""
    present = {column.name: column.value for column in columns}
    return DoorbellCells(present.get(BELL), present.get(WANTED))


def write_hints(hints: Sequence[Batch]) -> Steps[bool]:
    """Write hints in one request; without them, processes find a row a little later, so errors are ignored.

    So is that the store was closed: what the hints are about was done. Returns whether they are surely written.
    """
    if hints:
        try:
            yield Send(hints[0], tuple(hints[1:]))
        except (StoreError, Closed):
            return False
    return True


def _cell(queue: str, name: Name, value: bytes) -> Batch:
    return Batch(doorbell_row(queue), (Put(name, value),))
