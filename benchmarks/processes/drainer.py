"""One of several processes that drain the same rows: `python -m benchmarks.processes.drainer URL DESCRIPTOR LOCK`.

It writes a byte to the descriptor for each message, and at the end what it did, as JSON, to its standard output.
"""

from __future__ import annotations

import json
import os
import sys

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from benchmarks.lock_options import lock_of
from benchmarks.target import CLOCK, QUEUE


def main(url: str, descriptor: int, lock: str) -> None:
    """Print that it is ready, begin at a line of input, and handle messages until the input ends."""
    moments: list[int] = []

    def handle(delivery: Delivery) -> None:
        moments.append(CLOCK.monotonic())
        os.write(descriptor, b".")
        del delivery

    with MessageQueue.builder().store(url).name(QUEUE).row_lock(lock_of(lock)).build() as queue:
        dispatcher = Dispatcher.builder().queue(queue).handler(handle).build()
        print("ready", flush=True)
        sys.stdin.readline()
        with dispatcher:
            sys.stdin.read()
        stats = queue.stats
    values = {
        "handled": len(moments),
        "refused": stats.refused_commits,
        "busy": stats.busy_rows,
        "first": min(moments, default=0),
        "last": max(moments, default=0),
    }
    print(json.dumps(values))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
