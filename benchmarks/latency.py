"""How long from `send` to the start of the handler, when messages come now and then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from astyqueue import Delivery, MessageQueue
from astyqueue.clock import SECOND
from astyqueue.dispatch.dispatcher import Dispatcher
from benchmarks.place import CLOCK, QUEUE, Gaps, Place
from benchmarks.work import NotMeasured, Tally, body

#: The first of them open connections and warm caches; they do not count.
_WARMING: Final = 20
_MILLISECOND: Final = SECOND / 1000
_PROJECT: Final = Path(__file__).parents[1]


def in_process_ms(place: Place, messages: int, size: int, *, seed: int) -> list[float]:
    """The milliseconds of each message when sender and handler share a process."""
    with place.fresh_queue() as queue:
        return _measured(queue, messages, lambda: send_now_and_then(queue, messages, size, seed=seed))


def across_processes_ms(place: Place, messages: int, size: int, *, seed: int) -> list[float]:
    """The milliseconds of each message when another process sends."""
    with place.fresh() as url, MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        command = [sys.executable, "-m", "benchmarks.sender", url, str(messages), str(size), str(seed)]
        return _measured(queue, messages, lambda: _run(command))


def send_now_and_then(queue: MessageQueue, messages: int, size: int, *, seed: int) -> None:
    """Send messages with random pauses before them; each says when its sending began."""
    gaps = Gaps(seed)
    for number in range(messages + _WARMING):
        gaps.rest()
        queue.send(body(number, size, began=CLOCK.monotonic()))


def _measured(queue: MessageQueue, messages: int, send: Callable[[], None]) -> list[float]:
    taken = [0.0] * (messages + _WARMING)
    tally = Tally(len(taken), CLOCK)

    def handle(delivery: Delivery) -> None:
        started = CLOCK.monotonic()
        told = cast("dict[str, int]", delivery.body)
        taken[told["number"]] = (started - told["began"]) / _MILLISECOND
        tally.mark(told["number"])

    with Dispatcher.builder().queue(queue).handler(handle).build():
        send()
        tally.wait()
    tally.check()
    return taken[_WARMING:]


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, cwd=_PROJECT, check=False, stderr=subprocess.PIPE, text=True)
    if finished.returncode:
        message = f"the sending process failed: {finished.stderr}"
        raise NotMeasured(message)
