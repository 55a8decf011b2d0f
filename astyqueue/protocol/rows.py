"""Which row a message goes to, and which rows a queue has.

Rows are named `<queue>:<time shard>:<concurrency shard>`. Time shards form a ring: a row rests while the others have their
turn, so that what was deleted from it can be cleaned away before it is used again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from astyqueue.model.settings import Layout

#: The row that lists the queues of a store. A queue's own name cannot begin with a colon.
QUEUES: Final = ":queues"
#: The row by which processes learn the store's time.
TIME: Final = ":time"


def settings_row(queue: str) -> str:
    """Where a queue's settings are kept."""
    return f"{queue}:settings"


def bell_row(queue: str) -> str:
    """Where a queue's doorbell is."""
    return f"{queue}:bell"


#: Later than any moment an id can stand for in our lives, and an id still: the year 5000.
_NEVER: Final = 95_617_584_000 * 1_000_000


@dataclass(frozen=True, slots=True)
class Ring:
    """The rows of one queue."""

    queue: str
    layout: Layout

    def row(self, moment: int, shard: int) -> str:
        """The row of a message with this time (microseconds since 1970) and concurrency shard."""
        return f"{self.queue}:{self.time_shard(moment)}:{shard}"

    def time_shard(self, moment: int) -> int:
        """The time shard that is written to at this moment."""
        return moment // self.layout.time_shard_us % self.layout.time_shards

    def shard_in(self, row: str) -> int | None:
        """The concurrency shard in the name of a row; None for a row that is none of these."""
        shard = row.rpartition(":")[2]
        return int(shard) if shard.isdecimal() and row.startswith(f"{self.queue}:") else None

    def shard_of_key(self, key: str) -> int:
        """The concurrency shard of a key: the same in every process and release, and never negative."""
        return zlib.crc32(key.encode()) % self.layout.concurrency_shards

    def current(self, now: int) -> list[str]:
        """The rows that are written to now."""
        return [self.row(now, shard) for shard in range(self.layout.concurrency_shards)]

    def is_current(self, row: str, now: int) -> bool:
        """Whether a row is written to now."""
        return row.startswith(f"{self.queue}:{self.time_shard(now)}:")

    def rows(self) -> list[str]:
        """All rows of the queue."""
        shards = range(self.layout.concurrency_shards)
        return [f"{self.queue}:{turn}:{shard}" for turn in range(self.layout.time_shards) for shard in shards]

    def closes(self, moment: int) -> int:
        """When the time shard of this moment ends; never, when there is but one."""
        if self.layout.time_shards == 1:
            return _NEVER
        return (moment // self.layout.time_shard_us + 1) * self.layout.time_shard_us
