"""A lock made of columns of the row itself: whoever wants it writes a candidate, and the lowest candidate acquires.

A lock column is written once, by a plain send, and deleted once: by the commit of the claim it was taken for, or by a plain
send if there is no claim. Its name is a TimeUUID that is used for nothing else, so a plain write never meets a commit on one
cell, and it is stamped an hour back, as messages are, so that every delete of it wins although clocks differ.

Of two who write their candidates and then read, one at least sees the other. When the lower one lands only after the
higher one has read, both may go: the guard of their commits tells them apart.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.model.message import FORMAT
from astyqueue.protocol.columns import Type
from astyqueue.protocol.process import Process
from astyqueue.protocol.rowlock import Grip
from astyqueue.protocol.send import STAMP_BACK
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.store import Batch, Column, Name, Put, Slice

_SECOND: Final = 1_000_000
_UNTIL: Final = struct.Struct(">Q")
#: Lock columns older than so many timeouts are not even read, for behind them lie those that were deleted; no store keeps them longer.
_TIMEOUTS: Final = 2


class LockState(IntEnum):
    """The states of lock columns."""

    CANDIDATE = 3
    ACQUIRED = 4


class _Seen(NamedTuple):
    """The lock columns of a row: those that count, and those whose time has passed."""

    alive: list[Name]
    stale: list[Name]


class ColumnLock:
    """The lock of the rows of one queue. One that is not let go of counts for `timeout` microseconds of the store's time."""

    leases = False

    def __init__(self, process: Process, timeout: int) -> None:
        """Columns are named and judged by this process's idea of the store's time."""
        self._process = process
        self._timeout = timeout

    def acquire(self, row: str) -> Steps[Grip | None]:
        """Two writes and a read; one write more when somebody else was first. An error leaves nothing that does not go by itself."""
        mine = self._name(LockState.CANDIDATE)
        yield from _write(Batch(row, (self._put(mine),)))
        try:
            return (yield from self._decide(row, mine))
        except StoreError:
            yield from remove(row, (mine,))
            raise

    def _decide(self, row: str, mine: Name) -> Steps[Grip | None]:
        seen = yield from self._read(row)
        if not _first(seen.alive, mine):
            yield from remove(row, (mine, *seen.stale))
            return None
        acquired = mine._replace(state=LockState.ACQUIRED)
        sure = yield from _write(Batch(row, (self._put(acquired),), (mine, *seen.stale)))
        return Grip((acquired,) if sure else (mine, acquired))

    def _name(self, state: LockState) -> Name:
        return Name(Type.LOCK, 0, self._process.id_at(self._process.now()), state)

    def _put(self, name: Name) -> Put:
        now = self._process.now()
        value = FORMAT + _UNTIL.pack(now + self._timeout) + self._process.name.encode()
        seconds = -(-self._timeout * _TIMEOUTS // _SECOND)
        return Put(name, value, now - STAMP_BACK, seconds)

    def _read(self, row: str) -> Steps[_Seen]:
        now = self._process.now()
        oldest = ids.first_at(now - _TIMEOUTS * self._timeout)
        columns = yield from read_one(Slice(row, Type.LOCK, 0, after=oldest))
        stale = [column.name for column in columns if self._until(column) <= now]
        return _Seen([column.name for column in columns if column.name not in stale], stale)

    def _until(self, column: Column) -> int:
        """When a lock is stale; of a value that cannot be read, by its age."""
        if column.value[:1] != FORMAT or len(column.value) <= _UNTIL.size:
            return ids.moment(column.name.id) + self._timeout
        until: int = _UNTIL.unpack_from(column.value, 1)[0]
        return until


def _first(alive: Sequence[Name], mine: Name) -> bool:
    """Whether our candidate is there, the lowest of all, and nobody has acquired."""
    return bool(alive) and alive[0] == mine and all(name.state == LockState.CANDIDATE for name in alive)


def remove(row: str, columns: tuple[Name, ...]) -> Steps[None]:
    """Delete lock columns that no commit deletes; those that stay for an error go by themselves."""
    with contextlib.suppress(StoreError):
        yield Send(Batch(row, deletes=columns))


def _write(batch: Batch) -> Steps[bool]:
    """Write, and say whether it is sure that it was written."""
    try:
        yield Send(batch)
    except OutcomeUnknown:
        return False
    return True
