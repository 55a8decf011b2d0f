"""One process of an upgrade, on the version of astyqueue that its PYTHONPATH names, with only what all versions have.

`python upgrade_process.py send URL FIRST COUNT` sends messages numbered from FIRST and ends; `python upgrade_process.py
work URL JOURNAL` handles messages until its standard input ends, and appends to the journal the number of each one that
it has done or rejects; `python upgrade_process.py use URL OPERATION...` does these operations with messages of one
unique key, and prints the outcome of each, a word a line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import astyqueue
from astyqueue import Delivery, Dispatcher, Message, MessageQueue, Reject
from astyqueue.errors import AstyqueueError
from astyqueue.triggers import Every

QUEUE: Final = "upgraded"
#: The unique key that `use` is about.
KEY: Final = "nightly:ada"
THREADS: Final = 4
BATCH: Final = 100
#: One message in this many is of each kind; those of no kind are plain.
KINDS: Final = 10
DELAYED, KEYED, UNIQUE, FAILING, REJECTED, URGENT, SINGLE = range(1, 8)
#: How often the schedule of each sender fires.
FIRINGS: Final = 3


def opened(url: str) -> MessageQueue:
    """The queue, made by the process that comes first."""
    builder = MessageQueue.builder().store(url).name(QUEUE)
    return (
        builder.time_shards(6, every="5s")
        .concurrency_shards(3)
        .priorities(3)
        .lease("20s")
        .backoff("100ms", cap="1s")
        .build()
    )


def message(number: int) -> Message:
    """The message of this number."""
    kind = number % KINDS
    return Message(
        number,
        delay=(number % 30) / 10 if kind == DELAYED else None,
        key=f"key:{number}" if kind in (KEYED, UNIQUE) else None,
        unique="keep" if kind == UNIQUE else None,
        priority=2 if kind == URGENT else 0,
    )


def send(url: str, first: int, count: int) -> None:
    """Send in batches, and some one by one; each sender has a schedule of its own that fires a few times."""
    with opened(url) as queue:
        queue.send({"schedule": first}, trigger=Every("500ms", count=FIRINGS), key=f"schedule:{first}")
        for start in range(first, first + count, BATCH):
            singles = [number for number in range(start, start + BATCH) if number % KINDS == SINGLE]
            queue.send_many([message(number) for number in range(start, start + BATCH) if number not in singles])
            for number in singles:
                queue.send(number)


def work(url: str, path: str) -> None:
    """Handle messages: some fail once, some are rejected, the others are done."""
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handle(delivery: Delivery) -> None:
        if isinstance(delivery.body, dict):
            os.write(journal, f"schedule {delivery.body['schedule']}\n".encode())
            return
        number = cast("int", delivery.body)
        if number % KINDS == FAILING and delivery.attempt == 1:
            raise ValueError(number)
        if number % KINDS == REJECTED:
            os.write(journal, f"rejected {number}\n".encode())
            raise Reject(str(number))
        os.write(journal, f"done {number}\n".encode())

    with opened(url) as queue, Dispatcher.builder().queue(queue).handler(handle, threads=THREADS).build():
        print(Path(astyqueue.__file__).parent, flush=True)  # noqa: T201 - the test waits for this line
        sys.stdin.buffer.read()


def receive(queue: MessageQueue) -> int:
    """Receive what is due, and ack it."""
    with queue.receive(10) as batch:
        return len(batch)


OPERATIONS: Final[dict[str, Callable[[MessageQueue], object]]] = {
    "reject": lambda queue: queue.send("previous", key=KEY, unique="reject"),
    "keep": lambda queue: queue.send("previous", key=KEY, unique="keep"),
    "replace": lambda queue: queue.send("previous", key=KEY, unique="replace"),
    "receive": receive,
    "clear": lambda queue: queue.clear(),
    "stop": lambda queue: queue.stop(KEY),
}


def use(url: str, *operations: str) -> None:
    """Do these operations in turn, in a queue that exists."""
    with MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        for name in operations:
            try:
                outcome: object = OPERATIONS[name](queue)
            except AstyqueueError as error:
                outcome = type(error).__name__
            print(outcome)  # noqa: T201 - the test reads these lines


if __name__ == "__main__":
    what, url, *rest = sys.argv[1:]
    if what == "send":
        send(url, *map(int, rest))
    elif what == "work":
        work(url, *rest)
    else:
        use(url, *rest)
