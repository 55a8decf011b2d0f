"""A process of a test: sends numbers into a spool and prints each once its send returned, until it is killed.

`send URL FOLDER NAME FIRST COUNT`: bodies are [NAME, number]. `fork URL FOLDER` sends from a forked child.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from astyqueue import MessageQueue

_PRINTED: Final = 50


def _opened(url: str, folder: str) -> MessageQueue:
    return MessageQueue.builder().store(url).name("emails").spool(folder).build()


def send(url: str, folder: str, name: str, first: str, count: str) -> None:
    with _opened(url, folder) as queue:
        for number in range(int(first), int(first) + int(count)):
            queue.send([name, number])
            if number % _PRINTED == 0:
                print(number, flush=True)  # noqa: T201 - the test reads it
        queue.spool.drain("10m")
        print("drained", flush=True)  # noqa: T201 - the test reads it


def fork(url: str, folder: str) -> None:
    queue = _opened(url, folder)
    queue.send("parent")
    child = os.fork()
    if child == 0:
        queue.send("child")
        print(*[one.number for one in queue.spool.status().journals if one.in_use], flush=True)  # noqa: T201 - the test reads it
        queue.close()
        os._exit(0)
    os.waitpid(child, 0)
    queue.close()


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(*sys.argv[2:])
    else:
        fork(*sys.argv[2:])
