"""A worker that writes down what it does, to be killed at any moment: `python handling_worker.py URL QUEUE JOURNAL`.

Each line is one write to a file opened with O_APPEND, so a line that was written stays, whatever happens to the
process; the same line on the standard output wakes the test that watches. The worker runs until its standard input
ends.
"""

from __future__ import annotations

import os
import sys
from typing import Final, cast

from astyqueue import Delivery, Hook, MessageQueue
from astyqueue.clock import Clock, SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.waiting import Wakeup

THREADS: Final = 2


class Journal(Hook):
    """Writes down what happened to which message, and when by both clocks."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, number: int) -> None:
        line = f"{what} {number} {self._clock.monotonic()} {self._clock.now()}\n".encode()
        os.write(self._file, line)
        os.write(sys.stdout.fileno(), line)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        """Write down an outcome that is in the store; extensions are left out."""
        if outcome != "extended":
            self.write(outcome, number_of(delivery))


def number_of(delivery: BaseDelivery) -> int:
    return cast("dict[str, int]", delivery.body)["number"]


def main(url: str, name: str, path: str) -> None:
    clock = SystemClock()
    journal = Journal(path, clock)

    def handle(delivery: Delivery) -> None:
        number = number_of(delivery)
        journal.write("start", number)
        Wakeup(clock).wait(clock.monotonic() + cast("dict[str, int]", delivery.body)["work"])
        journal.write("end", number)

    queue = MessageQueue.builder().store(url).name(name).hook(journal).build()
    with queue, Dispatcher.builder().queue(queue).handler(handle, threads=THREADS).build():
        journal.write("ready", -1)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
