"""kill -9 of processes that may claim, again and again: never do more of them begin messages in turns than may."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Wakeup
from tests.support.places import Place

WORKER: Final = Path(__file__).with_name("worker.py")
CLOCK: Final = SystemClock()
PROCESSES: Final = 4
KILLS: Final = 4
PERMIT_LEASE: Final = 2 * SECOND
#: What is promised: a stand-by begins this long after the holder was killed, or after it has left.
AFTER_A_KILL: Final = PERMIT_LEASE + SECOND
AFTER_AN_END: Final = SECOND
WORK: Final = SECOND // 50


@dataclass(eq=False)
class Process:
    """A worker process, and the moments at which it began messages, as it wrote them down."""

    process: subprocess.Popen[bytes]
    ready: bool = False
    starts: list[int] = field(default_factory=list)
    ended: MonotonicUs | None = None

    @property
    def last(self) -> int:
        """The moment at which it began its latest message; zero if it has begun none."""
        return self.starts[-1] if self.starts else 0

    def read(self, began: threading.Condition) -> None:
        """Read its lines until its end."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._take_in(line, began)

    def _take_in(self, line: bytes, began: threading.Condition) -> None:
        what, _, monotonic, _ = line.split()
        with began:
            if what == b"ready":
                self.ready = True
            elif what == b"start":
                self.starts.append(int(monotonic))
            began.notify_all()


class Fleet:
    """Processes that serve one queue."""

    def __init__(self, url: str, folder: Path) -> None:
        self.began = threading.Condition()
        self.all: list[Process] = []
        self._readers: list[threading.Thread] = []
        self._url = url
        self._folder = folder

    def start(self) -> None:
        journal = self._folder / f"journal-{len(self.all)}"
        command = [sys.executable, str(WORKER), "handle", self._url, "mail", str(journal)]
        one = Process(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        self.all.append(one)
        self._readers.append(threading.Thread(target=one.read, args=(self.began,), daemon=True))
        self._readers[-1].start()

    @property
    def alive(self) -> list[Process]:
        return [one for one in self.all if one.ended is None]

    def active(self) -> Process:
        """The process that began a message last."""
        with self.began:
            return max(self.all, key=lambda one: one.last)

    def wait_until_ready(self) -> None:
        with self.began:
            assert self.began.wait_for(lambda: all(one.ready for one in self.alive), timeout=30)

    def wait_for_starts(self, processes: int) -> None:
        """Wait until so many processes that are alive, or all of them, have begun a message from now on."""
        since, wanted = int(CLOCK.monotonic()), min(processes, len(self.alive))
        with self.began:
            begun = self.began.wait_for(lambda: sum(one.last > since for one in self.alive) >= wanted, timeout=30)
        assert begun, f"there were no {wanted} processes that began a message for 30 seconds"

    def kill(self, one: Process) -> None:
        assert one.process.stdin is not None
        one.ended = CLOCK.monotonic()
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
        one.process.stdin.close()

    def end(self, one: Process) -> None:
        """Have a process drain, and wait for its end."""
        assert one.process.stdin is not None
        one.process.stdin.close()
        assert one.process.wait(timeout=30) == 0
        one.ended = CLOCK.monotonic()

    def wait_for_lines(self) -> None:
        """Read all that the processes wrote, which have ended."""
        for reader in self._readers:
            reader.join()


@pytest.mark.stores("sqlite", "cassandra")
@pytest.mark.parametrize("limit", [2, pytest.param(1, marks=pytest.mark.full)])
def test_no_more_processes_than_may_begin_messages_at_a_time_whenever_they_are_killed(
    place: Place, tmp_path: Path, limit: int
) -> None:
    queue = MessageQueue.builder().store(place.url).name("mail").lease("2s").build()
    queue.configure(max_active_processes=limit, permit_lease="2s")
    queue.send_many({"number": number, "work": WORK} for number in range(5_000 * limit))
    fleet, chance = Fleet(place.url, tmp_path), random.Random(7)
    for _ in range(PROCESSES):
        fleet.start()
    fleet.wait_until_ready()
    fleet.wait_for_starts(limit)
    kills = []
    for number in range(KILLS):
        Wakeup(CLOCK).wait(CLOCK.monotonic() + chance.randint(SECOND // 5, SECOND))
        kills.append(fleet.active() if number % 2 == 0 else chance.choice(fleet.alive))
        fleet.kill(kills[-1])
        fleet.wait_for_starts(limit)
        fleet.start()
        fleet.wait_until_ready()
    while len(fleet.alive) > 1:
        fleet.end(fleet.active())
        fleet.wait_for_starts(limit)
    fleet.end(fleet.alive[0])
    fleet.wait_for_lines()
    queue.close()
    turns = sorted((one for one in fleet.all if one.starts), key=lambda one: one.starts[0])
    for one in turns:
        at = one.starts[0]
        assert sum(other.starts[0] <= at <= other.last for other in turns) <= limit, "too many began messages in turns"
    # Each process that ends leaves its permit to the next one, as long as one stands by.
    left = sorted(turns, key=lambda one: int(one.ended or 0))
    for before, after in zip(left, turns[limit:], strict=False):
        assert before.ended is not None
        waited = after.starts[0] - int(before.ended)
        assert waited <= (AFTER_A_KILL if before in kills else AFTER_AN_END)
    assert len(turns) >= limit + KILLS // 2
