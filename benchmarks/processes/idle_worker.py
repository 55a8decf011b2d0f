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
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.queue.connection import Connection
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from benchmarks.target import CLOCK

_MILLISECOND: Final = 1_000
PREFIX: Final = "idle"


class Counting(Faulty):
    """Counts the queries that a store is asked for."""

    def __init__(self, store: Store) -> None:
        """Nothing was asked yet."""
        super().__init__(store)
        self.requests = 0

    def perform(self, request: Request) -> object:
        """Count a query for each slice, each batch and each commit."""
        match request:
            case Read(wanted):
                self.requests += len(wanted)
            case Send():
                self.requests += len(request.batches)
            case Commit():
                self.requests += 1
        return super().perform(request)


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
                _forget(queues)
            _say({"requests": counting.requests, "threads": threading.active_count()})
        dispatcher.stop()


def _queues(connection: Connection, count: int, layout: dict[str, int]) -> list[MessageQueue]:
    return [connection.queue(f"{PREFIX}{number}", **layout) for number in range(count)]


def _forget(queues: list[MessageQueue]) -> None:
    for queue in queues:
        queue.core.scheduler.activity.forget()
        queue.core.claimer.wake()


def _handled(delivery: Delivery) -> None:
    sent = cast("int", delivery.body)
    _say({"ms": (int(CLOCK.monotonic()) - sent) / _MILLISECOND})


def _say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
