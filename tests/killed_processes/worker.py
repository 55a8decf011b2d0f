"""A worker that writes down what it does, to be killed at any moment: `python worker.py WHAT URL QUEUE JOURNAL`.

`handle` writes when the handler of a numbered message starts and ends, and its outcome; the same lines on the standard
output wake the test that watches. `fire` fires the schedules of the queue and writes the occurrence (microseconds) and
the id of each message that it handles.

Each line is one write to a file opened with O_APPEND, so a line that was written stays, whatever happens to the
process. The worker runs until its standard input ends.
"""

from __future__ import annotations

import os
import sys
from typing import Final, cast

from astyqueue import Delivery, Hook, MessageQueue
from astyqueue.clock import Clock, SystemClock, microseconds
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.waiting import Wakeup

THREADS: Final = 2


class Handling(Hook):
    """Handles numbered messages, and writes down what happened to which of them, and when by both clocks."""

    def __init__(self, journal: int, clock: Clock) -> None:
        """`journal`: the descriptor of a file."""
        self._journal = journal
        self._clock = clock

    def write(self, what: str, number: int) -> None:
        line = f"{what} {number} {self._clock.monotonic()} {self._clock.now()}\n".encode()
        os.write(self._journal, line)
        os.write(sys.stdout.fileno(), line)

    def handle(self, delivery: Delivery) -> None:
        number = number_of(delivery)
        self.write("start", number)
        Wakeup(self._clock).wait(self._clock.monotonic() + cast("dict[str, int]", delivery.body)["work"])
        self.write("end", number)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        """Write down an outcome that is in the store; extensions are left out."""
        if outcome != "extended":
            self.write(outcome, number_of(delivery))


def number_of(delivery: BaseDelivery) -> int:
    return cast("dict[str, int]", delivery.body)["number"]


def handle(url: str, name: str, journal: int) -> None:
    handling = Handling(journal, SystemClock())
    queue = MessageQueue.builder().store(url).name(name).hook(handling).build()
    with queue, Dispatcher.builder().queue(queue).handler(handling.handle, threads=THREADS).build():
        handling.write("ready", -1)
        sys.stdin.buffer.read()


def fire(url: str, name: str, journal: int) -> None:
    def note(delivery: Delivery) -> None:
        os.write(journal, f"{microseconds(delivery.due)} {delivery.message_id}\n".encode())

    queue = MessageQueue.builder().store(url).name(name).build()
    with queue, Dispatcher.builder().queue(queue).handler(note, threads=THREADS).build():
        os.write(sys.stdout.fileno(), b"ready\n")
        sys.stdin.buffer.read()


if __name__ == "__main__":
    what, url, name, path = sys.argv[1:]
    {"handle": handle, "fire": fire}[what](url, name, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
