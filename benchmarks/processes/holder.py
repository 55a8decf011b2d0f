"""A consumer that never settles: `python -m benchmarks.processes.holder URL`.

It prints when it is ready and when it got which message, and waits to be killed.
"""

from __future__ import annotations

import json
import sys
from threading import Event

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from benchmarks.target import CLOCK, QUEUE
from benchmarks.throughput import number_of


def main(url: str) -> None:
    """Handle messages, and never finish."""
    printed_ready = Event()

    def handle(delivery: Delivery) -> None:
        at = CLOCK.now()
        printed_ready.wait()
        print(json.dumps({"number": number_of(delivery), "at": at}), flush=True)
        sys.stdin.read()

    with (
        MessageQueue.builder().store(url).name(QUEUE).build() as queue,
        Dispatcher.builder().queue(queue).handler(handle, threads=1).build(),
    ):
        print(json.dumps({"ready": CLOCK.now()}), flush=True)
        printed_ready.set()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
