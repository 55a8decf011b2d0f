"""What each system does in a measurement: it sends tasks, and each writes to a file how long its message took.

`python -m benchmarks.peers.measurement MODULE FUNCTION COUNT PAUSE_US` is a process that sends.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.waiting import Wakeup

CLOCK: Final = SystemClock()


def done(sent_us: int) -> None:
    """Append the delay of a task that was sent then: one system call, which keeps lines of many processes whole."""
    os.write(_file(), b"%d\n" % (CLOCK.now() - sent_us))


@cache
def _file() -> int:
    return os.open(os.environ["BENCHMARK_REPORT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def server_url() -> str:
    """The store or broker of this measurement."""
    return os.environ["BENCHMARK_URL"]


def send_all(module: str, function: str, count: int, pause_us: int) -> None:
    """Send that many tasks of the app in this module, one in each `pause_us` if that is not 0."""
    send = getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)()
    pause, began = Wakeup(CLOCK), CLOCK.monotonic()
    for number in range(1, count + 1):
        send()
        if pause_us:
            pause.wait(began + number * pause_us)


if __name__ == "__main__":
    send_all(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
