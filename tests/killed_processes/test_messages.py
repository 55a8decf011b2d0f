"""Workers on one store are killed many times: nothing is lost, and nothing is done twice unless a kill explains it."""

from __future__ import annotations

import itertools
import os
import random
import selectors
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup
from tests.support.places import Place

WORKER: Final = Path(__file__).with_name("worker.py")
CLOCK: Final = SystemClock()
#: The number of kills, unless `--kills` says otherwise, as `make test-kills` does: once at each of the `MOMENTS`, and
#: with `--all-stores` so many.
KILLS: Final = 8
ALL_KILLS: Final = {"sqlite": 12, "cassandra": 8}
#: At least one kill in this many must interrupt a message that comes back in another time shard.
ACROSS: Final = 5
WORKERS: Final = 3
LEASE: Final = SECOND
SHARD: Final = 5 * SECOND
#: What was in flight is delivered again at most this long after the kill.
BACK: Final = LEASE + 2 * SECOND
#: A kill comes at these moments of each time shard; what one interrupts late in a shard comes back in the next.
MOMENTS: Final = tuple(int(seconds * SECOND) for seconds in (0.02, 0.8, 1.5, 2.2, 2.9, 3.55, 4.2, 4.65))
#: Messages are sent this long before a kill: some take a while to handle, and some do not.
AHEAD: Final = SECOND // 8
LONG: Final = (SECOND // 5, SECOND * 3 // 10)
SHORT: Final = (0, SECOND // 50)
LATEST: Final = SHARD
#: The test fails after waiting this long.
PATIENCE: Final = 30 * SECOND


class Event(NamedTuple):
    """A line of a worker's journal."""

    what: str
    number: int
    monotonic: int
    now: int

    @property
    def time_shard(self) -> int:
        return self.now // SHARD


@dataclass(eq=False)
class Worker:
    """A worker process and its journal."""

    process: subprocess.Popen[bytes]
    journal: Path
    killed: MonotonicUs | None = None

    def events(self) -> list[Event]:
        if not self.journal.exists():
            return []
        words = (line.split() for line in self.journal.read_text().splitlines())
        return [Event(what, *map(int, numbers)) for what, *numbers in words]

    def open(self, *ends: str) -> list[Event]:
        """The starts that none of these ends followed."""
        started: dict[int, Event] = {}
        for event in self.events():
            if event.what == "start":
                started[event.number] = event
            elif event.what in ends:
                started.pop(event.number, None)
        return list(started.values())

    def kill_in_flight(self) -> bool:
        """Kill the process with SIGKILL if a handler runs; returns whether one did. The check stops the process."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        if not self.open("end"):
            self.process.send_signal(signal.SIGCONT)
            return False
        self.killed = CLOCK.monotonic()
        self.process.kill()
        self.process.wait()
        return True


@dataclass
class Workers:
    """All workers, alive and killed."""

    url: str
    directory: Path
    alive: list[Worker] = field(default_factory=list)
    killed: list[Worker] = field(default_factory=list)
    doorbells: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def start(self) -> None:
        journal = self.directory / f"journal-{len(self.alive) + len(self.killed)}"
        command = [sys.executable, str(WORKER), "handle", self.url, "victims", str(journal)]
        worker = Worker(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE), journal)
        self.alive.append(worker)
        assert worker.process.stdout is not None
        self.doorbells.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def wait_for_news(self, until: MonotonicUs) -> None:
        """Block until some worker has written a line; fail if none comes until then."""
        ready = self.doorbells.select(max(0, until - CLOCK.monotonic()) / SECOND)
        assert ready, "no worker did anything for too long"
        for key, _ in ready:
            assert os.read(key.fd, 65_536), "a worker ended by itself"

    def kill_one(self) -> None:
        """Kill a worker while one of its handlers runs, and start another in its place."""
        until = CLOCK.monotonic() + PATIENCE
        while not (
            victim := next((worker for worker in self.alive if worker.open("end") and worker.kill_in_flight()), None)
        ):
            self.wait_for_news(until)
        self.alive.remove(victim)
        self.killed.append(victim)
        self._forget(victim)
        self.start()

    def _forget(self, worker: Worker) -> None:
        assert worker.process.stdout is not None
        assert worker.process.stdin is not None
        self.doorbells.unregister(worker.process.stdout)
        worker.process.stdout.close()
        worker.process.stdin.close()

    def wait_until_ready(self) -> None:
        """Block until every living worker has begun; on a slow machine the kills wait for that."""
        until = CLOCK.monotonic() + PATIENCE
        while not all(worker.events() for worker in self.alive):
            self.wait_for_news(until)

    def wait_for_all(self, queue: MessageQueue) -> None:
        """Block until the queue is empty; the worker that empties it writes a line after that."""
        until = CLOCK.monotonic() + PATIENCE
        while queue.counts().total:
            self.wait_for_news(until)

    def finish(self) -> None:
        """Let the living workers drain and end."""
        for worker in self.alive:
            worker.process.communicate(timeout=PATIENCE / SECOND)
        assert [worker.process.returncode for worker in self.alive] == [0] * WORKERS

    def end(self) -> None:
        for worker in self.alive:
            with worker.process:
                worker.process.kill()
        self.doorbells.close()

    def story(self) -> Story:
        return Story([*self.killed, *self.alive])


class Story:
    """The contents of all journals together."""

    def __init__(self, workers: list[Worker]) -> None:
        self._workers = workers
        self.starts: dict[int, list[tuple[Event, Worker]]] = defaultdict(list)
        self.done: set[int] = set()
        for worker in workers:
            for event in worker.events():
                self._note(event, worker)
        for starts in self.starts.values():
            starts.sort(key=lambda start: start[0].monotonic)

    def _note(self, event: Event, worker: Worker) -> None:
        if event.what == "start":
            self.starts[event.number].append((event, worker))
        elif event.what == "end":
            self.done.add(event.number)

    def doubles(self) -> list[tuple[Event, Worker]]:
        """Every start of a message after which it was started again."""
        return [start for starts in self.starts.values() for start in starts[:-1]]

    def explained(self) -> list[tuple[Event, Worker]]:
        """The doubles whose first start was in flight, not yet settled, in a worker that was killed."""
        unsettled = {
            worker: set(worker.open("acked", "released", "lost", "rejected"))
            for worker in self._workers
            if worker.killed
        }
        return [(event, worker) for event, worker in self.doubles() if event in unsettled.get(worker, ())]

    def returns(self) -> Iterator[tuple[Worker, Event, Event | None]]:
        """The starts that each kill interrupted, each with the next start of its message."""
        for worker in self._workers:
            for event in worker.open("end") if worker.killed else ():
                later = (start for start, _ in self.starts[event.number] if start.monotonic > event.monotonic)
                yield worker, event, next(later, None)


@pytest.fixture
def kills(place: Place, pytestconfig: pytest.Config) -> int:
    usual = ALL_KILLS[place.kind] if pytestconfig.getoption("--all-stores") else KILLS
    return int(pytestconfig.getoption("--kills") or usual)


@pytest.fixture
def url(place: Place) -> str:
    return place.url


@pytest.fixture
def queue(url: str, kills: int) -> Iterator[MessageQueue]:
    builder = MessageQueue.builder().store(url).name("victims").time_shards(30, every="5s")
    with builder.lease("1s").max_attempts(kills).build() as queue:
        yield queue


@pytest.fixture
def workers(url: str, queue: MessageQueue, tmp_path: Path) -> Iterator[Workers]:
    assert queue.name == "victims"
    workers = Workers(url, tmp_path)
    for _ in range(WORKERS):
        workers.start()
    workers.wait_until_ready()
    yield workers
    workers.end()


def next_moment(*, late: bool) -> MonotonicUs:
    """When to kill next, by the monotonic clock; `late` in a time shard, or at any of the moments."""
    now = CLOCK.now()
    turns = (now // SHARD + turn for turn in itertools.count())
    moments = MOMENTS[-1:] if late else MOMENTS
    moment = next(at for turn in turns for offset in moments if (at := turn * SHARD + offset) > now + AHEAD)
    return CLOCK.monotonic() + (moment - now)


def burst(first: int, chance: random.Random) -> list[Message]:
    """Messages for now, and a few spread over the length of a time shard."""
    works = [chance.randint(*between) for between in (LONG,) * 2 + (SHORT,) * 6]
    late = [
        chance.randint(0, LATEST) / SECOND if work <= SHORT[1] and chance.random() < 0.5 else None for work in works
    ]
    return [
        Message({"number": number, "work": work}, delay=delay)
        for number, (work, delay) in enumerate(zip(works, late, strict=True), start=first)
    ]


@pytest.mark.timeout(600)
@pytest.mark.stores("sqlite", "cassandra")
def test_kills_lose_no_message_and_none_is_handled_twice_without_a_kill(
    workers: Workers, queue: MessageQueue, kills: int
) -> None:
    sent, chance = 0, random.Random(kills)
    while len(workers.killed) < kills:
        workers.wait_until_ready()
        # how long a worker takes to start decides which moments come up, so every fourth kill is made a late one
        moment = next_moment(late=len(workers.killed) % (ACROSS - 1) == 0)
        Wakeup(CLOCK).wait(moment - AHEAD)
        sent += queue.send_many(burst(sent, chance)).sent
        Wakeup(CLOCK).wait(moment)
        workers.kill_one()
    workers.wait_for_all(queue)
    workers.finish()

    story = workers.story()
    doubles, explained = story.doubles(), story.explained()
    returns = list(story.returns())
    across = {worker for worker, event, again in returns if again and again.time_shard != event.time_shard}
    slowest = max(
        again.monotonic - int(worker.killed or BEGINNING) if again else BACK * 9 for worker, _, again in returns
    )
    sys.stdout.write(
        f"kills {len(workers.killed)}, across a boundary {len(across)}, messages {sent}, done {len(story.done)}, "
        f"lost {sent - len(story.done)}, doubles {len(doubles)} (explained {len(explained)}), "
        f"slowest return {slowest / SECOND:.1f} s\n"
    )
    assert story.done == set(range(sent))
    assert doubles == explained
    assert slowest <= BACK
    assert len(workers.killed) == len({worker for worker, _, _ in returns}) == kills
    assert len(across) >= kills // ACROSS
