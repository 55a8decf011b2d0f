"""The rows of a queue, and the row of each message.

Rows are named `<queue>:<time shard>:<concurrency shard>`. Time shards form a ring: a row is idle while the others have
their turn, so that the store can purge its tombstones before it is used again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import date
from typing import Final

from astyqueue.durations import LATEST
from astyqueue.model.settings import SINGLE, Layout
from astyqueue.units import SECOND

#: The row that lists the queues of a store. A queue's own name cannot begin with a colon.
QUEUES: Final = ":queues"
#: The row by which processes measure the store's time.
TIME: Final = ":time"
#: The row of the reports of the processes that work on a store, and of commands to them.
WORKERS: Final = ":workers"
#: The time that one row of the activity log covers, so that no row of a busy store grows without bound.
ACTIVITY_ROW_US: Final = 600 * SECOND


def activity_row(moment: int) -> str:
    """The row of the activity log for the notices of this moment."""
    return f":activity:{moment // ACTIVITY_ROW_US}"


def settings_row(queue: str) -> str:
    """The row of a queue's settings."""
    return f"{queue}:settings"


def doorbell_row(queue: str) -> str:
    """The row of a queue's doorbell."""
    return f"{queue}:bell"


def workers_row(queue: str) -> str:
    """The row of the reports of stuck handlers in a queue's workers."""
    return f"{queue}:workers"


def permits_row(queue: str) -> str:
    """The row of the permits of a queue, and of the processes that stand by for one."""
    return f"{queue}:permits"


def declared_row(queue: str) -> str:
    """The row of the records of the schedules that programs declare."""
    return f"{queue}:declared"


def key_row(queue: str, key: str) -> str:
    """The row of the hints to a queue's messages of this key."""
    return f"{queue}:key:{key}"


def batches_row(queue: str, source: str) -> str:
    """The row of the records of a source's batches."""
    return f"{queue}:source:{source}"


_DAY: Final = 86_400 * SECOND
_DAY_OF_1970: Final = 719_163


def history_row(queue: str, moment: int, bucket: int) -> str:
    """The row of the history of this moment's day (UTC), for the messages in this bucket."""
    return f"{queue}:{date.fromordinal(_DAY_OF_1970 + moment // _DAY).isoformat()}:{bucket}"


#: Replaces the time shard in the names of rows that do not rotate.
_HOME: Final = "home"
#: Parts of a row's name behind the queue's: a time shard and a concurrency shard.
_SHARDS: Final = 2


def is_home(row: str) -> bool:
    """Whether a message row is a home row, which does not rotate."""
    return row.split(":", 2)[1:2] == [_HOME]


def time_shard_of(row: str) -> int | None:
    """The time shard of a message row; None for a home row, which has none."""
    shard = row.split(":", 2)[1]
    return None if shard == _HOME else int(shard)


def is_message_row(queue: str, row: str) -> bool:
    """Whether this is the name of a row that may contain messages of the queue."""
    name, *shards = row.split(":")
    return name == queue and len(shards) == _SHARDS and all(shard.isdecimal() or shard == _HOME for shard in shards)


def _counts_below(written: str, bound: int) -> bool:
    """Whether this is a number as in the names of rows, at least zero and below the bound."""
    return (
        len(written) <= len(str(bound))
        and written.isdecimal()
        and int(written) < bound
        and written == str(int(written))
    )


@dataclass(frozen=True, slots=True)
class Ring:
    """The rows of one queue."""

    queue: str
    layout: Layout

    def row(self, moment: int, shard: int) -> str:
        """The row of a message with this time (microseconds since 1970) and concurrency shard."""
        return f"{self.queue}:{self.time_shard(moment)}:{shard}"

    def time_shard(self, moment: int) -> int:
        """The time shard for messages of this moment."""
        return moment // self.layout.time_shard_us % self.layout.time_shards

    def home(self, shard: int) -> str:
        """The row of a concurrency shard that does not rotate: for keys and schedules, which need one fixed row."""
        return f"{self.queue}:{_HOME}:{shard}"

    def homes(self) -> list[str]:
        """The rows that do not rotate, one for each concurrency shard."""
        return [self.home(shard) for shard in range(self.layout.concurrency_shards)]

    def place(self, row: str, now: int) -> int | None:
        """The index of a row among the current ones; None for one that is not written to now."""
        time_shard, _, shard = row.removeprefix(f"{self.queue}:").partition(":")
        if time_shard == _HOME:
            return self.layout.concurrency_shards + int(shard)
        return int(shard) if time_shard == str(self.time_shard(now)) else None

    def shard_of_key(self, key: str) -> int:
        """The concurrency shard of a key: the same in every process and release, and never negative."""
        if self.layout.placement == SINGLE:
            return 0
        return zlib.crc32(key.encode()) % self.layout.concurrency_shards

    @property
    def shared(self) -> bool:
        """Whether the queue has several concurrency shards, whose rows its processes divide among themselves."""
        return self.layout.concurrency_shards > 1

    @property
    def width(self) -> int:
        """The number of rows that are written to at one time."""
        return 2 * self.layout.concurrency_shards

    def current(self, now: int) -> list[str]:
        """The rows that are written to now: those of the time shard, then the home rows."""
        return [*(self.row(now, shard) for shard in range(self.layout.concurrency_shards)), *self.homes()]

    def rows(self) -> list[str]:
        """All rows of the queue, time shard by time shard, and the home rows last."""
        shards = range(self.layout.concurrency_shards)
        time_shards = [*range(self.layout.time_shards), _HOME]
        return [f"{self.queue}:{time_shard}:{shard}" for time_shard in time_shards for shard in shards]

    def contains(self, row: str) -> bool:
        """Whether this is one of the rows of the queue."""
        name, *shards = row.split(":")
        if name != self.queue or len(shards) != _SHARDS:
            return False
        time_shard, shard = shards
        return (time_shard == _HOME or _counts_below(time_shard, self.layout.time_shards)) and _counts_below(
            shard, self.layout.concurrency_shards
        )

    def closes(self, moment: int) -> int:
        """When the time shard of this moment ends, in microseconds; the year 5000 if there is only one."""
        if self.layout.time_shards == 1:
            return LATEST
        return (moment // self.layout.time_shard_us + 1) * self.layout.time_shard_us

    def turn(self, row: str, moment: int) -> int | None:
        """When the latest turn of a row began, at this moment or before; None for a row that never closes."""
        shard = row.removeprefix(f"{self.queue}:").partition(":")[0]
        if shard == _HOME or self.layout.time_shards == 1:
            return None
        turns = (moment // self.layout.time_shard_us - int(shard)) // self.layout.time_shards
        return (turns * self.layout.time_shards + int(shard)) * self.layout.time_shard_us

    def ended(self, since: int, now: int) -> list[str]:
        """The rows whose latest turn ended after that moment, without those that are written to now."""
        last = now // self.layout.time_shard_us
        first = max(since // self.layout.time_shard_us, last - self.layout.time_shards + 1)
        begins = [turn * self.layout.time_shard_us for turn in range(first, last)]
        return [self.row(begin, shard) for begin in begins for shard in range(self.layout.concurrency_shards)]

    def has_ended(self, row: str, since: int, now: int) -> bool:
        """Whether a row is one of those."""
        began = self.turn(row, now)
        return began is not None and since < began + self.layout.time_shard_us <= now

    @property
    def lap(self) -> int:
        """The duration of one ring revolution, in microseconds."""
        return self.layout.time_shards * self.layout.time_shard_us
