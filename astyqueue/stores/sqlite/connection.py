"""Connections: each thread has one, with a cache of its last answer, and the threads that write take turns."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from astyqueue.store import Batch, Column, Committed, Expectation, Name, Named, Outcome, Refused, Slice, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.stores.column_name_codec import TABLES, Changes
from astyqueue.stores.fork_hooks import HeldLocks
from astyqueue.stores.sqlite import sql
from astyqueue.stores.sqlite.sql import LENGTHS, Statements
from astyqueue.units import NEVER, SECOND

_STATEMENTS: Final = {table: Statements(table) for table in TABLES}
#: Answers of more columns than this are not cached: the polls of an idle queue return few.
_KEPT_COLUMNS: Final = 64
#: Expired columns stay in the file for this long, so that they are there again if the clock was wrong and is set back.
_FORGET_AFTER: Final = 60 * SECOND
#: A write of N columns with a time to live deletes up to 2 N and this number of expired ones, so they never pile up.
_FORGET_AT_LEAST: Final = 100

Answer = list[list[Column]]


class _CachedAnswer(NamedTuple):
    """An answer, the version of the file that it was read from, and the time in which it is valid."""

    answer: Answer
    version: int
    since: int
    until: int


class Session:
    """A connection, made when first needed, and its last answer. The caller holds `lock`."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """`connect` makes the connection, and another one after `drop`."""
        self.lock = threading.Lock()
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._asked: tuple[Wanted, ...] | None = None
        self._kept: _CachedAnswer | None = None

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

        A repeated request is answered from memory until another connection writes to the file, which SQLite reports in
        a few microseconds: so a queue in use can be polled often.
        """
        connection = self.connection
        if wanted != self._asked:
            self._asked, self._kept = wanted, None
            return [_read(connection, each, now) for each in wanted]
        version = connection.execute(sql.DATA_VERSION).fetchone()[0]
        kept = self._kept
        if kept is not None and kept.version == version and kept.since <= now < kept.until:
            return [list(columns) for columns in kept.answer]
        answer = [_read(connection, each, now) for each in wanted]
        self._keep(connection, _CachedAnswer([list(columns) for columns in answer], version, now, 0))
        return answer

    def read_afresh(self, wanted: tuple[Wanted, ...], now: int) -> Answer:
        """As `read`, without the last answer: what this connection wrote in its transaction may have changed it."""
        return [_read(self.connection, each, now) for each in wanted]

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, made now if there is none."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def begin(self) -> None:
        """Begin a write transaction; waits for other processes that write, until the connection's timeout."""
        self._asked = self._kept = None
        self.connection.execute(sql.BEGIN)

    def commit(self) -> None:
        """Make the changes since `begin` durable."""
        self.connection.execute(sql.COMMIT)

    def roll_back(self) -> None:
        """Undo the changes since `begin`; a connection that fails to is closed, which does the same."""
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute(sql.ROLLBACK)
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                self.drop()

    def present(
        self, batch: Batch, expects: tuple[Expectation, ...], expected: list[bytes], *, now: int
    ) -> dict[Name, bytes | None]:
        """The current values of the columns in a commit's expectations."""
        found = {
            name: value
            for name, value, _ in _find(self.connection, Named(batch.row, (), table=batch.table), expected, now=now)
        }
        return {each.name: found.get(name) for each, name in zip(expects, expected, strict=True)}

    def put_plainly(self, batch: Batch, changes: Changes, *, now: int, stamp: int) -> None:
        """Apply a batch; the later stamp wins. `stamp` is for puts that have none."""
        rows = [
            (
                batch.row,
                name,
                stamp if claimed is None else claimed,
                None if ttl is None else now + ttl * SECOND,
                value,
                now,
            )
            for name, (_, value, claimed, ttl) in zip(changes.puts, batch.puts, strict=True)
        ]
        self.connection.executemany(_STATEMENTS[batch.table].send, rows)
        self._delete(batch, changes.deletes)
        self._clear_away(batch, now)

    def put_committed(self, batch: Batch, changes: Changes, *, now: int) -> None:
        """Apply a batch regardless of the stamps in the file."""
        rows = [
            (batch.row, name, now, None if ttl is None else now + ttl * SECOND, value)
            for name, (_, value, _, ttl) in zip(changes.puts, batch.puts, strict=True)
        ]
        self.connection.executemany(_STATEMENTS[batch.table].commit, rows)
        self._delete(batch, changes.deletes)
        self._clear_away(batch, now)

    def put_if(
        self, batch: Batch, expects: tuple[Expectation, ...], encoded: tuple[Changes, list[bytes]], *, now: int
    ) -> Outcome:
        """Apply a batch if every expectation holds; `encoded` are its changes and the names in the expectations.

        The transaction that was begun stays open.
        """
        changes, expected = encoded
        present = self.present(batch, expects, expected, now=now)
        if any(present[name] != value for name, value in expects):
            return Refused(present)
        self.put_committed(batch, changes, now=now)
        return Committed()

    def _delete(self, batch: Batch, names: list[bytes]) -> None:
        connection, texts = self.connection, _STATEMENTS[batch.table].deletes
        for some in _in_lengths(names):
            connection.execute(texts[len(some)], (batch.row, *some))

    def _clear_away(self, batch: Batch, now: int) -> None:
        """Each writer of columns with a time to live deletes expired ones, in all tables.

        In the history nothing is written any longer if its queues keep none, or were dropped.
        """
        adding = sum(ttl is not None for _, _, _, ttl in batch.puts)
        if adding:
            for statements in _STATEMENTS.values():
                self.connection.execute(statements.forget, (now - _FORGET_AFTER, 2 * adding + _FORGET_AT_LEAST))

    def _keep(self, connection: sqlite3.Connection, kept: _CachedAnswer) -> None:
        if sum(map(len, kept.answer)) > _KEPT_COLUMNS:
            self._kept = None
            return
        expiries = [connection.execute(each.next_expiry, (kept.since,)).fetchone()[0] for each in _STATEMENTS.values()]
        self._kept = kept._replace(until=min((at for at in expiries if at is not None), default=NEVER))


def _read(connection: sqlite3.Connection, wanted: Wanted, now: int) -> list[Column]:
    column_name_codec.known(wanted.table)
    if isinstance(wanted, Slice):
        return column_name_codec.columns(_slice(connection, wanted, now))
    return column_name_codec.columns(_find(connection, wanted, column_name_codec.encode_all(wanted.names), now=now))


def _slice(connection: sqlite3.Connection, wanted: Slice, now: int) -> list[tuple[bytes, bytes, int]]:
    low, high, by_id = column_name_codec.bounds(wanted)
    limit = -1 if wanted.limit is None else wanted.limit
    text = _STATEMENTS[wanted.table].slices[wanted.values, by_id is not None]
    return connection.execute(text, (wanted.row, low, high, now, *(by_id or ()), limit)).fetchall()


def _find(
    connection: sqlite3.Connection, wanted: Named, names: Iterable[bytes], *, now: int
) -> list[tuple[bytes, bytes, int]]:
    texts = _STATEMENTS[wanted.table].named
    found: list[tuple[bytes, bytes, int]] = []
    for some in _in_lengths(sorted(set(names))):
        found += connection.execute(texts[wanted.values, len(some)], (wanted.row, now, *some))
    return found


def _in_lengths(names: list[bytes]) -> Iterator[list[bytes]]:
    """The names in lists of the lengths in `LENGTHS`; the last list is padded with its last name."""
    longest = LENGTHS[-1]
    for start in range(0, len(names), longest):
        some = names[start : start + longest]
        length = next(length for length in LENGTHS if length >= len(some))
        yield some + some[-1:] * (length - len(some))


class Sessions:
    """The sessions of all threads: one for each thread, and one for each transaction that a thread opens."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """`connect` makes the connections."""
        self._connect = connect
        self._guard = threading.Lock()
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()
        self._mine = threading.local()

    def mine(self) -> Session:
        """The session of the calling thread; it ends with the thread."""
        try:
            session: Session = self._mine.session
        except AttributeError:
            session = self._mine.session = self._new()
        return session

    @contextlib.contextmanager
    def for_transaction(self) -> Iterator[Session]:
        """A new session for a transaction of the calling thread; rolled back and closed at the end of the block."""
        session = self._mine.transaction = self._new()
        try:
            yield session
        finally:
            self._mine.transaction = None
            with session.lock:
                session.drop()

    @property
    def open_transaction(self) -> Session | None:
        """The session in which the calling thread has a transaction open."""
        return getattr(self._mine, "transaction", None)

    def drop(self) -> None:
        """Close all connections, once running calls have ended; not that of an open transaction of this thread."""
        with self._guard:
            others = self._others()
        for session in others:
            with session.lock:
                session.drop()

    def hold(self, held: HeldLocks) -> None:
        """As `drop`, and keep all threads from making others until the locks that this takes are released."""
        held.take((self._guard,))
        others = self._others()
        held.take([session.lock for session in others])
        for session in others:
            session.drop()

    def _new(self) -> Session:
        session = Session(self._connect)
        with self._guard:
            self._all.add(session)
        return session

    def _others(self) -> list[Session]:
        """The sessions whose lock is not held by the calling thread; the caller holds the guard."""
        return [session for session in self._all if session is not self.open_transaction]


class Writers:
    """A lock that goes to the thread that has waited longest.

    SQLite lets one connection write at a time; the others poll, with growing delays. The threads of one process queue
    up here instead, and only the first competes with other processes.

    Each thread has a turn, a lock that it holds from the moment at which it joins the line until it has written, and
    waits for the turn before its own. So what ends a turn is one call of a lock's own `release`: between two calls of
    Python's a signal may raise KeyboardInterrupt, and other threads would wait for ever.
    """

    def __init__(self) -> None:
        """No thread writes."""
        self._guard = threading.Lock()
        self._last = threading.Lock()

    def turn(self) -> threading.Lock:
        """Wait for this thread's turn, which lasts until the caller releases what this returns."""
        mine = threading.Lock()
        mine.acquire()
        before: threading.Lock | None = None
        try:
            with self._guard:
                before, self._last = self._last, mine
            with before:  # it is released for good when that turn is over
                pass
        except BaseException:
            if before is not None:
                threading.Thread(target=_give_up, args=(before, mine), daemon=True).start()
            raise
        return mine


def _give_up(before: threading.Lock, turn: threading.Lock) -> None:
    """End the turn of a thread that was interrupted, when it would have come."""
    with before:
        turn.release()
