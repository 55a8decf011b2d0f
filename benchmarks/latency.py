"""How long from `send` to the start of the handler, when messages come now and then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.units import SECOND
from benchmarks.target import CLOCK, GAPS, QUEUE, Gaps, Target, fresh_queue
from benchmarks.workload import NotMeasured, Tally, body

#: The first of them open connections and warm caches; they do not count.
_WARMING: Final = 20
_MILLISECOND: Final = SECOND / 1000
_HOUR: Final = 3_600 * SECOND
#: Pauses between messages that come seldom, microseconds: longer than the longest between two looks at the doorbell.
_SELDOM: Final = (400_000, 800_000)
_PROJECT: Final = Path(__file__).parents[1]


def in_process_ms(target: Target, messages: int, size: int, *, seed: int) -> list[float]:
    """The milliseconds of each message when sender and handler share a process."""
    with fresh_queue(target) as queue:
        return _measured(
            queue, messages + _WARMING, lambda: send_now_and_then(queue, messages + _WARMING, size, seed=seed)
        )[_WARMING:]


def across_processes_ms(target: Target, messages: int, size: int, *, seed: int) -> list[float]:
    """The milliseconds of each message when another process sends."""
    with target.fresh() as url, MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        command = [
            sys.executable,
            "-m",
            "benchmarks.processes.producers",
            "now-and-then",
            url,
            str(messages + _WARMING),
            str(size),
            str(seed),
        ]
        return _measured(queue, messages + _WARMING, lambda: _run(command))[_WARMING:]


def after_an_idle_hour_ms(target: Target, messages: int, size: int, *, seed: int) -> list[float]:
    """The same for a message of another process that comes when this one has seen no traffic for an hour.

    The benchmark does not wait for that hour: after each message the process takes the queue as unused for an hour, so
    that it becomes idle, and the sender forgets its last notice.
    """
    with target.fresh() as url, MessageQueue.builder().store(url).name(QUEUE).build() as queue:
        command = [
            sys.executable,
            "-m",
            "benchmarks.processes.producers",
            "now-and-then",
            url,
            str(messages + 1),
            str(size),
            str(seed),
            *map(str, _SELDOM),
        ]
        return _measured(queue, messages + 1, lambda: _run(command), handled=lambda: _forget_traffic(queue))[1:]


def _forget_traffic(queue: MessageQueue) -> None:
    queue.core.scheduler.activity.forget()


def send_now_and_then(
    queue: MessageQueue, messages: int, size: int, *, seed: int, bounds: tuple[int, int] = GAPS
) -> None:
    """Send messages with random pauses before them; each says when its sending began.

    Pauses of `_SELDOM` stand for an hour, after which the notice of an earlier message stands for no later one.
    """
    gaps = Gaps(seed, bounds)
    for number in range(messages):
        gaps.rest()
        if bounds == _SELDOM:
            queue.core.doorbell.forget()
        queue.send(body(number, size, began=int(CLOCK.monotonic())))


def _measured(
    queue: MessageQueue, messages: int, send: Callable[[], None], *, handled: Callable[[], None] = lambda: None
) -> list[float]:
    taken = [0.0] * messages
    tally = Tally(len(taken), CLOCK)

    def handle(delivery: Delivery) -> None:
        started = CLOCK.monotonic()
        told = cast("dict[str, int]", delivery.body)
        taken[told["number"]] = (int(started) - told["began"]) / _MILLISECOND
        handled()
        tally.mark(told["number"])

    with Dispatcher.builder().queue(queue).handler(handle).build():
        send()
        tally.wait()
    tally.check()
    return taken


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, cwd=_PROJECT, check=False, stderr=subprocess.PIPE, text=True)
    if finished.returncode:
        message = f"the sending process failed: {finished.stderr}"
        raise NotMeasured(message)
