"""Bytes in the store of a message, a settled message, a history event and a key hint.

A body and a key are subtracted from their message, a key from its hint. On Cassandra these are bytes of uncompressed
sstables of one copy after a flush, with their indexes; what a flush leaves of a settled message are its tombstones. On
SQLite they are bytes of a vacuumed file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from astyqueue import Message, MessageQueue
from astyqueue.stores.url import locate
from benchmarks.cassandra import OnCassandra
from benchmarks.figures import Run, figures, table
from benchmarks.target import QUEUE, Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.throughput import drain
from benchmarks.workload import NotMeasured, bodies

_TABLES: Final = ("entries", "history")
_THREADS: Final = 8
_TASK: Final = "shop.mail.welcome"
_KEY: Final = "order:{:010}"
#: The events of a message that is done at its first attempt: sent, claimed, done.
_EVENTS: Final = 3
#: One message in this many is settled singly, and one has a key.
_ONE_IN: Final = 10


def main(arguments: list[str]) -> int:
    """Measure, and print."""
    made = parser("sizes", __doc__, ("sqlite", "cassandra"))
    made.add_argument("--messages", type=whole_number(100), default=20_000, help="default: %(default)s")
    made.add_argument("--body", type=whole_number(50), default=200, help="bytes as JSON (default: %(default)s)")
    options = made.parse_args(arguments)
    with opened(options) as target:
        runs = [_run(target, options) for _ in range(options.runs)]
        conditions = {**target.conditions, "messages": options.messages, "body": options.body}
    found = {"question": "sizes", "store": target.store, "conditions": conditions, **figures(runs)}
    print(json.dumps(found, indent=2) if options.json else table(figures(runs)))
    return 0


def _run(target: Target, options: argparse.Namespace) -> Run:
    count, size = options.messages, options.body
    few = -(-count // _ONE_IN)
    progress("an empty queue")
    empty = _bytes(target, lambda _: None)
    progress(f"{count} messages that wait: plain, with a task and with a unique key")
    plain = _bytes(target, lambda queue: _send(queue, count, size)) - empty
    task = _bytes(target, lambda queue: _send(queue, count, size, {"task": _TASK})) - empty
    unique = _bytes(target, lambda queue: _send_keyed(queue, few, size, unique="reject")) - empty
    progress("settled ones: claimed together, one by one, with keys, and with all of their history")
    settled = _bytes(target, lambda queue: _settle(queue, count, size)) - empty
    singly = _bytes(target, lambda queue: _settle_singly(queue, few, size)) - empty
    settled_keyed = _bytes(target, lambda queue: _settle_keyed(queue, few, size)) - empty
    settled_unique = _bytes(target, lambda queue: _settle_keyed(queue, few, size, unique="reject")) - empty
    with_history = _bytes(target, lambda queue: _settle(queue, count, size), history="all") - empty
    return {
        "waiting_bytes": plain / count - size,
        "waiting_task_bytes": task / count - size,
        "waiting_unique_bytes": unique / few - size - len(_KEY.format(0)),
        "settled_bytes": settled / count,
        "settled_singly_bytes": singly / few,
        "settled_unique_bytes": settled_unique / few,
        "hint_bytes": settled_keyed / few - settled / count - len(_KEY.format(0)),
        "event_bytes": (with_history - settled) / (_EVENTS * count),
    }


def _send(queue: MessageQueue, count: int, size: int, headers: dict[str, str] | None = None) -> None:
    queue.send_many(bodies(count, size), headers=headers)


def _send_keyed(queue: MessageQueue, count: int, size: int, unique: str | None = None) -> None:
    keys = map(_KEY.format, range(count))
    queue.send_many(Message(body, key=key, unique=unique) for key, body in zip(keys, bodies(count, size), strict=True))


def _settle(queue: MessageQueue, count: int, size: int) -> None:
    _send(queue, count, size)
    drain(queue, count, _THREADS)


def _settle_keyed(queue: MessageQueue, count: int, size: int, unique: str | None = None) -> None:
    _send_keyed(queue, count, size, unique)
    drain(queue, count, _THREADS)


def _settle_singly(queue: MessageQueue, count: int, size: int) -> None:
    _send(queue, count, size)
    for _ in range(count):
        for delivery in queue.receive(1, wait="10s"):
            delivery.ack()


def _bytes(target: Target, fill: Callable[[MessageQueue], None], **options: object) -> float:
    """The bytes of both tables after this was done to a fresh queue."""
    with target.fresh() as url:
        if isinstance(target, OnCassandra):
            _uncompressed(target)
        with MessageQueue.builder().store(url).name(QUEUE).options(**options).build() as queue:
            fill(queue)
        return _of_node(target) if isinstance(target, OnCassandra) else _of_file(url)


def _uncompressed(target: OnCassandra) -> None:
    for name in _TABLES:
        target.session.execute(
            f"ALTER TABLE \"{target.keyspace}\".\"{name}\" WITH compression = {{'enabled': 'false'}}"
        )


def _of_node(target: OnCassandra) -> float:
    if target.nodes is None or target.copies != 1:
        message = "sizes are measured on one node that is started for it: leave out --at and --nodes"
        raise NotMeasured(message)
    target.flush()
    names = [f"{target.keyspace}.{name}" for name in _TABLES]
    with_history = json.loads(target.nodes.nodetool(1, "tablestats", "-F", "json", *names))
    return float(sum(int(with_history[target.keyspace]["tables"][name]["space_used_live"]) for name in _TABLES))


def _of_file(url: str) -> float:
    """The bytes of a vacuumed copy of the file, so that free pages do not count."""
    file = Path(locate(url).place)
    copy = file.with_suffix(".copy")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    return float(copy.stat().st_size)
