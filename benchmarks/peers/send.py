"""A process that sends: `python -m benchmarks.peers.send MODULE FUNCTION COUNT PAUSE_MS`."""

from __future__ import annotations

import importlib
import sys

from astyqueue.waiting import Wakeup
from benchmarks.peers.report import CLOCK


def main(module: str, function: str, count: int, pause_us: int) -> None:
    """Send that many tasks of the app in this module, one in each `pause_us` if that is not 0."""
    send = getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)()
    pause, began = Wakeup(CLOCK), CLOCK.monotonic()
    for number in range(1, count + 1):
        send()
        if pause_us:
            pause.wait(began + number * pause_us)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
