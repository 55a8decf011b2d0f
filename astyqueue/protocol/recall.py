"""Reading the history of a queue in the order of time: of a message, of a key, or all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import MessageId
from astyqueue.protocol.history import DAY, EVENT, OF_KEY, OF_MESSAGE, ORDER, decode_event, parts
from astyqueue.protocol.rows import Ring, history_row
from astyqueue.protocol.steps import Steps, read
from astyqueue.store import HISTORY, Column, Name, Named, Slice

#: Rows in which a message or a key is looked for together, and columns of one bucket that are read together.
_ROWS: Final = 32
_PAGE: Final = 500
#: Messages and days that are looked up in one request.
_LOOKED_UP: Final = 100

Found = tuple[str, Column]


class Asked(NamedTuple):
    """Which events are meant: of a message, of a key, or of all; from `since` up to `until` (microseconds); of these kinds, or any."""

    since: int
    until: int
    message: MessageId | None = None
    key: str | None = None
    kinds: frozenset[Kind] = frozenset()

    def fits(self, event: Event) -> bool:
        """Whether an event is meant, of those in this time."""
        return (
            (self.message is None or event.message == self.message)
            and (self.key is None or event.key == self.key)
            and (not self.kinds or event.kind in self.kinds)
        )


class Recall:
    """Goes through a stretch of time from its beginning; `over` once it came to the end."""

    def __init__(self, ring: Ring, asked: Asked) -> None:
        """Nothing is read yet."""
        self._ring = ring
        self._asked = asked
        self._now_at = ids.first_at(asked.since)
        self._page = _PAGE
        self._rows = _ROWS

    @property
    def over(self) -> bool:
        """Whether there is nothing left to read."""
        return self._now_at >= ids.first_at(self._asked.until)

    def go_on(self) -> Steps[list[Event]]:
        """The next events in order, perhaps none although there are more later."""
        if self._asked.message is None and self._asked.key is None:
            found = yield from self._all()
        else:
            found = yield from self._listed()
        events = (decode_event(row, column) for row, column in found)
        return sorted(filter(self._asked.fits, events), key=_order)

    def _all(self) -> Steps[list[Found]]:
        """A page of each bucket of one day, as far as all of them reach."""
        since = ids.moment(self._now_at)
        end = min((since // DAY + 1) * DAY, self._asked.until)
        buckets = [part._replace(after=max(part.after, self._now_at)) for part in parts(self._ring, since, end)]
        pages = yield from read(*[part.slice(_PAGE) for part in buckets])
        reached = min((page[-1].name.id for page in pages if len(page) == _PAGE), default=ids.first_at(end))
        self._now_at = reached  # the columns of one id may have been parted, so it is read again
        return [(part.row, column) for part, page in zip(buckets, pages, strict=True) for column in page if column.name.id < reached]

    def _listed(self) -> Steps[list[Found]]:
        """The events of some days that are listed under a message or a key: where they are, then what they say."""
        kind, text = (OF_KEY, self._asked.key or "") if self._asked.message is None else (OF_MESSAGE, str(self._asked.message))
        shards = range(self._ring.layout.concurrency_shards) if kind == OF_KEY else [self._ring.shard_of_key(text)]
        since = ids.moment(self._now_at)
        end = min((since // DAY + max(1, self._rows // len(shards))) * DAY, self._asked.until)
        days = range(since // DAY * DAY, end, DAY)
        rows = [history_row(self._ring.queue, day, shard) for day in days for shard in shards]
        bounds = ids.listed(text, since), ids.listed(text, end)
        pages = yield from read(*[Slice(row, kind, 0, *bounds, limit=self._page, table=HISTORY) for row in rows])
        named = self._named(rows, pages, (since, end))
        columns = (yield from read(*[Named(row, names, table=HISTORY) for row, names in named.items()])) if named else []
        return [(row, column) for row, some in zip(named, columns, strict=True) for column in some]

    def _named(self, rows: list[str], pages: list[list[Column]], bounds: tuple[int, int]) -> dict[str, tuple[Name, ...]]:
        """The events to be read now, by row: those before the moment to which all pages reach.

        Where there is more than a page, the days are gone through one by one; more than that of one moment takes a larger page.
        """
        since, end = bounds
        reached = min((ids.listed_moment(page[-1].name.id) for page in pages if len(page) == self._page), default=end)
        self._now_at = ids.first_at(reached)
        if reached < end:
            self._rows = 1
            self._page *= 2 if reached == since else 1
        names = {row: filter(None, map(_event_of, page)) for row, page in zip(rows, pages, strict=True)}
        meant = {row: tuple(name for name in some if name.id < self._now_at) for row, some in names.items()}
        return {row: names for row, names in meant.items() if names}


def told_sent(ring: Ring, messages: Iterable[MessageId], *, since: int, until: int) -> Steps[set[MessageId]]:
    """Those of these messages of which an event from `since` up to `until` (microseconds) tells that they were sent."""
    days = range(since // DAY * DAY, until, DAY)
    wanted = [(one, _sent_listed(ring, one, day)) for one in messages for day in days]
    told: set[MessageId] = set()
    for first in range(0, len(wanted), _LOOKED_UP):
        some = wanted[first : first + _LOOKED_UP]
        pages = yield from read(*[slice_ for _, slice_ in some])
        told |= {one for (one, _), page in zip(some, pages, strict=True) for column in page if column.name.state == ORDER[Kind.SENT]}
    return told


def _sent_listed(ring: Ring, message: MessageId, day: int) -> Slice:
    """Where the events of a message on one day are listed."""
    text = str(message)
    row = history_row(ring.queue, day, ring.shard_of_key(text))
    return Slice(row, OF_MESSAGE, 0, ids.listed(text, day), ids.listed(text, day + DAY), values=False, table=HISTORY)


def _order(event: Event) -> tuple[int, int, int, int]:
    return event.at, event.attempt, ORDER[event.kind], event.slot or 0


def _event_of(listed: Column) -> Name | None:
    """The column of the event that is listed here; None if that cannot be read, and the event is found without it among all."""
    id_ = listed.value[1:]
    return Name(EVENT, 0, id_, listed.name.state) if len(id_) == len(ids.LEAST) and id_ <= ids.GREATEST else None
