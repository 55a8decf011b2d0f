"""The baselines of SQLite: the database and the disk without astyqueue, measured in each run."""

from __future__ import annotations

import functools
import os
import sqlite3
import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Final

from pydantic_core import to_json

from astyqueue.ids import IdSource
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.layout.columns import message_name
from astyqueue.stores.column_name_codec import encode_all
from astyqueue.units import SECOND
from benchmarks.target import CLOCK, ROW, Embedded, Gaps
from benchmarks.workload import bodies

#: Rows in one transaction; the best of these counts.
_BATCHES: Final = (20, 100, 200, 500)
#: What one small commit writes to a write-ahead log, more or less.
_BLOCK: Final = bytes(4096)
_INSERT: Final = "INSERT INTO entries (row, name, stamp, expires, value) VALUES (?, ?, ?, NULL, ?)"
_MILLISECOND: Final = SECOND // 1000

Row = tuple[str, bytes, int, bytes]


def rows(count: int, size: int) -> list[Row]:
    """Rows just like those of messages with such bodies."""
    now = CLOCK.now()
    names = encode_all([message_name(0, id_) for id_ in IdSource(CLOCK).block(count, now)])
    return [
        (ROW, name, now, encode_plain(now, to_json(body)))
        for name, body in zip(names, bodies(count, size), strict=True)
    ]


def insert(connection: sqlite3.Connection, batch: list[Row]) -> None:
    """Insert these rows in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_INSERT, batch)
    connection.execute("COMMIT")


def raw_send_per_s(target: Embedded, messages: int, size: int) -> float:
    """Rows a second, inserted in batches of the size that is best here; the rows were made before."""
    ready = rows(messages, size)
    return max(_inserted_per_s(target, ready, batch) for batch in _BATCHES)


def _inserted_per_s(target: Embedded, ready: list[Row], batch: int) -> float:
    with target.fresh_file() as file, closing(file.connect()) as connection:
        left = iter(ready)
        began = CLOCK.monotonic()
        while some := list(islice(left, batch)):
            insert(connection, some)
        return len(ready) * SECOND / (CLOCK.monotonic() - began)


def store_write_ms(target: Embedded, samples: int, *, size: int, seed: int) -> float:
    """The median of one row's transaction, milliseconds, with a pause before each as the latencies have it."""
    ready = rows(samples, size)
    with target.fresh_file() as file, closing(file.connect()) as connection:
        return median_ms([functools.partial(insert, connection, [row]) for row in ready], seed)


def fsync_ms(target: Embedded, samples: int, *, seed: int) -> float:
    """The median of one `fdatasync` after a small write at the end of a file, milliseconds."""
    with tempfile.TemporaryFile(dir=target.directory) as file:
        descriptor = file.fileno()

        def write() -> None:
            os.write(descriptor, _BLOCK)
            os.fdatasync(descriptor)

        return median_ms([write] * samples, seed)


def median_ms(actions: list[Callable[[], None]], seed: int) -> float:
    """How long one of these takes, milliseconds, with a pause before each."""
    gaps = Gaps(seed)
    taken = []
    for action in actions:
        gaps.rest()
        began = CLOCK.monotonic()
        action()
        taken.append((CLOCK.monotonic() - began) / _MILLISECOND)
    return statistics.median(taken)
