"""A producer that sends the number of task calls that its input requests, on the store of ASTYQUEUE_URL.

It runs as `python -m benchmarks.processes.steady_producer`. Each line of its input is a number of batches; after each
batch it prints how many messages it has sent in all.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.processes.steady_app import note

#: Messages of one call of `send_many`.
TOGETHER: Final = 100


def main() -> None:
    """Send until the input ends."""
    sent = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            note.send_many(note.call(number) for number in range(sent, sent + TOGETHER))
            sent += TOGETHER
            print(sent, flush=True)


if __name__ == "__main__":
    main()
