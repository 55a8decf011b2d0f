"""A worker process with idle queues: `python -m benchmarks.processes.idle_worker URL QUEUES TIME_SHARDS SHARDS`.

It prints a line when it is ready, and for each message the milliseconds from the beginning of its send to that of its
handler. For each line on standard input it prints the requests that it has made, as JSON: slices that it read and
batches that it wrote. After a line `forget` it takes every queue as unused for an hour.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Final, cast

from astyqueue import Delivery, Dispatcher, MessageQueue, connect
from astyqueue.queue.connection import Connection
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Store, Wanted
from benchmarks.target import CLOCK

_MILLISECOND: Final = 1_000
PREFIX: Final = "idle"


class Counting:
    """A store that counts what is asked of another."""

    def __init__(self, store: Store) -> None:
        """Nothing was asked yet."""
        self._store = store
        self.requests = 0

    @property
    def spread(self) -> Spread:
        """As the other store."""
        return self._store.spread

    @property
    def at_once(self) -> int:
        """As the other store."""
        return self._store.at_once

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """A query for each slice."""
        self.requests += len(wanted)
        return self._store.read(wanted, exact=exact)

    def send(self, batch: Batch, *more: Batch) -> None:
        """A query for each batch."""
        self.requests += 1 + len(more)
        self._store.send(batch, *more)

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """One query."""
        self.requests += 1
        return self._store.commit(batch, expects)

    def close(self) -> None:
        """Close the other store."""
        self._store.close()


def main(arguments: list[str]) -> None:
    """Work until standard input ends."""
    url, count, time_shards, shards = arguments
    with connect(url) as connection:
        counting = Counting(connection.store)
        connection.store = counting
        queues = _queues(connection, int(count), {"time_shards": int(time_shards), "concurrency_shards": int(shards)})
        builder = Dispatcher.builder()
        for queue in queues:
            builder.queue(queue, threads=1).handler(_handled)
        dispatcher = builder.build()
        dispatcher.start()
        _say({"ready": True})
        for line in sys.stdin:
            if line.strip() == "forget":
                for queue in queues:
                    queue.core.scheduler.activity.forget()
                    queue.core.claimer.wake()
            _say({"requests": counting.requests, "threads": threading.active_count()})
        dispatcher.stop()


def _queues(connection: Connection, count: int, layout: dict[str, int]) -> list[MessageQueue]:
    return [connection.queue(f"{PREFIX}{number}", **layout) for number in range(count)]


def _handled(delivery: Delivery) -> None:
    sent = cast("int", delivery.body)
    _say({"ms": (int(CLOCK.monotonic()) - sent) / _MILLISECOND})


def _say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
