"""One process of the previous version beside a repeating message with a unique key, which that version does not know.

`python previous_client.py URL WHAT...` runs these commands in turn and prints the outcome of each, a word a line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from astyqueue import MessageQueue
from astyqueue.errors import AstyqueueError

QUEUE: Final = "upgraded"
KEY: Final = "nightly:ada"


def receive(queue: MessageQueue) -> int:
    """Receive what is due, and ack it."""
    with queue.receive(10) as batch:
        return len(batch)


COMMANDS: Final[dict[str, Callable[[MessageQueue], object]]] = {
    "reject": lambda queue: queue.send("previous", key=KEY, unique="reject"),
    "keep": lambda queue: queue.send("previous", key=KEY, unique="keep"),
    "replace": lambda queue: queue.send("previous", key=KEY, unique="replace"),
    "receive": receive,
    "clear": lambda queue: queue.clear(),
    "stop": lambda queue: queue.stop(KEY),
}


def main(url: str, *what: str) -> None:
    """Run these commands."""
    with MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        for name in what:
            try:
                outcome: object = COMMANDS[name](queue)
            except AstyqueueError as error:
                outcome = type(error).__name__
            print(outcome)  # noqa: T201 - the test reads these lines


if __name__ == "__main__":
    main(*sys.argv[1:])
