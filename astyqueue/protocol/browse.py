"""Looking at messages without taking them: one by its id, those that come next, and how many stand where.

Others go on meanwhile, so the answer is of a moment, or of several; nothing here is a reason to change anything. A row
with a header or a timer that cannot be read raises Undecodable, as a claim would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import GREATEST, LEAST, Id
from astyqueue.model.message import MessageId
from astyqueue.model.views import Content, Counts, Found, Include, Standing
from astyqueue.protocol.columns import Entry, Mark, State, Timer, Type, dead_name, decode_dead, message_name
from astyqueue.protocol.pages import PAGE, glimpse, listed_by, looked_past, unlisted
from astyqueue.protocol.picking import BUDGET, Sizes
from astyqueue.protocol.process import Process
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.protocol.together import together
from astyqueue.store import Named, Slice

#: Messages read together: bodies may be long.
_BODIES: Final = 50
_STANDINGS: Final = {
    State.LEASED: Standing.IN_FLIGHT,
    State.BACKING_OFF: Standing.BACKING_OFF,
    State.SNOOZED: Standing.SNOOZED,
    State.PARKED: Standing.PARKED,
}


class _Place(NamedTuple):
    """Where a message stands; `until` is when it may be handed out, if not now."""

    id: MessageId
    standing: Standing
    due: int
    until: int | None = None
    spent: int = 0
    holder: str = ""
    reason: str = ""

    @property
    def turn(self) -> tuple[int, int, int, Id]:
        """Messages sort by it as they would be handed out: what may go now by priority, then the rest as it falls due."""
        return self.until or 0, -self.id.priority, self.due, self.id.id


def get(process: Process, message: MessageId) -> Steps[Found | None]:
    """A message and where it stands, if it is there."""
    found = yield from get_all(process, [message])
    return found.get(message)


def get_all(process: Process, messages: Iterable[MessageId]) -> Steps[dict[MessageId, Found]]:
    """Those of these messages that are there, and where each stands; what hides messages is read once for each row."""
    now = process.now()
    by_row: dict[str, list[MessageId]] = {}
    for message in messages:
        by_row.setdefault(message.row, []).append(message)
    of_rows = yield from together(_standing(row, some, now) for row, some in by_row.items())
    return {one.id: one for found in of_rows for one in found}


def _standing(row: str, messages: Sequence[MessageId], now: int) -> Steps[list[Found]]:
    sight = yield from glimpse(row, 1, now)
    hidden = {place.id: place for place in _hidden(sight, now)}
    found: list[Found] = []
    for first in range(0, len(messages), _BODIES):
        there = yield from contents(messages[first : first + _BODIES])
        graves = tuple(dead_name(one.priority, one.id) for one in there)
        dead = (yield from read_one(Named(row, graves))) if graves else []
        buried = {one.id: one for one in (_buried(MessageId(row, grave.name.priority, grave.name.id), grave.value) for grave in dead)}
        found += [_found(buried.get(id_) or hidden.get(id_) or _unhidden(id_, now), content) for id_, content in there.items()]
    return found


def peek(process: Process, rows: Sequence[str], *, levels: int, limit: int, include: Include = Include.DUE) -> Steps[list[Found]]:
    """Up to `limit` messages in the order in which they would be handed out; none of them is taken."""
    now = process.now()
    of_rows = yield from together(_places(row, levels, now=now, include=include, limit=limit) for row in rows)
    places = sorted(chain.from_iterable(of_rows), key=lambda place: place.turn)[:limit]
    found: dict[MessageId, Content] = {}
    for row in {place.id.row for place in places}:
        found |= yield from contents([place.id for place in places if place.id.row == row])
    return [_found(place, found[place.id]) for place in places if place.id in found]


def _places(row: str, levels: int, *, now: int, include: Include, limit: int) -> Steps[list[_Place]]:
    """Where the messages of one row stand, the first of them at least."""
    sight = yield from glimpse(row, levels, now)
    places = [place for place in _hidden(sight, now) if include in (Include.ALL, _included(place))]
    for level in range(levels):
        places += yield from _unhidden_places(sight, level, include, now=now, limit=limit)
    return places


class Walk:
    """All messages of one row, a page at a time: those that timers hide, then those that nothing lists, then dead letters.

    It is no snapshot: a message that others move meanwhile is shown as it stood when the walk came by. None is shown twice; one
    that is redriven or released just then may be missed.
    """

    def __init__(self, process: Process, row: str, levels: int) -> None:
        """Begin at the beginning; `levels` is how many priorities the queue has."""
        self._now = process.now()
        self._row = row
        self._levels = levels
        self._sight: Sight | None = None
        self._hidden: list[_Place] = []
        self._left = [(kind, level) for kind in (Type.MESSAGE, Type.DEAD) for level in range(levels)]
        self._after: Id | None = None
        self._shown: set[Id] = set()

    def page(self) -> Steps[list[Found] | None]:
        """The next messages; a page may be empty, and None is the end."""
        if self._sight is None:
            self._sight = yield from glimpse(self._row, self._levels, self._now)
            self._hidden = list(_hidden(self._sight, self._now))
        if self._hidden:
            places, self._hidden = self._hidden[:_BODIES], self._hidden[_BODIES:]
            return (yield from self._told(places))
        if not self._left:
            return None
        kind, level = self._left[0]
        places = yield from (self._unhidden(self._sight, level) if kind is Type.MESSAGE else self._dead(level))
        if self._after is None:
            self._left.pop(0)
        return (yield from self._told(places))

    def _unhidden(self, sight: Sight, level: int) -> Steps[list[_Place]]:
        page = yield from unlisted(sight, level, looked_past(sight, level) if self._after is None else self._after)
        self._after = page.last
        return [_unhidden(MessageId(self._row, level, id_), self._now) for id_ in page.ids]

    def _dead(self, level: int) -> Steps[list[_Place]]:
        after = LEAST if self._after is None else self._after
        columns = yield from read_one(Slice(self._row, Type.DEAD, level, after=after, beyond=True, limit=PAGE))
        self._after = columns[-1].name.id if len(columns) == PAGE else None
        return [_buried(MessageId(self._row, level, column.name.id), column.value) for column in columns]

    def _told(self, places: list[_Place]) -> Steps[list[Found]]:
        """Those that were not shown yet and are there; a message is in one place at a time, so the last to tell of it is right."""
        new = [place for place in places if place.id.id not in self._shown]
        self._shown.update(place.id.id for place in new)
        held = yield from contents([place.id for place in new])
        return [_found(place, held[place.id]) for place in new if place.id in held]


def counts(process: Process, rows: Sequence[str], *, levels: int) -> Steps[Counts]:
    """How many messages of these rows stand where; costs the messages that are alive, by name only."""
    now = process.now()
    found = yield from together(_counts(row, levels, now) for row in rows)
    return Counts.of_rows(dict(zip(rows, found, strict=True)))


def contents(messages: Sequence[MessageId]) -> Steps[dict[MessageId, Content]]:
    """What these messages of one row hold, those that are there; a few at a time, for bodies may be long."""
    found: dict[MessageId, Content] = {}
    sizes, left = Sizes(), messages
    while left:
        limit = min(_BODIES, max(1, sizes.within(BUDGET)))
        part, left = left[:limit], left[limit:]
        row = part[0].row
        columns = yield from read_one(Named(row, tuple(message_name(one.priority, one.id) for one in part)))
        if columns:
            sizes.saw(sum(len(column.value) for column in columns), len(columns))
        found |= {MessageId(row, column.name.priority, column.name.id): Content.of(column.value) for column in columns}
    return found


def _counts(row: str, levels: int, now: int) -> Steps[Counts]:
    sight = yield from glimpse(row, levels, now)
    tally = Counter(place.standing for place in _hidden(sight, now))
    bound = ids.first_at(now + 1)
    for level in range(levels):
        after: Id | None = looked_past(sight, level)
        while after is not None:
            page = yield from unlisted(sight, level, after)
            due = sum(id_ < bound for id_ in page.ids)
            tally.update({Standing.WAITING: due, Standing.DELAYED: len(page.ids) - due})
            after = page.last
        tally[Standing.DEAD] += yield from _dead(row, level)
    return Counts(*(tally[standing] for standing in Standing))


def _dead(row: str, level: int) -> Steps[int]:
    count, after = 0, LEAST
    while True:
        page = yield from read_one(Slice(row, Type.DEAD, level, after=after, beyond=True, limit=PAGE, values=False))
        count += len(page)
        if len(page) < PAGE:
            return count
        after = page[-1].name.id


def _unhidden_places(sight: Sight, level: int, include: Include, *, now: int, limit: int) -> Steps[list[_Place]]:
    """The next messages of one priority that no timer hides: those due, those for the future, or both."""
    if include is Include.HIDDEN:
        return []
    present = ids.first_at(now + 1)
    passed = looked_past(sight, level)
    after: Id | None = passed
    if include is Include.FUTURE:
        after = max(passed, present)
    until = present if include is Include.DUE else GREATEST
    found: list[Id] = []
    while after is not None and len(found) < limit:
        page = yield from unlisted(sight, level, after, until=until)
        found += page.ids
        after = page.last
    return [_unhidden(MessageId(sight.row, level, id_), now) for id_ in found[:limit]]


def _hidden(sight: Sight, now: int) -> Iterator[_Place]:
    """Where each message stands that a timer lists."""
    for timer in (sight.timers or {}).values():
        for one in listed_by(timer):
            yield _listed(MessageId(sight.row, one.priority, one.id), timer, one, now=now)


def _listed(id_: MessageId, timer: Timer, one: Entry | Mark, *, now: int) -> _Place:
    """Where a message stands by its timer. A mark is what its holder gave back early; nobody's lease is on it."""
    due = one.due if isinstance(one, Mark) else timer.due
    if due <= now:
        return _Place(id_, Standing.WAITING, due, None, one.spent)
    standing = Standing.BACKING_OFF if isinstance(one, Mark) else _STANDINGS[State(timer.state)]
    holder = timer.holder if standing is Standing.IN_FLIGHT else ""
    return _Place(id_, standing, due, due, one.spent, holder)


def _unhidden(message: MessageId, now: int) -> _Place:
    if message.moment <= now:
        return _Place(message, Standing.WAITING, message.moment)
    return _Place(message, Standing.DELAYED, message.moment, message.moment)


def _buried(message: MessageId, value: bytes) -> _Place:
    death = decode_dead(value)
    return _Place(message, Standing.DEAD, death.at, spent=death.attempts, reason=death.reason)


def _included(place: _Place) -> Include:
    return Include.DUE if place.standing is Standing.WAITING else Include.HIDDEN


def _found(place: _Place, content: Content) -> Found:
    return Found(place.id, content, place.standing, place.spent, place.until, place.holder, place.reason)
