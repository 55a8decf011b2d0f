"""Opening a queue from a task or a driver of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from astyqueue.clock import SECOND, Clock, SystemClock
from astyqueue.errors import NotFound
from astyqueue.model.settings import Settings
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.settings import load_settings
from astyqueue.protocol.steps import Steps, run
from astyqueue.queue.core import process_of
from astyqueue.queue.queue import MessageQueue
from astyqueue.spark.options import Place
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.wakeup import Wakeup

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Looking:
    """A queue that is only looked at."""

    store: Store
    settings: Settings
    process: Process

    @property
    def ring(self) -> Ring:
        """Its rows."""
        return Ring(self.settings.name, self.settings.layout)

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps here."""
        return run(steps, self.store)


def looking(place: Place) -> Looking:
    """A queue that exists, to be looked at; NotFound if it does not."""
    store = _kept_open(place.url, relaxed=not place.exactly)
    settings = run(load_settings(place.queue), store)
    if settings is None:
        message = f"this store has no queue {place.queue!r}"
        raise NotFound(message)
    return Looking(store, settings, process_of(SystemClock()))


def sending(place: Place, *, create: bool) -> MessageQueue:
    """A queue to send to; NotFound if it does not exist and is not to be created."""
    store = _kept_open(place.url, relaxed=False)
    if not create and run(load_settings(place.queue), store) is None:
        message = f'this store has no queue {place.queue!r}; .option("create", "true") makes it'
        raise NotFound(message)
    queue = MessageQueue.builder().store(store).name(place.queue).build()
    queue.run(queue.core.following.time.follow())
    return queue


def time_at(place: Place) -> int:
    """What time it is in a queue's store (microseconds), by which events are dated: clocks of machines differ. Asked once a minute."""
    queue = _timekeeper(place)
    queue.run(queue.core.following.time.follow())
    return queue.core.process.now()


@lru_cache(maxsize=8)
def _timekeeper(place: Place) -> MessageQueue:
    return sending(place, create=False)


@lru_cache(maxsize=8)
def _kept_open(url: str, *, relaxed: bool) -> Store:
    """A store that stays open while this worker lives: Spark gives one worker many small tasks, and connecting takes longer than some."""
    return open_store(url, clock=SystemClock(), relaxed=relaxed)


class Pace:
    """Keeps whoever asks to so many rows a second; who was slower for a while makes up for a second of it at most."""

    def __init__(self, rate: float | None, clock: Clock | None = None) -> None:
        """Without a rate there is no limit."""
        self._rate = rate
        self._clock = clock or SystemClock()
        self._until = self._clock.monotonic()

    def keep(self, rows: int) -> None:
        """Wait until so many more rows are not too many."""
        if self._rate is not None:
            self._until = max(self._until, self._clock.monotonic() - SECOND) + int(rows / self._rate * SECOND)
            self.wait(self._until)

    def wait(self, until: int) -> None:
        """Wait for a monotonic moment."""
        if until > self._clock.monotonic():
            Wakeup(self._clock).wait(until)

    def rest(self, length: int) -> None:
        """Wait for so many microseconds."""
        self.wait(self._clock.monotonic() + length)
