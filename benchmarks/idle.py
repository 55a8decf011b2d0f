"""What workers cost that have nothing to do, and how soon they begin when a message comes.

A worker with 1, 20 and 1000 idle queues, and ten workers with 20: processor time of the workers and of the server, and
queries, in the minute after the start and in the one after that; then messages into queues that were idle for an hour,
and into one in use. Figures of ten workers are those of one, the server's are those of all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, Final, cast

from astyqueue import MessageQueue, connect
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.cassandra import cpu_s
from benchmarks.figures import Run, figures, percentile, table
from benchmarks.processes.idle_worker import PREFIX
from benchmarks.target import CLOCK, Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.workload import NotMeasured

#: Workers, and the queues of each.
_CASES: Final = ((1, 1), (1, 20), (1, 1_000), (10, 20))
#: Rows of a queue where there are many queues: time shards and concurrency shards.
_MANY: Final = 100
_ONE_ROW: Final = (1, 1)
#: The pause before a message into an idle queue, and into one in use (microseconds).
_SELDOM: Final = (SECOND, 2 * SECOND)
_OFTEN: Final = (SECOND // 10, SECOND // 2)


class _Worker:
    """A worker process, and what it prints."""

    def __init__(self, url: str, queues: int, layout: tuple[int, int]) -> None:
        command = [sys.executable, "-m", "benchmarks.processes.idle_worker", url, str(queues), *map(str, layout)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._said = cast("IO[bytes]", self.process.stdout)

    def line(self) -> dict[str, Any]:
        """The next line that it prints."""
        text = self._said.readline()
        if not text:
            message = "a worker ended early"
            raise NotMeasured(message)
        printed: dict[str, Any] = json.loads(text)
        return printed

    def ask(self, what: str = "count") -> dict[str, Any]:
        """Have it say how many requests it made."""
        asked = cast("IO[bytes]", self.process.stdin)
        asked.write(f"{what}\n".encode())
        asked.flush()
        return self.line()


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if a worker failed."""
    made = parser("idle", __doc__)
    made.add_argument("--seconds", type=whole_number(1), default=60, help="of each window (default: %(default)s)")
    made.add_argument(
        "--messages", type=whole_number(2), default=100, help="of each kind and case (default: %(default)s)"
    )
    made.add_argument("--most", type=whole_number(1), default=1_000, help="queues of a worker (default: %(default)s)")
    options = made.parse_args(arguments)
    try:
        with opened(options) as target:
            runs = [_run(target, options, number) for number in range(1, options.runs + 1)]
            report = {**figures(runs), "conditions": {**target.conditions, "processors": os.cpu_count()}}
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else table(figures(runs)))
    return 0


def _run(target: Target, options: argparse.Namespace, number: int) -> Run:
    run: dict[str, float | None] = {}
    with target.fresh():
        before, began = target.store_cpu_s(), int(CLOCK.monotonic())
        _pass(options.seconds)
        run["server_alone_percent"] = _percent(before, target.store_cpu_s(), began)
    for workers, queues in _CASES:
        if queues <= options.most:
            progress(f"run {number} of {options.runs}: {workers} worker(s) with {queues} queue(s)")
            run |= _case(target, options, workers, queues)
    return run


def _case(target: Target, options: argparse.Namespace, workers: int, queues: int) -> dict[str, float | None]:
    name = f"{workers}x{queues}"
    with target.fresh() as url, connect(url) as connection:
        spread = connection.store.spread
        layout = _ONE_ROW if queues > _MANY else (spread.time_shards, spread.concurrency_shards)
        with _started(url, workers, queues, layout) as crew:
            run = _window(target, crew, options.seconds, f"{name}_first")
            run |= _window(target, crew, options.seconds, name)
            shards = {"time_shards": layout[0], "concurrency_shards": layout[1]}
            opened_queues = [connection.queue(f"{PREFIX}{number}", **shards) for number in range(min(queues, _MANY))]
            if workers == 1:
                run |= _latencies(crew[0], opened_queues, options.messages, name)
    return run


def _latencies(worker: _Worker, queues: list[MessageQueue], messages: int, name: str) -> dict[str, float | None]:
    chance = random.Random(messages)
    idle = [_latency(worker, chance.choice(queues), chance.randint(*_SELDOM), idle=True) for _ in range(messages)]
    used = [_latency(worker, queues[0], chance.randint(*_OFTEN)) for _ in range(messages)]
    return {
        f"{name}_{kind}_p{part}_ms": percentile(samples, part)
        for kind, samples in (("idle_hour", idle), ("in_use", used[1:]))
        for part in (50, 99)
    }


@contextlib.contextmanager
def _started(url: str, workers: int, queues: int, layout: tuple[int, int]) -> Iterator[list[_Worker]]:
    crew: list[_Worker] = []
    try:
        for _ in range(workers):  # one after the other: they create the same queues
            crew.append(_Worker(url, queues, layout))
            crew[-1].line()
        yield crew
    finally:
        for worker in crew:
            cast("IO[bytes]", worker.process.stdin).close()
        for worker in crew:
            worker.process.wait()


def _window(target: Target, crew: list[_Worker], seconds: int, name: str) -> dict[str, float | None]:
    """What these workers cost in this time."""
    pids = [worker.process.pid for worker in crew]
    requests = sum(worker.ask()["requests"] for worker in crew)
    used, server, began = sum(map(cpu_s, pids)), target.store_cpu_s(), int(CLOCK.monotonic())
    _pass(seconds)
    spent = _percent(used, sum(map(cpu_s, pids)), began)
    served = _percent(server, target.store_cpu_s(), began)
    requests = sum(worker.ask()["requests"] for worker in crew) - requests
    return {
        f"{name}_worker_percent": None if spent is None else spent / len(crew),
        f"{name}_server_percent": served,
        f"{name}_queries_per_s": requests / seconds / len(crew),
    }


def _latency(worker: _Worker, queue: MessageQueue, pause: int, *, idle: bool = False) -> float:
    """The milliseconds from a send to the beginning of its handler; `idle`: in a queue unused for an hour.

    That hour is not waited for: the worker takes its queues as unused for that long, and so does the sender.
    """
    if idle:
        worker.ask("forget")
        queue.core.doorbell.forget()
    _pass(pause / SECOND)
    queue.send(int(CLOCK.monotonic()))
    return float(worker.line()["ms"])


def _percent(before: float | None, after: float | None, began: int) -> float | None:
    """Processor time between two readings, in percent of one core."""
    if before is None or after is None:
        return None
    return (after - before) / ((int(CLOCK.monotonic()) - began) / SECOND) * 100


def _pass(seconds: float) -> None:
    Wakeup(CLOCK).wait(CLOCK.monotonic() + int(seconds * SECOND))
