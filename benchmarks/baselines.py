"""The baselines: what a store does without astyqueue. Those of SQLite are measured here."""

from __future__ import annotations

import functools
import os
import sqlite3
import tempfile
from contextlib import closing
from itertools import islice
from typing import Final

from pydantic_core import to_json

from astyqueue.ids import IdSource
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.layout.columns import message_name
from astyqueue.stores.column_name_codec import encode_all
from astyqueue.units import SECOND
from benchmarks import baseline_cassandra
from benchmarks.cassandra import OnCassandra
from benchmarks.target import CLOCK, ROW, Embedded, Target, median_ms
from benchmarks.workload import bodies

#: Rows in one transaction; the best of these counts.
_BATCHES: Final = (20, 100, 200, 500)
#: What one small commit writes to a write-ahead log, more or less.
_BLOCK: Final = bytes(4096)
_INSERT: Final = "INSERT INTO entries (row, name, stamp, expires, value) VALUES (?, ?, ?, NULL, ?)"

_Row = tuple[str, bytes, int, bytes]


def raw_send_per_s(target: Target, messages: int, size: int) -> float | None:
    """Bare inserts a second, in the best of batches; None in memory."""
    if isinstance(target, OnCassandra):
        return baseline_cassandra.raw_send_per_s(target, messages, size)
    return _sqlite_send_per_s(target, messages, size) if isinstance(target, Embedded) and target.shared else None


def raw_bytes_per_s(target: Target, messages: int, size: int) -> float | None:
    """The same of rows that need no binding; only on Cassandra, where binding takes a measurable part."""
    return baseline_cassandra.raw_bytes_per_s(target, messages, size) if isinstance(target, OnCassandra) else None


def store_write_ms(target: Target, samples: int, *, size: int, seed: int) -> float | None:
    """The median of one bare write, milliseconds; None in memory."""
    if isinstance(target, OnCassandra):
        return baseline_cassandra.store_write_ms(target, samples, size=size, seed=seed)
    return (
        _sqlite_write_ms(target, samples, size=size, seed=seed)
        if isinstance(target, Embedded) and target.shared
        else None
    )


def fsync_ms(target: Target, samples: int, *, seed: int) -> float | None:
    """The median of one `fdatasync`, milliseconds, where the store waits for one."""
    return _sqlite_fsync_ms(target, samples, seed=seed) if isinstance(target, Embedded) and target.shared else None


def _rows(count: int, size: int) -> list[_Row]:
    """Rows just like those of messages with such bodies."""
    now = CLOCK.now()
    names = encode_all([message_name(0, id_) for id_ in IdSource(CLOCK).block(count, now)])
    return [
        (ROW, name, now, encode_plain(now, to_json(body)))
        for name, body in zip(names, bodies(count, size), strict=True)
    ]


def _insert(connection: sqlite3.Connection, batch: list[_Row]) -> None:
    """Insert these rows in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_INSERT, batch)
    connection.execute("COMMIT")


def _sqlite_send_per_s(target: Embedded, messages: int, size: int) -> float:
    """Rows a second, inserted in batches of the size that is best here; the rows were made before."""
    ready = _rows(messages, size)
    return max(_inserted_per_s(target, ready, batch) for batch in _BATCHES)


def _inserted_per_s(target: Embedded, ready: list[_Row], batch: int) -> float:
    with target.fresh_file() as file, closing(file.connect()) as connection:
        left = iter(ready)
        began = CLOCK.monotonic()
        while some := list(islice(left, batch)):
            _insert(connection, some)
        return len(ready) * SECOND / (CLOCK.monotonic() - began)


def _sqlite_write_ms(target: Embedded, samples: int, *, size: int, seed: int) -> float:
    """The median of one row's transaction, milliseconds, with a pause before each as the latencies have it."""
    ready = _rows(samples, size)
    with target.fresh_file() as file, closing(file.connect()) as connection:
        return median_ms([functools.partial(_insert, connection, [row]) for row in ready], seed)


def _sqlite_fsync_ms(target: Embedded, samples: int, *, seed: int) -> float:
    """The median of one `fdatasync` after a small write at the end of a file, milliseconds."""
    with tempfile.TemporaryFile(dir=target.directory) as file:
        descriptor = file.fileno()

        def write() -> None:
            os.write(descriptor, _BLOCK)
            os.fdatasync(descriptor)

        return median_ms([write] * samples, seed)
