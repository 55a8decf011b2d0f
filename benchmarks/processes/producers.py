"""Processes that send, and the app whose tasks one of them calls.

`python -m benchmarks.processes.producers now-and-then URL MESSAGES BYTES SEED [LEAST GREATEST]` sends messages at
random intervals. `python -m benchmarks.processes.producers steady` sends calls of a task to the store of ASTYQUEUE_URL:
each line of its input is a number of batches, and after each batch it prints how many messages it has sent in all.
`astyqueue worker benchmarks.processes.producers:app` handles these.
"""

from __future__ import annotations

import sys
from typing import Final

from astyqueue import App, MessageQueue
from benchmarks.latency import send_now_and_then
from benchmarks.target import GAPS, QUEUE

#: The queue of the task.
STEADY: Final = "steady"
#: Messages of one call of `send_many`.
TOGETHER: Final = 100

app = App()


@app.task(queue=STEADY)
def note(number: int) -> None:
    """Do nothing: what is measured is what it costs to be called."""
    del number


def send_steadily() -> None:
    """Send until the input ends."""
    sent = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            note.send_many(note.call(number) for number in range(sent, sent + TOGETHER))
            sent += TOGETHER
            print(sent, flush=True)


def send_at_intervals(url: str, numbers: list[int]) -> None:
    """Send messages at random intervals, and end."""
    messages, size, seed, *bounds = numbers
    least, greatest = bounds or GAPS
    with MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        send_now_and_then(queue, messages, size, seed=seed, bounds=(least, greatest))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["now-and-then", url, *numbers]:
            send_at_intervals(url, list(map(int, numbers)))
        case ["steady"]:
            send_steadily()
        case _:
            sys.exit(__doc__)
