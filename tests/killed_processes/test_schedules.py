"""kill -9 of processes that fire the same schedules: each occurrence has exactly one message, whenever they die."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.schedules import Schedules
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.places import ONE_ROW, Place

WORKER: Final = Path(__file__).with_name("worker.py")
CLOCK: Final = SystemClock()
KILLS: Final = {"sqlite": 12, "cassandra": 6}
SCHEDULES: Final = 5
EVERY: Final = "100ms"


class Fleet:
    """Processes that fire and handle, all on one store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.alive: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        self._started += 1
        journal = self.folder / f"journal-{self._started}"
        command = [sys.executable, str(WORKER), "fire", self.url, "mail", str(journal)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        self.alive.append(process)

    def kill(self, which: int) -> None:
        process = self.alive.pop(which)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    def stop(self) -> None:
        for process in self.alive:
            process.communicate(timeout=30)
        self.alive.clear()

    def messages(self) -> dict[int, set[str]]:
        """The ids of the messages of each occurrence; a message may have been handed out more than once."""
        found: dict[int, set[str]] = defaultdict(set)
        for journal in self.folder.glob("journal-*"):
            for occurrence, id_ in (line.split() for line in journal.read_text().splitlines()):
                found[int(occurrence)].add(id_)
        return found


@pytest.mark.full
@pytest.mark.stores("sqlite", "cassandra")
def test_each_occurrence_has_one_message_whenever_a_process_is_killed(place: Place, tmp_path: Path) -> None:
    queue = MessageQueue.builder().store(place.url).name("mail").options(lease="2s", **ONE_ROW).build()
    schedules = Schedules(queue)
    fleet = Fleet(place.url, tmp_path)
    chance = random.Random(7)
    fleet.start()
    fleet.start()
    for number in range(SCHEDULES):
        schedules.add(f"tick {number}", Every(EVERY), number, misfire="all 1000")
    for _ in range(KILLS[place.kind]):
        Wakeup(CLOCK).wait(CLOCK.monotonic() + chance.randint(SECOND // 5, SECOND))
        fleet.kill(chance.randrange(2))
        fleet.start()
    for number in range(SCHEDULES):
        schedules.pause(f"tick {number}")
    stored = [one.stored for one in schedules.all()]
    _settle_down(queue)
    fleet.stop()
    messages = fleet.messages()
    wanted = {occurrence: 0 for one in stored for occurrence in range(one.created, one.last + 1, SECOND // 10)}
    for one in stored:
        for occurrence in range(one.created, one.last + 1, SECOND // 10):
            wanted[occurrence] += 1
    assert len(wanted) > 50
    assert {occurrence: len(ids) for occurrence, ids in messages.items()} == wanted
    assert sum(one.fired for one in stored) == sum(wanted.values())


def _settle_down(queue: MessageQueue) -> None:
    """Wait until all that was sent is done."""
    until = CLOCK.monotonic() + 60 * SECOND
    while queue.counts().total and CLOCK.monotonic() < until:
        Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND // 10)
    assert queue.counts().total == 0
