"""Whether the rate holds: minutes of sending and handling with the worker command, in windows of equal length.

Producers keep the queue as full as `--ahead` says, and `astyqueue worker` processes, with their usual settings and log lines, handle
what they send. For each window: how many messages, what a message cost this side and the nodes, and what the nodes say they did.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from astyqueue import MessageQueue
from astyqueue.clock import SECOND
from astyqueue.wakeup import Wakeup
from benchmarks.cassandra import OnCassandra, cpu_s
from benchmarks.place import CLOCK, Place
from benchmarks.places import opened, parser, progress, whole_number
from benchmarks.server_load import ServerLoad
from benchmarks.steady_app import QUEUE
from benchmarks.steady_producer import TOGETHER
from benchmarks.work import NotMeasured

_PROJECT: Final = Path(__file__).parents[1]
_GLANCE: Final = SECOND // 10
_PATIENCE: Final = 120 * SECOND
_CHUNK: Final = 1 << 16
#: The last window must reach this part of the second; the first has Java compile what runs often.
_HOLDS: Final = 0.9

Window = dict[str, float]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, in how many windows, by how many processes, and how many messages may lie there unhandled."""

    minutes: float
    windows: int = 10
    workers: int = 2
    producers: int = 1
    ahead: int = 20_000
    every: str = "1h"


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if anything was lost."""
    made = parser("steady", __doc__, ("cassandra", "sqlite"))
    made.add_argument("--minutes", type=float, default=25, help="of load (default: %(default)s)")
    made.add_argument("--windows", type=whole_number(2), default=10, help="of equal length (default: %(default)s)")
    made.add_argument("--workers", type=whole_number(1), default=2, help="processes that handle (default: %(default)s)")
    made.add_argument("--producers", type=whole_number(1), default=1, help="processes that send (default: %(default)s)")
    made.add_argument(
        "--ahead", type=whole_number(100), default=20_000, help="messages sent and not handled, at most (default: %(default)s)"
    )
    made.add_argument("--every", default="1h", help="length of a time shard (default: %(default)s)")
    options = made.parse_args(arguments)
    plan = Plan(options.minutes, options.windows, options.workers, options.producers, options.ahead, options.every)
    try:
        with opened(options) as place:
            report = measured(place, plan)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else page(cast("list[Window]", report["windows"])))
    return 0


def measured(place: Place, plan: Plan) -> dict[str, object]:
    """The windows of one run, the ratio of the last to the second, and what it was measured with."""
    with place.fresh() as url, _queue(place, url, plan) as queue:
        windows = _Run(place, plan, url).through(queue)
    ratio = windows[-1]["per_s"] / windows[1]["per_s"]
    aim = {"aim": f"the last window at least {_HOLDS} of the second", "measured": ratio, "bound": _HOLDS, "reached": ratio >= _HOLDS}
    conditions = {"store": place.store, "processors": os.cpu_count(), **place.conditions}
    conditions |= {name: getattr(plan, name) for name in Plan.__slots__}
    return {"last_to_second": ratio, "windows": windows, "aims": [aim], "conditions": conditions}


def page(windows: list[Window]) -> str:
    """The windows for people, a line each."""
    names = list(windows[0])
    lines = [names, *([f"{window[name]:,.1f}" for name in names] for window in windows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    told = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*told, "", f"last to second: {windows[-1]['per_s'] / windows[1]['per_s']:.2f}"])


def _queue(place: Place, url: str, plan: Plan) -> MessageQueue:
    builder = MessageQueue.builder().store(url).name(QUEUE)
    return (builder.time_shards(30, every=plan.every) if place.store == "cassandra" else builder).build()


@dataclass(eq=False)
class _Process:
    """A worker or a producer, and how many messages it says it has handled or sent."""

    process: subprocess.Popen[bytes]
    says: IO[bytes]
    count: int = 0
    granted: int = 0
    reader: threading.Thread = field(init=False)

    def follow(self, *, is_worker: bool) -> None:
        """Count what it says, until it ends: a worker logs `done` for each message, a producer a line for each batch."""
        self.reader = threading.Thread(target=self._count, args=(b" done " if is_worker else b"\n", 1 if is_worker else TOGETHER))
        self.reader.start()

    def _count(self, sign: bytes, messages: int) -> None:
        rest = b""
        while chunk := os.read(self.says.fileno(), _CHUNK):
            whole, end, rest = (rest + chunk).rpartition(b"\n")
            self.count += (whole + end).count(sign) * messages

    def grant(self, batches: int) -> None:
        """Have a producer send so many batches more."""
        asked = cast("IO[bytes]", self.process.stdin)
        asked.write(f"{batches}\n".encode())
        asked.flush()
        self.granted += batches * TOGETHER


class _Run:
    """One run, while it lasts."""

    def __init__(self, place: Place, plan: Plan, url: str) -> None:
        self._place = place
        self._plan = plan
        self._url = url
        self._workers: list[_Process] = []
        self._producers: list[_Process] = []
        nodes = place.nodes if isinstance(place, OnCassandra) else None
        self._server = ServerLoad(nodes, f"{cast('OnCassandra', place).keyspace}.entries") if nodes else None

    def through(self, queue: MessageQueue) -> list[Window]:
        """Load until the time is over, then until all is handled."""
        with contextlib.ExitStack() as held:
            worker = [sys.executable, "-m", "astyqueue", "worker", "benchmarks.steady_app:app", "-Q", QUEUE]
            self._workers = [held.enter_context(self._started(worker, is_worker=True)) for _ in range(self._plan.workers)]
            producer = [sys.executable, "-m", "benchmarks.steady_producer"]
            self._producers = [held.enter_context(self._started(producer, is_worker=False)) for _ in range(self._plan.producers)]
            windows = [self._window(number) for number in range(1, self._plan.windows + 1)]
            self._finish()
        if left := queue.counts().total:
            message = f"{left} messages are left although every worker has handled what was sent"
            raise NotMeasured(message)
        return windows

    @contextlib.contextmanager
    def _started(self, command: list[str], *, is_worker: bool) -> Iterator[_Process]:
        environment = {**os.environ, "ASTYQUEUE_URL": self._url}
        pipe = subprocess.PIPE
        out, err = (None, pipe) if is_worker else (pipe, None)
        with subprocess.Popen(command, cwd=_PROJECT, env=environment, stdin=pipe, stdout=out, stderr=err) as process:
            started = _Process(process, cast("IO[bytes]", process.stderr if is_worker else process.stdout))
            started.follow(is_worker=is_worker)
            try:
                yield started
                process.terminate()
                started.reader.join()
            finally:
                process.kill()

    def _window(self, number: int) -> Window:
        """Load for the length of a window, and what it came to."""
        began, before = CLOCK.monotonic(), self._totals()
        until = began + int(self._plan.minutes * 60 * SECOND / self._plan.windows)
        while CLOCK.monotonic() < until:
            self._keep_full()
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _GLANCE)
        took = (CLOCK.monotonic() - began) / SECOND
        spent = {name: total - before[name] for name, total in self._totals().items()}
        handled = max(1.0, spent["handled"])
        window = {"window": float(number), "seconds": took, "per_s": spent["handled"] / took, "sent_per_s": spent["sent"] / took}
        window |= {f"{name}_us": spent[name] * SECOND / handled for name in ("worker_cpu", "producer_cpu", "store_cpu")}
        if self._server is not None:
            window |= self._server.since_last()
        progress("  ".join(f"{name} {value:,.1f}" for name, value in window.items()))
        return window

    def _totals(self) -> dict[str, float]:
        """Messages handled and sent, and seconds of processor time, so far."""
        return {
            "handled": sum(worker.count for worker in self._workers),
            "sent": sum(producer.count for producer in self._producers),
            "worker_cpu": sum(cpu_s(worker.process.pid) for worker in self._workers),
            "producer_cpu": sum(cpu_s(producer.process.pid) for producer in self._producers),
            "store_cpu": self._place.store_cpu_s() or 0.0,
        }

    def _keep_full(self) -> None:
        """Have producers send what may still lie there."""
        self._check_alive()
        open_ = sum(producer.granted for producer in self._producers) - sum(worker.count for worker in self._workers)
        batches = (self._plan.ahead - open_) // TOGETHER // len(self._producers)
        if batches > 0:
            for producer in self._producers:
                producer.grant(batches)

    def _check_alive(self) -> None:
        for each in (*self._workers, *self._producers):
            if each.process.poll() is not None:
                message = f"{each.process.args!r} ended with {each.process.returncode}"
                raise NotMeasured(message)

    def _finish(self) -> None:
        """Wait until everything that was granted is handled."""
        until = CLOCK.monotonic() + _PATIENCE
        wanted = sum(producer.granted for producer in self._producers)
        while (handled := sum(worker.count for worker in self._workers)) < wanted:
            if CLOCK.monotonic() >= until:
                message = f"{wanted} messages were asked for and {handled} handled"
                raise NotMeasured(message)
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _GLANCE)
