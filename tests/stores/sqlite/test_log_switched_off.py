"""A file whose write-ahead log another program switched off: a store switches it on again when it opens the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue.errors import StoreUnavailable
from astyqueue.store import Slice
from astyqueue.stores import open_store
from astyqueue.stores.sqlite import SQLiteStore
from astyqueue.stores.sqlite.database import DatabaseFile
from astyqueue.testing import TimeMachine
from tests.stores.sqlite.test_database import ROW, filled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


@pytest.fixture
def reader(path: Path, clock: TimeMachine) -> Iterator[sqlite3.Connection]:
    """Another program that switched the log off, and reads the file."""
    filled(path, clock, count=2)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM entries").fetchone()
        yield connection


def test_a_file_without_its_log_that_others_read_is_waited_for(
    path: Path, clock: TimeMachine, reader: sqlite3.Connection
) -> None:
    requests = []

    class Read(DatabaseFile):
        """The reader ends when the log is requested for the second time."""

        def opened(self, mode: str, *, patience: float = 60) -> sqlite3.Connection:
            connection = super().opened(mode, patience=patience)
            connection.set_trace_callback(note)
            return connection

    def note(statement: str) -> None:
        if statement == "PRAGMA journal_mode = WAL":
            requests.append(statement)
            if len(requests) == 2:
                reader.execute("ROLLBACK")

    with closing(SQLiteStore(Read(path, busy_timeout=0.05), clock)) as store:
        assert len(store.read((Slice(ROW, 2),))[0]) == 2
    assert len(requests) == 2


def test_a_file_without_its_log_that_others_read_for_long_is_refused(
    path: Path, clock: TimeMachine, reader: sqlite3.Connection
) -> None:
    assert reader.in_transaction
    with pytest.raises(StoreUnavailable, match=r"mail\.db: database is locked .* set \?busy_timeout=seconds"):
        open_store(f"sqlite:///{path}?busy_timeout=0", clock=clock)
