"""A process of a test: sends numbers into a spool and prints each once its send returned, until it is killed.

`send URL FOLDER NAME FIRST COUNT`: bodies are [NAME, number]. A line has a number and how long its send and the sends
since the line before took, in microseconds. The last line has what was left to forward then, and the microseconds, of
the clock and of the processors, until it was forwarded. `fork URL FOLDER` sends from a forked child.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.units import SECOND

DRAINED: Final = "drained"
_PRINTED: Final = 50
_clock: Final = SystemClock()


def _opened(url: str, folder: str) -> MessageQueue:
    return MessageQueue.builder().store(url).name("emails").spool(folder).build()


def send(url: str, folder: str, name: str, first: str, count: str) -> None:
    with _opened(url, folder) as queue:
        delays: list[int] = []
        for number in range(int(first), int(first) + int(count)):
            began = _clock.monotonic()
            queue.send([name, number])
            delays.append(_clock.monotonic() - began)
            if number % _PRINTED == 0:
                print(number, *delays, flush=True)  # noqa: T201 - the test reads it
                delays = []
        waiting, began, used = queue.spool.status().messages, _clock.monotonic(), time.process_time()
        queue.spool.drain("30m")
        took, used = _clock.monotonic() - began, (time.process_time() - used) * SECOND
        print(DRAINED, waiting, took, round(used), flush=True)  # noqa: T201 - the test reads it


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
