"""The store's time: the offset between its clock and this process's, measured by the write time of a commit.

Ids, leases and scans use the store's time, so that processes whose clocks differ agree on what is due. A wrong offset
makes deliveries late or early; it loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.ids import Nonce
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.layout.rows import TIME
from astyqueue.protocol.steps import Steps, commit, read_column
from astyqueue.store import Batch, Column, Name, Put

#: One cell that all processes overwrite, so that none leaves columns behind; one that finds another's value retries
#: later.
_MARK: Final = Name(0, 0, ids.LEAST, 0)
#: If a commit's write time is less than this (microseconds) after the one before, the store may have raised it above
#: that one instead of reading a clock: the measurement is discarded.
_CREEPING: Final = 1_000


def clock_offset(now: Callable[[], int], known: int, *, nonce: Nonce) -> Steps[int | None]:
    """Microseconds that the store's clock is ahead of `now`; None if this measurement failed.

    The commit happened between two readings of our clock, so the offset is an interval; its point nearest to the
    `known` offset is returned: if the measurement allows it, the offset is unchanged.
    """
    mark = FORMAT + nonce
    before = yield from read_column(TIME, _MARK)
    before_commit = now()
    try:
        yield from commit(Batch(TIME, (Put(_MARK, mark),)), ())
    except OutcomeUnknown:
        return None
    after_commit = now()
    column = yield from read_column(TIME, _MARK, exact=True)
    if column is None or column.value != mark or _pushed_up(column, before):
        return None
    return min(max(known, column.written - after_commit), column.written - before_commit)


def _pushed_up(column: Column, before: Column | None) -> bool:
    """Whether the write time may not be a clock's: a row's write times only rise, even if a clock was set back."""
    return before is not None and column.written - before.written < _CREEPING
