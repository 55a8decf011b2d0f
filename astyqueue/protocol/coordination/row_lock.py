"""Row locks: which process claims from a row first. A lock decides order and cost, never safety.

Every claim's commit expects the header's bytes, with or without a lock. So a lock that every process acquires costs
refused commits, one that none acquires costs delay, and processes with different locks may share a queue.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from astyqueue import ids
from astyqueue.errors import Closed, OutcomeUnknown, StoreError
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.protocol.layout.columns import STAMP_BACK, Type
from astyqueue.protocol.steps import Client, Send, Steps, read_one
from astyqueue.store import Batch, Column, Name, Put, Slice
from astyqueue.units import SECOND

_UNTIL: Final = struct.Struct(">Q")
#: Lock columns older than this many timeouts are not read, because tombstones lie there; their time to live is the
#: same.
_TIMEOUTS: Final = 2


def _nothing() -> None:
    """Do nothing: the default of `let_go`."""


@dataclass(frozen=True, slots=True)
class LockHandle:
    """A lock that this process has. To release it, delete `columns` in the claim's commit and call `let_go`."""

    columns: tuple[Name, ...] = ()
    let_go: Callable[[], None] = _nothing


class RowLock(Protocol):
    """The lock of the rows of one queue in one process."""

    @property
    def leases(self) -> bool:
        """Whether the owner in a row's header names the process that works there; otherwise claims leave it empty."""
        ...

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        """Lock a row; None, without waiting, if another process has it."""
        ...


class VersionGuard:
    """No lock: only the header that every commit expects, and the row lease, which needs no request of its own."""

    leases = True

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        """Always succeed, without a request."""
        del row
        yield from ()
        return LockHandle()


class LockState(IntEnum):
    """The states of lock columns; 0 and 1 of `Type.LOCK` are the header and the cell of rescans."""

    CANDIDATE = 3
    ACQUIRED = 4


class _Seen(NamedTuple):
    """The lock columns of a row: those that count, and those past their timeout."""

    alive: list[Name]
    stale: list[Name]


class ColumnLock:
    """A lock made of columns of the row: a process writes a candidate, and the lowest candidate acquires the lock.

    A lock that is not released expires after `timeout` microseconds. A lock column is written once, by a plain send,
    and deleted once: by the commit of the claim it was taken for, or by a plain send if there is no claim. Its name is
    a TimeUUID that is used for nothing else, so a plain write and a commit never change the same cell; and it carries a
    write time an hour back, like messages, so that every delete of it wins although clocks differ.

    Of two processes that write their candidates and then read, at least one sees the other. If the lower candidate
    arrives after the higher one has read, both may proceed: the header that their commits expect lets only one through.
    """

    leases = False

    def __init__(self, process: Client, timeout: int) -> None:
        """Create the lock; its columns are named and expire by this process's estimate of the store's time."""
        self._process = process
        self._timeout = timeout

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        """Take a row in two writes and a read; None if another process has it. After an error, what remains expires."""
        mine = self._name(LockState.CANDIDATE)
        yield from _write(Batch(row, (self._put(mine),)))
        try:
            return (yield from self._decide(row, mine))
        except StoreError:
            yield from release_columns(row, (mine,))
            raise

    def _decide(self, row: str, mine: Name) -> Steps[LockHandle | None]:
        seen = yield from self._read(row)
        if not _first(seen.alive, mine):
            yield from release_columns(row, (mine, *seen.stale))
            return None
        acquired = mine._replace(state=LockState.ACQUIRED)
        sure = yield from _write(Batch(row, (self._put(acquired),), (mine, *seen.stale)))
        return LockHandle((acquired,) if sure else (mine, acquired))

    def _name(self, state: LockState) -> Name:
        return Name(Type.LOCK, 0, self._process.id_at(self._process.now()), state)

    def _put(self, name: Name) -> Put:
        now = self._process.now()
        value = FORMAT + _UNTIL.pack(now + self._timeout) + self._process.name.encode()
        seconds = -(-self._timeout * _TIMEOUTS // SECOND)
        return Put(name, value, now - STAMP_BACK, seconds)

    def _read(self, row: str) -> Steps[_Seen]:
        now = self._process.now()
        oldest = ids.first_at(now - _TIMEOUTS * self._timeout)
        columns = yield from read_one(Slice(row, Type.LOCK, 0, after=oldest))
        stale = [column.name for column in columns if self._until(column) <= now]
        return _Seen([column.name for column in columns if column.name not in stale], stale)

    def _until(self, column: Column) -> int:
        """When a lock expires; for a value that cannot be read, by its age."""
        try:
            until: int = _UNTIL.unpack_from(unframed(column.value))[0]
        except (ValueError, struct.error):
            return ids.moment(column.name.id) + self._timeout
        return until


def _first(alive: Sequence[Name], mine: Name) -> bool:
    """Whether our candidate is there, the lowest of all, and no process has acquired the lock."""
    return bool(alive) and alive[0] == mine and all(name.state == LockState.CANDIDATE for name in alive)


def release_columns(row: str, columns: tuple[Name, ...]) -> Steps[None]:
    """Delete lock columns that no commit deletes; errors are ignored, as the columns expire."""
    with contextlib.suppress(StoreError, Closed):
        yield Send(Batch(row, deletes=columns))


def _write(batch: Batch) -> Steps[bool]:
    """Write; False if the outcome is unknown."""
    try:
        yield Send(batch)
    except OutcomeUnknown:
        return False
    return True
