"""The demo's own database, apart from the queue's: the facts of each file, and a record of every run of a task.

With the record the demo checks the queue from outside: it has every start of a task, and whether it ended.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from examples.stdlib_index.facts import Facts, package_of

_COLUMNS: Final = ", ".join(field.name for field in fields(Facts))
_SCHEMA: Final = f"""
    CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, package TEXT NOT NULL, {_COLUMNS});
    CREATE TABLE IF NOT EXISTS runs (
        run INTEGER PRIMARY KEY, path TEXT NOT NULL, process INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS runs_by_path ON runs (path);
"""
_UPSERT: Final = (
    f"INSERT OR REPLACE INTO files (path, package, {_COLUMNS}) VALUES ({', '.join('?' * (2 + len(fields(Facts))))})"  # noqa: S608 - the names are ours
)


class Index:
    """One SQLite file. Every thread has a connection of its own, opened at first use."""

    def __init__(self, file: Path) -> None:
        """Nothing is opened yet."""
        self._file = file
        self._of_thread = threading.local()

    @property
    def database(self) -> sqlite3.Connection:
        """This thread's connection."""
        found: sqlite3.Connection | None = getattr(self._of_thread, "database", None)
        if found is None:
            found = self._of_thread.database = sqlite3.connect(self._file, timeout=30)
            # A killed process loses no committed write; the database need not survive a power cut, hence no sync.
            found.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;")
        return found

    def create(self) -> None:
        """Make the tables."""
        self.database.executescript(_SCHEMA)

    def begin(self, path: str) -> None:
        """Record that this process starts a task on a file."""
        with self.database as database:
            database.execute("INSERT INTO runs (path, process) VALUES (?, ?)", (path, os.getpid()))

    def finish(self, path: str, facts: Facts | None) -> None:
        """Record the end of the task and the facts of the file, if there are any, in one transaction; idempotent."""
        with self.database as database:
            if facts is not None:
                database.execute(_UPSERT, (path, package_of(path), *astuple(facts)))
            database.execute("UPDATE runs SET ended = 1 WHERE path = ? AND process = ?", (path, os.getpid()))

    def running(self, process: int) -> list[str]:
        """The files of tasks that a process started and did not end."""
        return [
            path
            for (path,) in self.database.execute("SELECT path FROM runs WHERE process = ? AND NOT ended", (process,))
        ]

    def taker(self, path: str, after: int) -> int | None:
        """The process that started on a file next after the process `after`; None before any has."""
        query = """SELECT process FROM runs
                   WHERE path = ? AND run > (SELECT max(run) FROM runs WHERE path = ? AND process = ?)
                   ORDER BY run LIMIT 1"""
        found: tuple[int] | None = self.database.execute(query, (path, path, after)).fetchone()
        return found and found[0]

    def files(self) -> int:
        """The number of files with facts."""
        [(files,)] = self.database.execute("SELECT count(*) FROM files")
        return int(files)

    def started_twice(self) -> dict[str, int]:
        """The files whose task was started more than once, with the process of the first start."""
        query = "SELECT path, process, min(run) FROM runs GROUP BY path HAVING count(*) > 1"
        return {path: process for path, process, _ in self.database.execute(query)}

    def close(self) -> None:
        """Close this thread's connection."""
        self.database.close()
        del self._of_thread.database
