"""What one thread does with its connection to the file."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from astyqueue.clock import SECOND
from astyqueue.store import Batch, Column, Expectation, Name, Named, Slice, Wanted
from astyqueue.stores import encoding
from astyqueue.stores.encoding import TABLES, Changes
from astyqueue.stores.sqlite import statements
from astyqueue.stores.sqlite.statements import LENGTHS, Statements

_STATEMENTS: Final = {table: Statements(table) for table in TABLES}
#: Answers of more columns than this are not kept: whoever polls for nothing gets few.
_KEPT_COLUMNS: Final = 64
#: What is past its time to live leaves the file this much later, so that a clock set right again finds it.
_FORGET_AFTER: Final = 60 * SECOND
#: How many of those one writer of a time to live clears away: more than it adds, so they never pile up.
_FORGET_AT_LEAST: Final = 100
_FOR_EVER: Final = 1 << 62

Answer = list[list[Column]]


class _Kept(NamedTuple):
    """An answer, the version of the file it was true for, and the time it is good for."""

    answer: Answer
    version: int
    since: int
    until: int


class Session:
    """A connection, made when first needed, and the answer it gave last. Its user holds `lock`."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """`connect` makes the connection, also anew after it was dropped."""
        self.lock = threading.Lock()
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._asked: tuple[Wanted, ...] | None = None
        self._kept: _Kept | None = None

    def __del__(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Close the connection; the next use makes another."""
        self._asked = self._kept = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def read(self, wanted: tuple[Wanted, ...], now: int) -> Answer:
        """The columns of each slice.

        A question asked again is answered from memory as long as nobody wrote to the file, which SQLite tells in a few
        microseconds: so a queue that is idle can be polled often.
        """
        connection = self._connection or self._connected()
        if wanted != self._asked:
            self._asked, self._kept = wanted, None
            return [_read(connection, each, now) for each in wanted]
        version = connection.execute(statements.DATA_VERSION).fetchone()[0]
        kept = self._kept
        if kept is not None and kept.version == version and kept.since <= now < kept.until:
            return [list(columns) for columns in kept.answer]
        answer = [_read(connection, each, now) for each in wanted]
        self._keep(connection, _Kept([list(columns) for columns in answer], version, now, 0))
        return answer

    def begin(self) -> None:
        """Start to write; waits until no other process does."""
        self._asked = self._kept = None
        (self._connection or self._connected()).execute(statements.BEGIN)

    def commit(self) -> None:
        """Make durable what was written since `begin`."""
        self._connected().execute(statements.COMMIT)

    def roll_back(self) -> None:
        """Leave the file as it was at `begin`; a connection that cannot is dropped, which does the same."""
        connection = self._connected()
        if not connection.in_transaction:
            return
        try:
            connection.execute(statements.ROLLBACK)
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                self.drop()

    def present(self, batch: Batch, expects: tuple[Expectation, ...], expected: list[bytes], *, now: int) -> dict[Name, bytes | None]:
        """The values of the columns that a commit expects something of."""
        found = {name: value for name, value, _ in _find(self._connected(), Named(batch.row, (), table=batch.table), expected, now=now)}
        return {each.name: found.get(name) for each, name in zip(expects, expected, strict=True)}

    def put_plainly(self, batch: Batch, changes: Changes, *, now: int, stamp: int) -> None:
        """Apply a batch by its stamps; `stamp` is for puts that have none."""
        rows = [
            (batch.row, name, stamp if claimed is None else claimed, None if ttl is None else now + ttl * SECOND, value, now)
            for name, (_, value, claimed, ttl) in zip(changes.puts, batch.puts, strict=True)
        ]
        self._connected().executemany(_STATEMENTS[batch.table].send, rows)
        self._delete(batch, changes.deletes)
        self._clear_away(batch, now)

    def put_committed(self, batch: Batch, changes: Changes, *, now: int) -> None:
        """Apply a batch whatever is there."""
        rows = [
            (batch.row, name, now, None if ttl is None else now + ttl * SECOND, value)
            for name, (_, value, _, ttl) in zip(changes.puts, batch.puts, strict=True)
        ]
        self._connected().executemany(_STATEMENTS[batch.table].commit, rows)
        self._delete(batch, changes.deletes)
        self._clear_away(batch, now)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _delete(self, batch: Batch, names: list[bytes]) -> None:
        connection, texts = self._connected(), _STATEMENTS[batch.table].deletes
        for some in _in_lengths(names):
            connection.execute(texts[len(some)], (batch.row, *some))

    def _clear_away(self, batch: Batch, now: int) -> None:
        """Whoever writes columns that will expire takes expired ones out of the file."""
        adding = sum(ttl is not None for _, _, _, ttl in batch.puts)
        if adding:
            self._connected().execute(_STATEMENTS[batch.table].forget, (now - _FORGET_AFTER, 2 * adding + _FORGET_AT_LEAST))

    def _keep(self, connection: sqlite3.Connection, kept: _Kept) -> None:
        if sum(map(len, kept.answer)) > _KEPT_COLUMNS:
            self._kept = None
            return
        expiries = [connection.execute(each.next_expiry, (kept.since,)).fetchone()[0] for each in _STATEMENTS.values()]
        self._kept = kept._replace(until=min((at for at in expiries if at is not None), default=_FOR_EVER))


def _read(connection: sqlite3.Connection, wanted: Wanted, now: int) -> list[Column]:
    encoding.known(wanted.table)
    if isinstance(wanted, Slice):
        return encoding.columns(_slice(connection, wanted, now))
    return encoding.columns(_find(connection, wanted, encoding.encode_all(wanted.names), now=now))


def _slice(connection: sqlite3.Connection, wanted: Slice, now: int) -> list[tuple[bytes, bytes, int]]:
    low, high, by_id = encoding.bounds(wanted)
    limit = -1 if wanted.limit is None else wanted.limit
    text = _STATEMENTS[wanted.table].slices[wanted.values, by_id is not None]
    return connection.execute(text, (wanted.row, low, high, now, *(by_id or ()), limit)).fetchall()


def _find(connection: sqlite3.Connection, wanted: Named, names: Iterable[bytes], *, now: int) -> list[tuple[bytes, bytes, int]]:
    texts = _STATEMENTS[wanted.table].named
    found: list[tuple[bytes, bytes, int]] = []
    for some in _in_lengths(sorted(set(names))):
        found += connection.execute(texts[wanted.values, len(some)], (wanted.row, now, *some))
    return found


def _in_lengths(names: list[bytes]) -> Iterator[list[bytes]]:
    """The names in lists of the lengths that statements are prepared for; the last is filled up by repeating its last name."""
    longest = LENGTHS[-1]
    for start in range(0, len(names), longest):
        some = names[start : start + longest]
        length = next(length for length in LENGTHS if length >= len(some))
        yield some + some[-1:] * (length - len(some))
