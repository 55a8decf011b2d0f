"""The store's time: how far its clock is from ours, told by the write time of a commit.

Ids, leases and looks go by the store's time, so that processes whose clocks differ agree on what is due. A wrong answer
here delays or hurries; it loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.model.message import FORMAT
from astyqueue.protocol.rows import TIME
from astyqueue.protocol.steps import Steps, commit, read_column
from astyqueue.store import Batch, Column, Name, Put

#: One cell that everybody overwrites: nothing is left behind, and who finds another's value tries again another time.
_MARK: Final = Name(0, 0, ids.LEAST, 0)
#: Two commits that are closer than this may owe their times to each other.
_CREEPING: Final = 1_000


def ahead(now: Callable[[], int], known: int, *, nonce: bytes) -> Steps[int | None]:
    """Microseconds that the store's clock is ahead of `now`, or None if that could not be told this time.

    The commit happened between two looks at our clock, so the answer is an interval; what is returned is its point nearest
    to what was `known`: clocks that may go on as they did are taken to do so.
    """
    mark = FORMAT + nonce
    before = yield from read_column(TIME, _MARK)
    asked = now()
    try:
        yield from commit(Batch(TIME, (Put(_MARK, mark),)), ())
    except OutcomeUnknown:
        return None
    answered = now()
    column = yield from read_column(TIME, _MARK, exact=True)
    if column is None or column.value != mark or _pushed_up(column, before):
        return None
    return min(max(known, column.written - answered), column.written - asked)


def _pushed_up(column: Column, before: Column | None) -> bool:
    """Whether a write time may be no clock's: commits of a row never go back in time, so after a clock did they creep on."""
    return before is not None and column.written - before.written < _CREEPING
