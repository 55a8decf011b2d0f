"""The target of a measurement: a fresh store for each, on the requested disk with the requested durability."""

from __future__ import annotations

import contextlib
import gc
import random
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.stores.sqlite.database import DatabaseFile
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

CLOCK: Final = SystemClock()
QUEUE: Final = "benchmark"
#: The name of the only row of a queue that has one time shard and one concurrency shard.
ROW: Final = f"{QUEUE}:0:0"
#: Microseconds between two things that happen now and then; a uniform choice between these bounds.
GAPS: Final = (1_000, 20_000)
_MILLISECOND: Final = SECOND // 1000


#: One row, for what is about one row.
ONE_ROW: Final = {"time_shards": 1, "concurrency_shards": 1}


class Target(Protocol):
    """A kind of store, empty for each measurement."""

    @property
    def store(self) -> str:
        """What kind."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes can open what is here."""
        ...

    @property
    def conditions(self) -> dict[str, object]:
        """What the figures depend on, beside what is measured."""
        ...

    def fresh(self) -> AbstractContextManager[str]:
        """The URL of a store that is empty; what earlier measurements left is cleared away first."""
        ...

    def beside(self) -> AbstractContextManager[str]:
        """The URL of another store that is empty; what the first one holds stays as it is."""
        ...

    def store_cpu_s(self) -> float | None:
        """Seconds of processor time that the store's own processes have used; None if it has none."""
        ...


@contextlib.contextmanager
def fresh_queue(target: Target, **options: object) -> Iterator[MessageQueue]:
    """An empty queue with these settings."""
    with target.fresh() as url, MessageQueue.builder().store(url).name(QUEUE).options(**options).build() as queue:
        yield queue


@dataclass(frozen=True, slots=True)
class Embedded:
    """In this process's memory, or in SQLite files: how durable, and where (None: the system's temporary directory)."""

    store: str = "sqlite"
    synchronous: str = "full"
    directory: str | None = None

    @property
    def shared(self) -> bool:
        """There is a file to compare with, and other processes can open it."""
        return self.store == "sqlite"

    @property
    def conditions(self) -> dict[str, object]:
        """The library's version."""
        return {"sqlite": sqlite3.sqlite_version}

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        """A new file, or a new store in memory."""
        gc.collect()
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="astyqueue-") as directory:
            file = Path(directory) / "queue.db"
            yield f"sqlite:///{file}?synchronous={self.synchronous}" if self.shared else "memory://"

    def beside(self) -> AbstractContextManager[str]:
        """Every store is one by itself here."""
        return self.fresh()

    def store_cpu_s(self) -> float | None:
        """It runs in the processes that use it."""
        return None

    @contextlib.contextmanager
    def fresh_file(self) -> Iterator[DatabaseFile]:
        """A new database file as the SQLite store makes it, to be used without the store."""
        gc.collect()
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="astyqueue-") as directory:
            file = DatabaseFile(Path(directory) / "bare.db", self.synchronous)
            file.prepare()
            yield file


class Gaps:
    """Pauses of random lengths, the same again for the same seed."""

    def __init__(self, seed: int, bounds: tuple[int, int] = GAPS) -> None:
        """Begin a row of pauses, each between these bounds (microseconds)."""
        self._chance = random.Random(seed)
        self._bounds = bounds
        self._wakeup = Wakeup(CLOCK)

    def rest(self) -> None:
        """Let one pass."""
        self._wakeup.wait(CLOCK.monotonic() + self._chance.randint(*self._bounds))


def median_ms(actions: list[Callable[[], None]], seed: int) -> float:
    """How long one of these takes, milliseconds, with a pause before each."""
    gaps = Gaps(seed)
    taken = []
    for action in actions:
        gaps.rest()
        began = CLOCK.monotonic()
        action()
        taken.append((CLOCK.monotonic() - began) / _MILLISECOND)
    return statistics.median(taken)
