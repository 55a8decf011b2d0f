"""Where a measurement happens: a fresh store for each, on the disk and with the durability that were asked for."""

from __future__ import annotations

import contextlib
import gc
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.stores.sqlite.file import DatabaseFile
from astyqueue.wakeup import Wakeup

CLOCK: Final = SystemClock()
QUEUE: Final = "benchmark"
#: The name of the only row of a queue that has one time shard and one concurrency shard.
ROW: Final = f"{QUEUE}:0:0"
#: Microseconds between two things that happen now and then; a uniform choice between these bounds.
_GAPS: Final = (1_000, 20_000)


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of store, how durable it is, and the directory where its files are made (None: the system's for temporary files)."""

    store: str = "sqlite"
    synchronous: str = "full"
    directory: str | None = None

    @property
    def on_disk(self) -> bool:
        """Whether there is a file to compare with, and other processes can open it."""
        return self.store == "sqlite"

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of a new store; what earlier measurements left in memory is cleared away first."""
        gc.collect()
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="astyqueue-") as directory:
            file = Path(directory) / "queue.db"
            yield f"sqlite:///{file}?synchronous={self.synchronous}" if self.on_disk else "memory://"

    @contextlib.contextmanager
    def fresh_queue(self) -> Iterator[MessageQueue]:
        """An empty queue in a new store."""
        with self.fresh() as url, MessageQueue.builder().store(url).name(QUEUE).build() as queue:
            yield queue

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

    def __init__(self, seed: int) -> None:
        """Begin a row of pauses."""
        self._chance = random.Random(seed)
        self._wakeup = Wakeup(CLOCK)

    def rest(self) -> None:
        """Let one pass."""
        self._wakeup.wait(CLOCK.monotonic() + self._chance.randint(*_GAPS))
