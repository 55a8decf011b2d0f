"""The other process of a latency across processes.

`python -m benchmarks.processes.sender URL MESSAGES BYTES SEED [LEAST GREATEST]`
"""

from __future__ import annotations

import sys

from astyqueue import MessageQueue
from benchmarks.latency import send_now_and_then
from benchmarks.target import GAPS, QUEUE


def main(arguments: list[str]) -> None:
    """Send messages at random intervals, and end."""
    url, *numbers = arguments
    messages, size, seed, *bounds = map(int, numbers)
    least, greatest = bounds or GAPS
    with MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        send_now_and_then(queue, messages, size, seed=seed, bounds=(least, greatest))


if __name__ == "__main__":
    main(sys.argv[1:])
