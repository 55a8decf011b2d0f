"""One process of the previous version beside a repeating message with a unique key, which that version does not know.

`python previous_client.py URL WHAT...` does one thing after the other and prints what came of each, a word a line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from astyqueue import MessageQueue
from astyqueue.errors import AstyqueueError

QUEUE: Final = "upgraded"
KEY: Final = "nightly:ada"


def take(queue: MessageQueue) -> int:
    """Take what is due, and ack it."""
    with queue.receive(10) as batch:
        return len(batch)


DOES: Final[dict[str, Callable[[MessageQueue], object]]] = {
    "reject": lambda queue: queue.send("meddling", key=KEY, unique="reject"),
    "keep": lambda queue: queue.send("meddling", key=KEY, unique="keep"),
    "replace": lambda queue: queue.send("meddling", key=KEY, unique="replace"),
    "take": take,
    "clear": lambda queue: queue.clear(),
    "stop": lambda queue: queue.stop(KEY),
}


def main(url: str, *what: str) -> None:
    """Do these things."""
    with MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        for name in what:
            try:
                came_of_it: object = DOES[name](queue)
            except AstyqueueError as error:
                came_of_it = type(error).__name__
            print(came_of_it)  # noqa: T201 - the test reads these lines


if __name__ == "__main__":
    main(*sys.argv[1:])
