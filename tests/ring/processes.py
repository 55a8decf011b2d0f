"""The producer and worker processes, and counts of what they have written to their journals so far."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, cast

from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.ring.journal import CLOCK

_PROJECT: Final = Path(__file__).parents[2]
_POLL: Final = SECOND // 20
#: For how long, and how often, to look for a moment at which a worker has a message in flight.
_IN_FLIGHT_WITHIN: Final = 5 * SECOND
_MOMENT: Final = SECOND // 100
_PATIENCE: Final = 60 * SECOND
#: The numbers of each producer process begin this far after those of the one before.
_APART: Final = 10**8
_WORKERS: Final = 3
#: How many seconds each producer's clock is ahead.
AHEAD: Final = (0, 5, -5)


_SENDS: Final = ("sending", "sent", "unknown", "refused")
_WORDS: Final = ("ready", "delivered", "settled", "failed", *_SENDS)


class Tail:
    """Counts the lines of a file as it grows, by their first word; a line about a send counts once for each message."""

    def __init__(self, path: Path) -> None:
        self.counts: dict[str, int] = dict.fromkeys(_WORDS, 0)
        self._path = path
        self._read = 0
        self._tells_of_sends = False

    def follow(self) -> None:
        """Read the new lines, up to the last complete one."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0] + b"\n"
        if len(whole) == 1:
            return
        self._read += len(whole)
        for word in ("ready", "delivered", "settled", "failed"):
            self.counts[word] += (b"\n" + whole).count(f"\n{word} ".encode())
        if b"\nsending " in b"\n" + whole:
            self._tells_of_sends = True
        if self._tells_of_sends:
            self._count(whole)

    def _count(self, whole: bytes) -> None:
        for line in whole.splitlines():
            word = line.split(b" ", 1)[0].decode()
            if word in _SENDS:
                self.counts[word] += int(line.split(b" ", 4)[3])


@dataclass(eq=False)
class Process:
    """A process, its journal, and when it was killed, if it was (monotonic)."""

    name: str
    process: subprocess.Popen[bytes]
    journal: Path
    tail: Tail
    killed: int | None = None
    granted: int = 0

    @property
    def _input(self) -> IO[bytes]:
        return cast("IO[bytes]", self.process.stdin)

    def kill(self) -> None:
        """End the process with SIGKILL, and wait until it is gone."""
        self.killed = int(CLOCK.monotonic())
        self.process.kill()
        self.process.wait()
        self._input.close()

    def freeze(self) -> None:
        """Stop the process at a moment when it has a message in flight; after a while even if it has none."""
        until = CLOCK.monotonic() + _IN_FLIGHT_WITHIN
        self._stop()
        while not self._has_something() and CLOCK.monotonic() < until:
            self.thaw()
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _MOMENT)
            self._stop()

    def _stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def _has_something(self) -> bool:
        """Whether a message that was delivered to the process is not settled."""
        self.tail.follow()
        return self.tail.counts["delivered"] > self.tail.counts["settled"]

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def grant(self, messages: int) -> None:
        """Let a producer send this many more messages."""
        self.granted += messages
        self._input.write(b"%d\n" % messages)
        self._input.flush()

    def finish(self) -> int:
        """Let the process end; returns its exit code."""
        self._input.close()
        return self.process.wait(_PATIENCE / SECOND)


@dataclass(eq=False)
class Processes:
    """All processes: those that run now, by their places, and all that were ever started."""

    url: str
    queue: str
    directory: Path
    workers: list[Process] = field(default_factory=list)
    producers: list[Process] = field(default_factory=list)
    all: list[Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Start all processes, and wait until they are ready."""
        try:
            self.workers = [self._worker(place) for place in range(_WORKERS)]
            self.producers = [self._producer(place) for place in range(len(AHEAD))]
            self._await(self.all)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process_of in self.all:
            if process_of.process.poll() is None:
                process_of.process.kill()
                process_of.process.wait()

    def replace_worker(self, place: int) -> None:
        """Start another worker in the place of one that was killed."""
        self.workers[place] = self._worker(place)

    def replace_producer(self, place: int) -> None:
        self.producers[place] = self._producer(place)

    def follow(self) -> None:
        """Read the new lines of all journals."""
        for process_of in tuple(self.all):
            process_of.tail.follow()

    def count(self, word: str) -> int:
        """How many lines, or messages, there are of a kind, as far as the journals were read."""
        return sum(process_of.tail.counts[word] for process_of in tuple(self.all))

    def owed(self) -> int:
        """How many messages the running producers were granted and have not begun to send."""
        return sum(process_of.granted - process_of.tail.counts["sending"] for process_of in self.producers)

    def finish(self) -> dict[str, int]:
        """Let all running processes end; returns the exit codes of those that failed, by their names."""
        ended = {process_of.name: process_of.finish() for process_of in (*self.producers, *self.workers)}
        return {name: code for name, code in ended.items() if code}

    def _worker(self, place: int) -> Process:
        return self._started("worker", f"worker {place + 1}")

    def _producer(self, place: int) -> Process:
        first = len(self.all) * _APART
        return self._started("producer", f"producer {place + 1}", str(first), str(AHEAD[place]))

    def _started(self, module: str, name: str, *more: str) -> Process:
        journal = self.directory / f"{len(self.all):03}-{module}"
        command = [sys.executable, "-m", f"tests.ring.{module}", self.url, self.queue, str(journal), *more]
        with journal.with_suffix(".errors").open("wb") as errors:
            process = subprocess.Popen(command, cwd=_PROJECT, stdin=subprocess.PIPE, stderr=errors)
        process_of = Process(name, process, journal, Tail(journal))
        self.all.append(process_of)
        return process_of

    def _await(self, processes: Sequence[Process]) -> None:
        """Wait until these processes are ready."""
        until = CLOCK.monotonic() + _PATIENCE
        while late := [process_of.name for process_of in processes if not process_of.tail.counts["ready"]]:
            assert CLOCK.monotonic() < until, f"{late} did not begin"
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _POLL)
            self.follow()


def shares(messages: int, processes: Sequence[Process], *, least: int) -> Iterator[tuple[Process, int]]:
    """Divide messages among processes in whole portions, beginning with those that were granted least so far."""
    portions = itertools.cycle(sorted(processes, key=lambda process_of: process_of.granted))
    given = dict.fromkeys(processes, 0)
    for _ in range(messages // least):
        given[next(portions)] += least
    yield from ((process_of, count) for process_of, count in given.items() if count)
