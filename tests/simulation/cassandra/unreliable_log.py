"""An activity log that loses notices, shows them late, or cannot be read: whatever is in it is only a hint.

Only its rows are unreliable: every other write that a store acknowledges is kept.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.protocol.layout.rows import activity_row
from astyqueue.store import Batch
from astyqueue.units import SECOND
from tests.simulation.engine.event_loop import EventLoop

_FIRST: Final = activity_row(0).rpartition(":")[0]
#: How long late notices are not returned by reads, at most.
_LATE: Final = (SECOND // 20, SECOND // 2, 3 * SECOND, 20 * SECOND)


class WrittenNotice(NamedTuple):
    """A notice: its moment by the clock of its sender, and from when on reads return it (None: it is lost)."""

    moment: int
    readable: int | None


class UnreliableLog:
    """Decides what becomes of each notice; reliable until a fault is set.

    `loses` and `delays` are the parts of the notices that are acknowledged and lost, or late. `last` has the last
    notice of each queue.
    """

    def __init__(self, event_loop: EventLoop, rng: random.Random) -> None:
        """Lose and delay nothing."""
        self.loses = 0.0
        self.delays = 0.0
        self.unreadable_until = 0
        self.last: dict[str, WrittenNotice] = {}
        self._event_loop = event_loop
        self._rng = rng

    @staticmethod
    def has(row: str) -> bool:
        """Whether this row is one of the log."""
        return row.startswith(_FIRST)

    def unreadable(self, row: str) -> bool:
        """Whether reads of this row fail now."""
        return self.has(row) and self._event_loop.now < self.unreadable_until

    def lateness(self, batch: Batch) -> int | None:
        """How long after now a notice may be read, in microseconds; None if it is lost."""
        late = self._drawn()
        [put] = batch.puts
        readable = None if late is None else self._event_loop.now + late
        self.last[bytes(put.value)[1:].decode()] = WrittenNotice(ids.moment(put.name.id), readable)
        return late

    def acknowledges_first(self) -> bool:
        """Whether a late notice is acknowledged before it is written; otherwise its sender waits for it."""
        return self._rng.random() < 0.5

    def _drawn(self) -> int | None:
        drawn = self._rng.random()
        if drawn < self.loses:
            return None
        return int(self._rng.random() * self._rng.choice(_LATE)) if drawn < self.loses + self.delays else 0
