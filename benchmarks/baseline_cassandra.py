"""The baselines of Cassandra: the driver without astyqueue, measured in each run."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import ResponseFuture
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement
from pydantic_core import to_json

from astyqueue.ids import IdSource, as_uuid
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.layout.columns import message_name
from astyqueue.stores.cassandra.requests.codec import timeuuid
from astyqueue.units import SECOND
from benchmarks.cassandra import OnCassandra
from benchmarks.target import CLOCK, ROW, median_ms
from benchmarks.workload import bodies

#: Rows in one batch, and batches under way at once; the best of these counts.
_BATCHES: Final = (100, 200, 500)
_UNDER_WAY: Final = (4, 16)
_INSERT: Final = (
    'UPDATE "{keyspace}"."entries" USING TIMESTAMP ? SET value = ? '
    "WHERE row = ? AND type = ? AND priority = ? AND id = ? AND state = ?"
)

Row = list[Any]
Bind = Callable[[Row], BoundStatement]


def raw_send_per_s(target: OnCassandra, messages: int, size: int) -> float:
    """Rows a second, bound by the driver as its users do and inserted in batches of the size that is best here."""
    insert = target.session.prepare(_INSERT.format(keyspace=target.keyspace))
    return _best_per_s(target, _values(messages, size), insert.bind)


def raw_bytes_per_s(target: OnCassandra, messages: int, size: int) -> float:
    """The same with values that are bytes already: what is left when nothing at all is made of a message on its way."""
    insert = target.session.prepare(_INSERT.format(keyspace=target.keyspace))
    return _best_per_s(target, _rows(messages, size), functools.partial(_bound, insert))


def _best_per_s(target: OnCassandra, ready: list[Row], bind: Bind) -> float:
    return max(
        _inserted_per_s(target, ready, bind, batch=batch, under_way=window)
        for batch in _BATCHES
        for window in _UNDER_WAY
    )


def store_write_ms(target: OnCassandra, samples: int, *, size: int, seed: int) -> float:
    """The median of one row's insert, milliseconds, with a pause before each as the latencies have it."""
    insert = target.session.prepare(_INSERT.format(keyspace=target.keyspace))
    with target.fresh():
        return median_ms(
            [
                _one(functools.partial(_begin, target, _batch(functools.partial(_bound, insert), [row])))
                for row in _rows(samples, size)
            ],
            seed,
        )


def _one(begin: Callable[[], ResponseFuture]) -> Callable[[], None]:
    def write() -> None:
        begin().result()

    return write


def _rows(count: int, size: int) -> list[Row]:
    """The values of rows like those of messages with bodies of `size` bytes.

    They are bytes already, because the benchmark does not measure how long it takes to bind them.
    """
    now = CLOCK.now()
    stamp, row = now.to_bytes(8), ROW.encode()
    names = [message_name(0, id_) for id_ in IdSource(CLOCK).block(count, now)]
    return [
        [
            stamp,
            encode_plain(now, to_json(body)),
            row,
            bytes((name.type,)),
            bytes((name.priority,)),
            timeuuid(name.id),
            bytes((name.state,)),
        ]
        for name, body in zip(names, bodies(count, size), strict=True)
    ]


def _values(count: int, size: int) -> list[Row]:
    """The same rows as values of Python's."""
    now = CLOCK.now()
    ids_ = IdSource(CLOCK).block(count, now)
    names = [message_name(0, id_) for id_ in ids_]
    return [
        [now, encode_plain(now, to_json(body)), ROW, name.type, name.priority, as_uuid(name.id), name.state]
        for name, body in zip(names, bodies(count, size), strict=True)
    ]


def _inserted_per_s(target: OnCassandra, ready: list[Row], bind: Bind, *, batch: int, under_way: int) -> float:
    with target.fresh():
        began = CLOCK.monotonic()
        _all_done((_begin(target, _batch(bind, some)) for some in _chunks(ready, batch)), under_way)
        return len(ready) * SECOND / (CLOCK.monotonic() - began)


def _all_done(begun: Iterator[ResponseFuture], under_way: int) -> None:
    """Wait for all of these, with `under_way` of them in flight at once."""
    waiting = deque(islice(begun, under_way))
    while waiting:
        waiting.popleft().result()
        waiting.extend(islice(begun, 1))


def _chunks(ready: list[Row], batch: int) -> Iterator[list[Row]]:
    left = iter(ready)
    while some := list(islice(left, batch)):
        yield some


def _bound(insert: PreparedStatement, row: Row) -> BoundStatement:
    bound = BoundStatement(insert)
    bound.values = row
    return bound


def _batch(bind: Bind, rows: list[Row]) -> BatchStatement:
    """A batch of one partition, which needs no log."""
    batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.LOCAL_QUORUM)
    for row in rows:
        batch.add(bind(row))
    return batch


def _begin(target: OnCassandra, batch: BatchStatement) -> ResponseFuture:
    return target.session.execute_async(batch)
