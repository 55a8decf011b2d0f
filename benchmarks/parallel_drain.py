"""Several processes that drain the same rows, started together."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from astyqueue import MessageQueue
from astyqueue.units import SECOND
from benchmarks.figures import Run
from benchmarks.target import CLOCK, QUEUE, Target
from benchmarks.throughput import check_empty, send_per_s
from benchmarks.workload import NotMeasured

#: The rows that they share.
_ROWS: Final = {"time_shards": 1, "concurrency_shards": 8}
_BODY: Final = 200
#: Messages sent together go to one row, so that every row gets as many.
_SENT_TOGETHER: Final = 100
_PATIENCE: Final = 300 * SECOND
_PROJECT: Final = Path(__file__).parents[1]
_MANY_BYTES: Final = 1 << 16

Measurement = dict[str, int]


def drained_by(target: Target, count: int, messages: int, *, lock: str = "guard") -> Run:
    """How fast `count` processes drain eight rows under this lock, and how it is spread over them."""
    sent = -(-messages // _SENT_TOGETHER) * _SENT_TOGETHER
    with target.fresh() as url, MessageQueue.builder().store(url).name(QUEUE).options(**_ROWS).build() as queue:
        for _ in range(0, messages, _SENT_TOGETHER):
            send_per_s(queue, _SENT_TOGETHER, _BODY)
        values = _together(url, lock, count, messages=sent)
        check_empty(queue)
    handled = [each["handled"] for each in values]
    if sum(handled) != sent:
        message = f"{sent} messages were handled {sum(handled)} times by {count} processes"
        raise NotMeasured(message)
    span = max(each["last"] for each in values) - min(each["first"] for each in values if each["handled"])
    return {
        f"processes_{count}_per_s": sent * SECOND / span,
        f"processes_{count}_refused_commits_per_message": sum(each["refused"] for each in values) / sent,
        f"processes_{count}_busy_rows_per_message": sum(each["busy"] for each in values) / sent,
        f"processes_{count}_least_share": min(handled) * count / sent,
        f"processes_{count}_greatest_share": max(handled) * count / sent,
    }


@dataclass(frozen=True, slots=True)
class DrainProcess:
    """A process that handles messages.

    It says that it is ready, begins at a word, writes a byte for each message, and ends with its input.
    """

    process: subprocess.Popen[bytes]

    @property
    def says(self) -> IO[bytes]:
        """Its output."""
        return cast("IO[bytes]", self.process.stdout)

    def tell(self, word: bytes = b"") -> None:
        """Say a word; without one, that there will be no more."""
        written = cast("IO[bytes]", self.process.stdin)
        if word:
            written.write(word)
            written.flush()
        else:
            written.close()


def _together(url: str, lock: str, count: int, *, messages: int) -> list[Measurement]:
    """Start `count` processes, let them begin at once, and end them when every message was handled."""
    with contextlib.ExitStack() as held:
        reading, writing = os.pipe()
        held.callback(os.close, reading)
        held.callback(os.close, writing)
        drainers = [held.enter_context(_started(url, lock, writing)) for _ in range(count)]
        for drainer in drainers:
            _expect(drainer, b"ready")
        for drainer in drainers:
            drainer.tell(b"go\n")
        _await(reading, messages)
        for drainer in drainers:
            drainer.tell()
        return [json.loads(drainer.says.read()) for drainer in drainers]


@contextlib.contextmanager
def _started(url: str, lock: str, writing: int) -> Iterator[DrainProcess]:
    command = [sys.executable, "-m", "benchmarks.processes.consumers", "drain", url, str(writing), lock]
    with subprocess.Popen(
        command, cwd=_PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(writing,)
    ) as process:
        try:
            yield DrainProcess(process)
        finally:
            process.kill()


def _expect(drainer: DrainProcess, word: bytes) -> None:
    if (line := drainer.says.readline().strip()) != word:
        message = f"a draining process said {line!r} where {word!r} was expected"
        raise NotMeasured(message)


def _await(reading: int, messages: int) -> None:
    """Wait until one byte has come for each message."""
    until = CLOCK.monotonic() + _PATIENCE
    while messages > 0:
        left = (until - CLOCK.monotonic()) / SECOND
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            message = f"{messages} messages were still not handled after {_PATIENCE // SECOND} s"
            raise NotMeasured(message)
        messages -= len(os.read(reading, _MANY_BYTES))
