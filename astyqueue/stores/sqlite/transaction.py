"""An open transaction on a database file, of a caller's own statements and of those of a queue."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from astyqueue.clock import Clock, Stamps
from astyqueue.errors import AstyqueueError, BadInput, StoreError
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.stores.sqlite.connection import Session
from astyqueue.stores.sqlite.errors import failure


class SQLiteTransaction:
    """The verbs of a store, as parts of one transaction, and its connection for other statements.

    The thread that opened it uses it. What it wrote, no other connection sees before the commit.
    """

    spread: Final = Spread()
    at_once: Final = 1

    def __init__(self, session: Session, clock: Clock, stamps: Stamps, path: Path) -> None:
        """`session` has begun a write transaction, and nothing else uses it."""
        self._session = session
        self._clock = clock
        self._stamps = stamps
        self._path = path
        self._failed: AstyqueueError | None = None
        self._left = False

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, in autocommit mode within the open transaction.

        StoreError after its block, and once it was rolled back: each further statement would be committed by itself.
        """
        self._check_open()
        return self._session.connection

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:  # noqa: ARG002 - every read is exact
        """See `Store.read`; it sees what this transaction wrote."""
        with self._plain():
            return self._session.read_afresh(wanted, self._clock.now())

    def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`."""
        checked = [(each, column_name_codec.changes(each)) for each in (batch, *more)]
        with self._plain():
            now, stamp = self._clock.now(), self._stamps.next()
            for each, changes in checked:
                self._session.put_plainly(each, changes, now=now, stamp=stamp)

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        encoded = column_name_codec.committed_changes(batch, expects)
        with self._plain():
            return self._session.put_if(batch, expects, encoded, now=self._clock.now())

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block changed if it raises."""
        with self._plain():
            self.connection.execute("SAVEPOINT astyqueue")
        try:
            yield
        except BaseException:
            with contextlib.suppress(StoreError), self._plain():
                self.connection.execute("ROLLBACK TO astyqueue")
                self.connection.execute("RELEASE astyqueue")
            raise
        with self._plain():
            self.connection.execute("RELEASE astyqueue")

    def close(self) -> None:
        """Nothing: the block that opened the transaction ends it."""

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """While the block lasts, SQLite refuses statements that would end this transaction or begin another."""
        self.connection.set_authorizer(_refuse_transactions)
        try:
            yield
        finally:
            self._left = True
            if self._session.is_connected:
                self._session.connection.set_authorizer(None)

    def check(self) -> None:
        """Raise, before the commit, if a change could not be written, or if SQLite ended the transaction by itself."""
        if self._failed is not None:
            raise self._failed
        self._check_not_rolled_back()

    def _check_open(self) -> None:
        if self._left:
            message = f"{self._path}: the transaction ended with its block: open another one by queue.transaction()"
            raise StoreError(message)
        self._check_not_rolled_back()

    def _check_not_rolled_back(self) -> None:
        if not self._session.is_connected or not self._session.connection.in_transaction:
            message = (
                f"{self._path}: the transaction was rolled back by SQLite after an error, or by a fork of its thread"
            )
            raise StoreError(message)

    @contextlib.contextmanager
    def _plain(self) -> Iterator[None]:
        """Run statements of the queue on the caller's connection: without its factories, and with a store's errors."""
        connection = self.connection
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        try:
            yield
        except sqlite3.Error as error:
            self._failed = failed = failure(error, self._path)
            raise failed from error
        finally:
            connection.row_factory, connection.text_factory = factories


def _refuse_transactions(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


def inside_a_transaction(path: Path) -> BadInput:
    """The error for a change beside the transaction that the same thread has open: it would wait for itself."""
    return BadInput(
        f"this thread has a transaction open on {path}, and another change would wait for its end: "
        "use the methods of the transaction, or leave its block first"
    )
