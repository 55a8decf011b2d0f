"""A queue under load: producers keep it full, and worker commands with their usual settings and log lines handle it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self, cast

from astyqueue import MessageQueue
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.cassandra import cpu_s
from benchmarks.processes.producers import STEADY, TOGETHER
from benchmarks.target import CLOCK, Target
from benchmarks.workload import NotMeasured

_PROJECT: Final = Path(__file__).parents[1]
_GLANCE: Final = SECOND // 10
_PATIENCE: Final = 120 * SECOND
_CHUNK: Final = 1 << 16

Window = dict[str, float]


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """By how many processes, how many messages may lie there unhandled, and how long a time shard is."""

    workers: int = 2
    producers: int = 1
    ahead: int = 20_000
    every: str = "1h"


@dataclass(eq=False)
class _Process:
    """A worker or a producer, and how many messages it says it has handled or sent."""

    process: subprocess.Popen[bytes]
    says: IO[bytes]
    count: int = 0
    granted: int = 0
    reader: threading.Thread = field(init=False)

    def follow(self, *, is_worker: bool) -> None:
        """Count what it says, until it ends: a worker logs `done` for each message, a producer one line per batch."""
        self.reader = threading.Thread(
            target=self._count, args=(b" done " if is_worker else b"\n", 1 if is_worker else TOGETHER)
        )
        self.reader.start()

    def _count(self, sign: bytes, messages: int) -> None:
        rest = b""
        while chunk := os.read(self.says.fileno(), _CHUNK):
            whole, end, rest = (rest + chunk).rpartition(b"\n")
            self.count += (whole + end).count(sign) * messages

    def grant(self, batches: int) -> None:
        """Have a producer send this many more batches."""
        requested = cast("IO[bytes]", self.process.stdin)
        requested.write(f"{batches}\n".encode())
        requested.flush()
        self.granted += batches * TOGETHER


class Load:
    """A queue and its processes, while the block lasts."""

    def __init__(self, target: Target, settings: LoadSettings, url: str) -> None:
        """Nothing is started yet."""
        self._place = target
        self._crew = settings
        self._url = url
        self._workers: list[_Process] = []
        self._producers: list[_Process] = []

    def __enter__(self) -> Self:
        """Make the queue and start its processes."""
        with contextlib.ExitStack() as held:
            builder = MessageQueue.builder().store(self._url).name(STEADY)
            self._queue = (
                builder.time_shards(30, every=self._crew.every) if self._place.store == "cassandra" else builder
            ).build()
            held.enter_context(self._queue)
            worker = [
                sys.executable,
                "-m",
                "astyqueue",
                "worker",
                "benchmarks.processes.producers:app",
                "-Q",
                STEADY,
            ]
            self._workers = [
                held.enter_context(self._started(worker, is_worker=True)) for _ in range(self._crew.workers)
            ]
            producer = [sys.executable, "-m", "benchmarks.processes.producers", "steady"]
            self._producers = [
                held.enter_context(self._started(producer, is_worker=False)) for _ in range(self._crew.producers)
            ]
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._held.close()

    def window(self, seconds: float) -> Window:
        """Keep the queue full for a time, and return the rates."""
        began, before = CLOCK.monotonic(), self._totals()
        self.keep_full(seconds)
        took = (CLOCK.monotonic() - began) / SECOND
        spent = {name: total - before[name] for name, total in self._totals().items()}
        handled = max(1.0, spent["handled"])
        window = {"seconds": took, "per_s": spent["handled"] / took, "sent_per_s": spent["sent"] / took}
        return window | {
            f"{name}_us": spent[name] * SECOND / handled for name in ("worker_cpu", "producer_cpu", "store_cpu")
        }

    def keep_full(self, seconds: float) -> None:
        """Have producers send, for a time, what the queue has room for."""
        until = CLOCK.monotonic() + int(seconds * SECOND)
        while CLOCK.monotonic() < until:
            self._check_alive()
            open_ = sum(producer.granted for producer in self._producers) - sum(
                worker.count for worker in self._workers
            )
            batches = (self._crew.ahead - open_) // TOGETHER // len(self._producers)
            for producer in self._producers if batches > 0 else ():
                producer.grant(batches)
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _GLANCE)

    def drain(self) -> None:
        """Wait until everything that was requested is handled; raises NotMeasured after two minutes."""
        until = CLOCK.monotonic() + _PATIENCE
        wanted = sum(producer.granted for producer in self._producers)
        while (handled := sum(worker.count for worker in self._workers)) < wanted:
            self._check_alive()
            if CLOCK.monotonic() >= until:
                message = f"{wanted} messages were requested and {handled} handled"
                raise NotMeasured(message)
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _GLANCE)

    def check_empty(self) -> None:
        """Wait until the acks of all handled messages are committed; raises NotMeasured if some never are."""
        until = CLOCK.monotonic() + _PATIENCE
        while left := self._queue.counts().total:
            if CLOCK.monotonic() >= until:
                message = f"{left} messages are left although every worker has handled what was sent"
                raise NotMeasured(message)
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _GLANCE)

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

    def _totals(self) -> dict[str, float]:
        """Messages handled and sent, and seconds of processor time, so far."""
        return {
            "handled": sum(worker.count for worker in self._workers),
            "sent": sum(producer.count for producer in self._producers),
            "worker_cpu": sum(cpu_s(worker.process.pid) for worker in self._workers),
            "producer_cpu": sum(cpu_s(producer.process.pid) for producer in self._producers),
            "store_cpu": self._place.store_cpu_s() or 0.0,
        }

    def _check_alive(self) -> None:
        for each in (*self._workers, *self._producers):
            if each.process.poll() is not None:
                message = f"{each.process.args!r} ended with {each.process.returncode}"
                raise NotMeasured(message)
