"""A worker that fires the schedules of a queue and writes down its deliveries, to be killed at any moment.

`python firing_worker.py URL QUEUE JOURNAL`: each line is the slot of a message (microseconds) and its id, in one write.
"""

from __future__ import annotations

import os
import sys

from astyqueue import Delivery, Dispatcher, MessageQueue
from astyqueue.clock import microseconds


def main(url: str, name: str, path: str) -> None:
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handle(delivery: Delivery) -> None:
        os.write(journal, f"{microseconds(delivery.due)} {delivery.message_id}\n".encode())

    queue = MessageQueue.builder().store(url).name(name).build()
    with queue, Dispatcher.builder().queue(queue).handler(handle, threads=2).build():
        os.write(sys.stdout.fileno(), b"ready\n")
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
