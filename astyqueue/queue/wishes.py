"""Asking for a row that another process keeps busy, so that rows are spread fairly and nobody far away starves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.queue.rowlease import RowLease

#: Between two wishes, half as much more or less: while somebody has more rows than is fair, and when there are too few rows for all.
_UNFAIR: Final = SECOND // 10
_SCARCE: Final = SECOND
#: So many refusals of one claim in a single row mean that its other takers are nearer to it.
_CROWDED_OUT: Final = 3


class Wishes:
    """What one process wants of others; moments are monotonic."""

    def __init__(self, me: str) -> None:
        """Want nothing."""
        self._me = me
        self._next = 0
        self._crowded_out: str | None = None

    def refused(self, row: str, times: int) -> None:
        """A claim in a row that is everybody's was refused so often."""
        if times >= _CROWDED_OUT:
            self._crowded_out = row

    def next(self, leases: Mapping[str, RowLease], at: int) -> str | None:
        """The row to ask for, by the leases of those that are written to, for a process that has nothing to do."""
        if at < self._next:
            return None
        row, self._crowded_out = self._crowded_out, None
        if row is None:
            return self._of_the_richest(leases, at)
        self._rest(at, _UNFAIR)
        return row

    def _rest(self, at: int, pause: int) -> None:
        """Wish for nothing for a while; wishes that are made at the same moment overwrite each other."""
        self._next = at + int(pause * (0.5 + random.random()))

    def _of_the_richest(self, leases: Mapping[str, RowLease], at: int) -> str | None:
        """A row of whoever has most of them, if we have fewer than our part."""
        owners = Counter(lease.owner for lease in leases.values() if lease.active(at))
        part = owners.total() // len({*owners, self._me})
        mine = owners.pop(self._me, 0)
        richest = owners.most_common(1)
        if not richest or mine >= max(1, part) or richest[0][1] <= mine:
            return None
        owner, most = richest[0]
        self._rest(at, _UNFAIR if most > part else _SCARCE)
        return random.choice([row for row, lease in leases.items() if lease.owner == owner])
