"""A browser of a queue: reads its messages in the order in which they were due first, and takes none of them."""

from __future__ import annotations

from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import Found
from astyqueue.protocol.admin.browse import get_all
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.parallel_reads import in_parallel
from astyqueue.protocol.row.paging import peek_snapshot, scanned_up_to, unlisted_page
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Client, Steps
from astyqueue.units import SECOND

#: Messages of one row and priority that are read together.
_PAGE: Final = 100
#: A browser that follows reads the last ten seconds again each time: a message may land behind others that were due
#: later, because its producer was slow or its clock is behind.
_AGAIN: Final = 10 * SECOND


class MessageBrowser:
    """Reads messages page by page from a position of its own; those that are hidden, leased or delayed come too.

    Each message has the state of the moment at which its page is read. The order is that of ids: of the moments at
    which messages were due first. None comes twice, and one that lands behind the position does not come. With `follow`
    each message comes when it is due, and also if it lands up to ten seconds later.
    """

    def __init__(self, process: Client, ring: Ring, *, begin: Id, follow: bool) -> None:
        """Begin behind this id."""
        self._process = process
        self._rows = ring.rows()
        self._levels = ring.layout.priorities
        self._begin = self._after = begin
        self.follows = follow
        self._lately: set[MessageId] = set()
        self.over = False

    def go_on(self) -> Steps[list[Found]]:
        """The next page in order, which may be empty; then `over` says whether it was the last, if not for ever."""
        now = self._process.now()
        end = ids.first_at(now + 1) if self.follows else ids.GREATEST
        of_rows = yield from in_parallel([self._of_row(row, end, now) for row in self._rows])
        reached = min([last for _, last in of_rows if last is not None], default=end)
        page = sorted({one for some, _ in of_rows for one in some if one.id <= reached}, key=lambda one: one.id)
        new = [one for one in page if one not in self._lately]
        found = yield from get_all(self._process, new)
        self.over = reached == end
        self._move(new, reached, now)
        return [found[one] for one in new if one in found]

    def _move(self, new: list[MessageId], reached: Id, now: int) -> None:
        self._after = reached
        if self.follows:
            self._lately.update(new)
        if self.follows and self.over:
            self._after = max(self._begin, ids.first_at(now - _AGAIN))
            self._lately = {one for one in self._lately if one.id > self._after}

    def _of_row(self, row: str, end: Id, now: int) -> Steps[tuple[list[MessageId], Id | None]]:
        """The next messages of a row, and the id up to which they are all; None if that is the end."""
        snapshot = yield from peek_snapshot(row, self._levels, now)
        hidden = snapshot.loaded_timers.hidden_messages()
        found = [MessageId(row, one.priority, one.id) for _, one in hidden if self._after < one.id < end]
        lasts: list[Id] = []
        for level in range(self._levels):
            some, last = yield from self._unhidden(snapshot, level, end)
            found += some
            lasts += [] if last is None else [last]
        return found, min(lasts, default=None)

    def _unhidden(self, snapshot: RowSnapshot, level: int, end: Id) -> Steps[tuple[list[MessageId], Id | None]]:
        after = max(self._after, scanned_up_to(snapshot, level))
        page = yield from unlisted_page(snapshot, level, after, until=end, limit=_PAGE)
        return [MessageId(snapshot.row, level, id_) for id_ in page.ids], page.last
