"""The activity log of a store: notices that name queues in which something happened. A lost notice costs only delay.

A process puts a notice into the row of the current ten minutes after it changed a queue. Processes in which queues are
idle read that row from their last read on: so one read shows what happened in any number of queues.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.protocol.layout.rows import ACTIVITY_ROW_US, activity_row
from astyqueue.protocol.steps import Client, Steps, read
from astyqueue.store import Batch, Column, Name, Put, Slice
from astyqueue.units import SECOND

#: How long notices are kept: a process that could not read them for longer polls all rows instead.
KEPT: Final = 1_800 * SECOND
#: Their time to live, in seconds: a reader whose clock is ahead must not miss the end of what it may still read.
_TTL: Final = 3_600
_TYPE: Final = 0
#: The number of notices in one read.
_PAGE: Final = 1_000


class Notice(NamedTuple):
    """Something happened in this queue; the id has the moment, by the clock of the process that wrote it."""

    id: Id
    queue: str

    @property
    def moment(self) -> int:
        """When it was written, in microseconds since 1970."""
        return ids.moment(self.id)


def notice_of(queue: str, process: Client) -> Batch:
    """The notice that something happened in a queue now."""
    id_ = process.id_at(process.now())
    row = activity_row(ids.moment(id_))
    return Batch(row, (Put(Name(_TYPE, 0, id_, 0), FORMAT + queue.encode(), ttl=_TTL),))


def read_notices(since: int, until: int) -> Steps[list[Notice]]:
    """The notices from `since` on, in the rows up to the one of `until`."""
    found: list[Notice] = []
    for moment in range(since - since % ACTIVITY_ROW_US, until + 1, ACTIVITY_ROW_US):
        found += yield from _read_row(activity_row(moment), ids.first_at(since))
    return found


def _read_row(row: str, after: Id) -> Steps[list[Notice]]:
    found: list[Notice] = []
    beyond = False
    while True:
        [page] = yield from read(Slice(row, _TYPE, 0, after=after, beyond=beyond, limit=_PAGE))
        found += [Notice(column.name.id, _queue_in(column)) for column in page]
        if len(page) < _PAGE:
            return found
        after, beyond = page[-1].name.id, True


def _queue_in(column: Column) -> str:
    """The queue that a notice names; one that cannot be read names none."""
    try:
        return unframed(column.value).decode(errors="replace")
    except ValueError:
        return ""
