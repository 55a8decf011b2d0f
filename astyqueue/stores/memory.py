"""A store in the memory of one process, for tests, trials and work that may be lost with the process."""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from astyqueue.clock import Clock, Stamps
from astyqueue.errors import Closed
from astyqueue.findings import Finding, note
from astyqueue.store import Batch, Column, Committed, Expectation, Named, Outcome, Put, Refused, Slice, Spread, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.stores.column_name_codec import Changes
from astyqueue.stores.fork_hooks import HeldLocks, call_at_forks
from astyqueue.stores.sorted_keys import SortedNames
from astyqueue.stores.url import Location
from astyqueue.units import SECOND

if TYPE_CHECKING:
    from astyqueue.stores.async_adapter import Inline

#: Expired columns are kept for this long, so that they are there again if the clock was wrong and is set back.
_FORGET_AFTER: Final = 60 * SECOND


class _Cell(NamedTuple):
    column: Column
    expires: int | None


class _Expiry(NamedTuple):
    """The time at which a column expires."""

    at: int
    table: str
    row: str
    name: bytes


class _Change(NamedTuple):
    """Batches of one send, with its `stamp`, or the one of a commit."""

    batches: Sequence[tuple[Batch, Changes]]
    now: int
    stamp: int | None = None


class _Row:
    """The columns of one row, by encoded name."""

    def __init__(self) -> None:
        self.cells: dict[bytes, _Cell] = {}
        self._names = SortedNames()

    def put(self, name: bytes, cell: _Cell) -> None:
        if name not in self.cells:
            self._names.add(name)
        self.cells[name] = cell

    def delete(self, name: bytes) -> None:
        if self.cells.pop(name, None) is not None:
            self._names.remove(name)

    def sort_anew(self) -> None:
        """Make the sorted names again, which an interrupted change may have left unlike the cells."""
        self._names = SortedNames()
        for name in sorted(self.cells):
            self._names.add(name)

    def alive(self, name: bytes, now: int) -> Column | None:
        cell = self.cells.get(name)
        if cell is None or (cell.expires is not None and cell.expires <= now):
            return None
        return cell.column

    def slice(self, wanted: Slice, now: int) -> Iterator[Column]:
        low, high, ids = column_name_codec.bounds(wanted)
        first, last = ids or (b"", b"")
        for name in self._names.between(low, high):
            column, expires = self.cells[name]
            if (expires is None or expires > now) and (ids is None or first <= column.name.id < last):
                yield column


class _Rows:
    """All rows of a store, and the one lock that makes its verbs atomic."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = os.getpid()
        self.copied = False
        self._held = HeldLocks()
        self._rows: dict[tuple[str, str], _Row] = {}
        self._expiring: list[_Expiry] = []
        self._unfinished: _Change | None = None
        call_at_forks(self)

    def before_fork(self) -> None:
        """Take the lock: no thread may be within a change while the process is copied."""
        self._held.take((self.lock,))

    def after_fork(self, *, child: bool) -> None:
        """Release the lock. The child's copy is marked unusable: parent and child would claim the same messages."""
        self.copied = self.copied or child
        self._held.release()

    def read(self, wanted: Wanted, now: int) -> list[Column]:
        column_name_codec.known(wanted.table)
        row = self._rows.get((wanted.table, wanted.row))
        if row is None:
            return []
        found = islice(row.slice(wanted, now), wanted.limit) if isinstance(wanted, Slice) else _named(row, wanted, now)
        return list(found) if wanted.values else [column._replace(value=b"") for column in found]

    def present(self, batch: Batch, name: bytes, now: int) -> bytes | None:
        row = self._rows.get((batch.table, batch.row))
        column = row.alive(name, now) if row is not None else None
        return None if column is None else column.value

    def carry_out(self, change: _Change) -> None:
        """Carry out a change, whole, after one that a handler of signals interrupted, as that of Ctrl-C does."""
        self.finish()
        self._unfinished = change
        self._apply(change)
        self._unfinished = None

    def finish(self) -> None:
        """Carry out again, from the beginning, a change that was interrupted; every verb does so first."""
        if self._unfinished is not None:
            for row in self._rows.values():
                row.sort_anew()
            self._apply(self._unfinished)
            self._unfinished = None

    def _apply(self, change: _Change) -> None:
        for batch, changes in change.batches:
            if change.stamp is None:
                self._commit(batch, changes, change.now)
            else:
                self._send(batch, changes, now=change.now, stamp=change.stamp)

    def _send(self, batch: Batch, changes: Changes, *, now: int, stamp: int) -> None:
        row = self._rows.setdefault((batch.table, batch.row), _Row())
        for name, put in zip(changes.puts, batch.puts, strict=True):
            written = stamp if put.stamp is None else put.stamp
            there = row.alive(name, now)
            if there is None or (written, put.value) >= (there.written, there.value):
                row.put(name, _cell(put, written, now))
        self._end(row, batch, changes, now=now)

    def _commit(self, batch: Batch, changes: Changes, now: int) -> None:
        row = self._rows.setdefault((batch.table, batch.row), _Row())
        for name, put in zip(changes.puts, batch.puts, strict=True):
            there = row.alive(name, now)
            row.put(name, _cell(put, now if there is None else max(now, there.written + 1), now))
        self._end(row, batch, changes, now=now)

    def _end(self, row: _Row, batch: Batch, changes: Changes, *, now: int) -> None:
        for name in changes.deletes:
            row.delete(name)
        if not row.cells:
            del self._rows[batch.table, batch.row]
        for name, put in zip(changes.puts, batch.puts, strict=True):
            if put.ttl is not None:
                heapq.heappush(self._expiring, _Expiry(now + put.ttl * SECOND, batch.table, batch.row, name))
        while self._expiring and self._expiring[0].at < now - _FORGET_AFTER:
            self._forget(heapq.heappop(self._expiring))

    def _forget(self, expiry: _Expiry) -> None:
        """Remove an expired column, unless it was rewritten with another time to live."""
        row = self._rows.get((expiry.table, expiry.row))
        cell = row.cells.get(expiry.name) if row is not None else None
        if row is None or cell is None or cell.expires != expiry.at:
            return
        row.delete(expiry.name)
        if not row.cells:
            del self._rows[expiry.table, expiry.row]


def _named(row: _Row, wanted: Named, now: int) -> Iterator[Column]:
    for name in sorted(set(column_name_codec.encode_all(wanted.names))):
        column = row.alive(name, now)
        if column is not None:
            yield column


def _cell(put: Put, written: int, now: int) -> _Cell:
    return _Cell(Column(put.name, bytes(put.value), written), None if put.ttl is None else now + put.ttl * SECOND)


class MemoryStore:
    """A store in memory, for all threads of one process; its rows are its own, or shared by name."""

    spread = Spread()
    at_once = 4

    def __init__(self, clock: Clock, rows: _Rows | None = None) -> None:
        """Stamps and times to live go by `clock`."""
        self._clock = clock
        self._rows: _Rows | None = rows or _Rows()
        self._stamps = Stamps(clock)

    def __repr__(self) -> str:
        """Whether it is open."""
        return f"<MemoryStore {'closed' if self._rows is None else 'open'}>"

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:  # noqa: ARG002 - every read is exact
        """See `Store.read`; all slices are of one snapshot."""
        rows = self._open()
        now = self._clock.now()
        with rows.lock:
            rows.finish()
            return [rows.read(each, now) for each in wanted]

    def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`."""
        rows = self._open()
        checked = [(each, column_name_codec.changes(each)) for each in (batch, *more)]
        now, stamp = self._clock.now(), self._stamps.next()
        with rows.lock:
            rows.carry_out(_Change(checked, now, stamp))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        rows = self._open()
        changes, expected = column_name_codec.committed_changes(batch, expects)
        now = self._clock.now()
        with rows.lock:
            rows.finish()
            present = {each.name: rows.present(batch, name, now) for each, name in zip(expects, expected, strict=True)}
            if any(present[name] != value for name, value in expects):
                return Refused(present)
            rows.carry_out(_Change(((batch, changes),), now))
        return Committed()

    def as_async(self) -> Inline:
        """See `AsyncCapableStore`: no verb waits, so tasks need no thread."""
        from astyqueue.stores.async_adapter import Inline  # noqa: PLC0415 - only programs with tasks load asyncio

        return Inline(self)

    def close(self) -> None:
        """Release the rows; those of a shared name stay until the process ends."""
        self._rows = None

    def _open(self) -> _Rows:
        rows = self._rows
        if rows is None:
            message = "this memory store was closed; open a new one"
            raise Closed(message)
        if rows.copied:
            message = (
                f"this memory store belongs to process {rows.process}, and this is a fork of it: no other process "
                "would see the changes. Share a queue between processes with sqlite:///, or open a memory store after "
                "the fork"
            )
            raise Closed(message)
        return rows


class _Shared:
    """The rows of each shared name. They last as long as the process: the next store of that name has the same rows.

    There is no lock, because a fork could copy it while another thread holds it: `dict.setdefault` is atomic.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Rows] = {}
        call_at_forks(self)

    def rows(self, name: str) -> _Rows:
        return self._rows.get(name) or self._rows.setdefault(name, _Rows())

    def before_fork(self) -> None:
        """Do nothing: there is no lock."""

    def after_fork(self, *, child: bool) -> None:
        """Drop the names in a child: it must not use the rows of its parent."""
        if child:
            self._rows = {}


_SHARED = _Shared()


def opened(location: Location, *, clock: Clock) -> MemoryStore:
    """`memory://` is a new, private store.

    `memory://name` has the same rows for all that open the name in this process.
    """
    location.only(())
    return MemoryStore(clock, _SHARED.rows(location.place) if location.place else None)


_NOTHING: Final = "opening a store in memory creates it"


class MemoryAdministration:
    """The `Administration` of stores in memory: there is nothing to migrate or to check."""

    def statements(self) -> list[str]:
        """An empty list: opening a store creates it."""
        return []

    def migrate(self) -> list[str]:
        """Change nothing."""
        return [f"nothing to do: {_NOTHING}"]

    def verify(self) -> list[Finding]:
        """A note that the store is in memory."""
        return [
            note("store", "in memory", "its messages are lost when the process ends, and no other process sees them")
        ]

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:  # noqa: ARG002 - a row here needs no rest
        """The findings of `verify`."""
        return self.verify()

    def ready(self) -> bool:
        """Whether a store can be opened: always."""
        return True

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""


def administered(location: Location) -> MemoryAdministration:
    """The administration of a `memory://` URL."""
    location.only(())
    return MemoryAdministration()
