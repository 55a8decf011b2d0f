"""Opening a queue in a task or in the driver of Spark, and limiting the rate of a task."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from astyqueue import ids
from astyqueue.clock import Clock, CorrectedClock, SystemClock
from astyqueue.errors import NotFound, StoreUnavailable
from astyqueue.model.settings import Settings
from astyqueue.observe.observers import Observers
from astyqueue.protocol.admin.settings import load_settings
from astyqueue.protocol.coordination.store_time import clock_offset
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Client, Steps, run
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.runtime import new_client
from astyqueue.spark.options import Place, everywhere
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

T = TypeVar("T")
_log: Final = logging.getLogger("astyqueue.spark")
#: A comparison with the store's clock fails if another process compares at the same moment.
_TRIES: Final = 5
#: Between two looks at whether a wait was cancelled.
_LOOK: Final = SECOND // 5


@dataclass(frozen=True, slots=True)
class ReadOnlyQueue:
    """A queue opened read-only."""

    store: Store
    settings: Settings
    process: Client
    observers: Observers

    @property
    def ring(self) -> Ring:
        """The rows of the queue."""
        return Ring(self.settings.name, self.settings.layout)

    def run(self, steps: Steps[T]) -> T:
        """Run steps on the store of the queue; returns their result."""
        return run(steps, self.store, self.observers)


def open_read_only(place: Place) -> ReadOnlyQueue:
    """A queue opened read-only; NotFound if it does not exist."""
    store = _kept_open(place.url, relaxed=not place.by_quorum)
    clock = SystemClock()
    observers = Observers.of_debug_log(clock.monotonic)
    settings = run(load_settings(place.queue), store, observers)
    if settings is None:
        message = f"this store has no queue {place.queue!r}"
        raise NotFound(message)
    return ReadOnlyQueue(store, settings, new_client(clock), observers)


def open_for_sending(place: Place, *, create: bool) -> MessageQueue:
    """A queue opened for sending; NotFound if it does not exist and `create` is false."""
    store = _kept_open(place.url, relaxed=False)
    observers = Observers.of_debug_log(SystemClock().monotonic)
    builder = MessageQueue.builder().store(store).name(place.queue)
    if not create:
        builder.existing()
        if run(load_settings(place.queue), store, observers) is None:
            message = f'this store has no queue {place.queue!r}; .option("create", "true") makes it'
            raise NotFound(message)
    queue = builder.build()
    queue.run(queue.core.settings_sync.time.follow())
    return queue


def time_at(place: Place) -> int:
    """The time of a queue's store (microseconds), by which events are dated; read at most once a minute.

    It is this machine's time, and a warning is logged, if the store's cannot be read, as with a login that may not
    write.
    """
    queue = _timekeeper(place)
    queue.run(queue.core.settings_sync.time.follow())
    return queue.core.process.now()


def _compare(clock: CorrectedClock, queue: MessageQueue) -> bool:
    """Compare a clock with the store's; whether that succeeded. Other processes that do so at once can spoil it."""
    with contextlib.suppress(StoreUnavailable):
        for _ in range(_TRIES):
            offset = queue.run(clock_offset(clock.machine, clock.ahead, nonce=ids.nonce()))
            if offset is not None:
                clock.compared, clock.ahead = clock.comparison(), offset
                return True
    return False


def time_of_store(url: str, queues: Iterable[str]) -> int:
    """The time of the store of these queues, as `time_at` has it; zero without a queue."""
    first = next(iter(queues), None)
    return 0 if first is None else time_at(Place(everywhere(url), first))


@lru_cache(maxsize=8)
def _timekeeper(place: Place) -> MessageQueue:
    """A queue whose clock was compared with the store's, if that is possible."""
    queue = open_for_sending(place, create=False)
    clock = queue.clock
    if isinstance(clock, CorrectedClock) and clock.compared is None and not _compare(clock, queue):
        log_event(_log, logging.WARNING, "store_time_unknown", queue=place.queue, effect="this machine's clock counts")
    return queue


@lru_cache(maxsize=8)
def _kept_open(url: str, *, relaxed: bool) -> Store:
    """A store that stays open as long as this worker: connecting takes longer than some of its many small tasks."""
    return open_store(url, clock=SystemClock(), relaxed=relaxed)


class Pace:
    """Limits a caller to a rate; one that was slower for a while may catch up on at most one second of it."""

    def __init__(self, rate: float | None, clock: Clock | None = None) -> None:
        """`rate` is in rows a second; None: no limit."""
        self._rate = rate
        self._clock = clock or SystemClock()
        self._until = self._clock.monotonic()

    def keep(self, rows: int, cancelled: Callable[[], bool] | None = None) -> None:
        """Wait until this number of further rows is within the rate, or until `cancelled`, called while it waits."""
        if self._rate is None:
            return
        self._until = max(self._until, self._clock.monotonic() - SECOND) + int(rows / self._rate * SECOND)
        if cancelled is None:
            self.wait(self._until)
            return
        while not cancelled() and (now := self._clock.monotonic()) < self._until:
            self.wait(min(self._until, now + _LOOK))

    def wait(self, until: MonotonicUs) -> None:
        """Wait until a monotonic moment (microseconds)."""
        if until > self._clock.monotonic():
            Wakeup(self._clock).wait(until)

    def rest(self, length: int) -> None:
        """Wait for `length` microseconds."""
        self.wait(self._clock.monotonic() + length)
