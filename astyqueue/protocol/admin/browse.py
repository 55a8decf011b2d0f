"""Reading messages without claiming them: one by its id, the next ones, all in order, and counts by state.

Other processes go on meanwhile, so the results are of one moment or of several; never base a change on them. A row with
a header or a timer that cannot be read raises Undecodable, as a claim would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import GREATEST, LEAST, Id
from astyqueue.model.envelope import MessageId, queue_of
from astyqueue.model.schedule import Origin, Schedule
from astyqueue.model.views import Content, Counts, Found, Include, Standing
from astyqueue.protocol.layout.columns import (
    Entry,
    Mark,
    State,
    Timer,
    Type,
    dead_name,
    decode_dead,
    message_name,
)
from astyqueue.protocol.layout.rows import Ring, key_row
from astyqueue.protocol.layout.schedule_column import message_of, readable_schedule, trigger_name
from astyqueue.protocol.layout.unique_key import KeyOwner, decode_owner, key_name
from astyqueue.protocol.parallel_reads import in_parallel
from astyqueue.protocol.row.bounded_reads import READ_BUDGET, MessageSizes
from astyqueue.protocol.row.paging import PAGE_SIZE, peek_snapshot, scanned_up_to, unlisted_page
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.key_index import delete_key_hints, read_key_hints
from astyqueue.protocol.sending.key_state import next_run_of
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Column, Named, Slice
from astyqueue.units import SECOND

#: Messages read together: bodies may be long.
_BODIES: Final = 50
#: Messages of one row and priority that are read together.
_BROWSED: Final = 100
#: A browser that follows reads the last ten seconds again each time: a message may land behind others that were due
#: later, because its producer was slow or its clock is behind.
_AGAIN: Final = 10 * SECOND
#: The state of a message that a timer hides, by the timer's.
STANDINGS: Final = {
    State.LEASED: Standing.IN_FLIGHT,
    State.BACKING_OFF: Standing.BACKING_OFF,
    State.SNOOZED: Standing.SNOOZED,
    State.PARKED: Standing.PARKED,
    State.BLOCKED: Standing.BLOCKED,
}


class _Place(NamedTuple):
    """The state of a message; `until`: when it may be delivered, if not now."""

    id: MessageId
    standing: Standing
    due: int
    until: int | None = None
    spent: int = 0
    holder: str = ""
    reason: str = ""

    @property
    def delivery_order(self) -> tuple[int, int, int, Id]:
        """The sort key of the order of delivery: due by priority, so the blocked ones, others by when they are due."""
        blocked = self.standing is Standing.BLOCKED
        return self.until or int(blocked), -self.id.priority, self.due, self.id.id


def get(process: Client, message: MessageId) -> Steps[Found | None]:
    """A message and its state; None if it does not exist."""
    found = yield from get_all(process, [message])
    return found.get(message)


def get_all(process: Client, messages: Iterable[MessageId]) -> Steps[dict[MessageId, Found]]:
    """The messages that exist, and their states; the timers are read once for each row."""
    now = process.now()
    by_row: dict[str, list[MessageId]] = {}
    for message in messages:
        by_row.setdefault(message.row, []).append(message)
    of_rows = yield from in_parallel(_standing(row, some, now) for row, some in by_row.items())
    return {one.id: one for found in of_rows for one in found}


def _standing(row: str, messages: Sequence[MessageId], now: int) -> Steps[list[Found]]:
    snapshot = yield from peek_snapshot(row, 1, now)
    hidden = {place.id: place for place in _hidden(snapshot, now)}
    found: list[Found] = []
    for first in range(0, len(messages), _BODIES):
        there = yield from contents(messages[first : first + _BODIES])
        names = tuple(dead_name(one.priority, one.id) for one in there)
        columns = (yield from read_one(Named(row, names))) if names else []
        places = (_dead_place(MessageId(row, column.name.priority, column.name.id), column.value) for column in columns)
        dead = {place.id: place for place in places}
        for id_, content in there.items():
            found.append(_found(dead.get(id_) or hidden.get(id_) or _unhidden(id_, now), content))
    return found


def peek(
    process: Client, rows: Sequence[str], *, levels: int, limit: int, include: Include = Include.DUE
) -> Steps[list[Found]]:
    """Up to `limit` messages in the order in which they would be delivered; none is claimed."""
    now = process.now()
    of_rows = yield from in_parallel(_places(row, levels, now=now, include=include, limit=limit) for row in rows)
    places = sorted(chain.from_iterable(of_rows), key=lambda place: place.delivery_order)[:limit]
    found: dict[MessageId, Content] = {}
    for row in {place.id.row for place in places}:
        found |= yield from contents([place.id for place in places if place.id.row == row])
    return [_found(place, found[place.id]) for place in places if place.id in found]


def _places(row: str, levels: int, *, now: int, include: Include, limit: int) -> Steps[list[_Place]]:
    """The states of one row's messages, at least of the first `limit` in order of delivery."""
    snapshot = yield from peek_snapshot(row, levels, now)
    places = [place for place in _hidden(snapshot, now) if include in (Include.ALL, _included(place))]
    for level in range(levels):
        places += yield from _unhidden_places(snapshot, level, include, now=now, limit=limit)
    return places


class Walk:
    """All messages of one row, page by page: those that timers hide, then those that nothing lists, then dead letters.

    The pages are read at different moments: each message has the state of its page's moment. None is shown twice; one
    that is redriven or released meanwhile may be missed. So that none is shown twice, a walk remembers the id of each
    that it has shown, about 100 bytes: 100 MB for a row of a million messages.
    """

    def __init__(self, process: Client, row: str, levels: int) -> None:
        """Begin with the first page; `levels`: the number of the queue's priorities."""
        self._now = process.now()
        self._row = row
        self._levels = levels
        self._snapshot: RowSnapshot | None = None
        self._hidden: list[_Place] = []
        self._left = [(kind, level) for kind in (Type.MESSAGE, Type.DEAD) for level in range(levels)]
        self._after: Id | None = None
        self._shown: set[Id] = set()

    def page(self) -> Steps[list[Found] | None]:
        """The next page of messages, which may be empty; None at the end."""
        if self._snapshot is None:
            self._snapshot = yield from peek_snapshot(self._row, self._levels, self._now)
            self._hidden = list(_hidden(self._snapshot, self._now))
        if self._hidden:
            places, self._hidden = self._hidden[:_BODIES], self._hidden[_BODIES:]
            return (yield from self._new_found(places))
        if not self._left:
            return None
        kind, level = self._left[0]
        places = yield from (self._unhidden(self._snapshot, level) if kind is Type.MESSAGE else self._dead(level))
        if self._after is None:
            self._left.pop(0)
        return (yield from self._new_found(places))

    def _unhidden(self, snapshot: RowSnapshot, level: int) -> Steps[list[_Place]]:
        page = yield from unlisted_page(
            snapshot, level, scanned_up_to(snapshot, level) if self._after is None else self._after
        )
        self._after = page.last
        return [_unhidden(MessageId(self._row, level, id_), self._now) for id_ in page.ids]

    def _dead(self, level: int) -> Steps[list[_Place]]:
        after = LEAST if self._after is None else self._after
        columns = yield from read_one(Slice(self._row, Type.DEAD, level, after=after, beyond=True, limit=PAGE_SIZE))
        self._after = columns[-1].name.id if len(columns) == PAGE_SIZE else None
        return [_dead_place(MessageId(self._row, level, column.name.id), column.value) for column in columns]

    def _new_found(self, places: list[_Place]) -> Steps[list[Found]]:
        """Those that were not shown yet and still exist."""
        new = [place for place in places if place.id.id not in self._shown]
        self._shown.update(place.id.id for place in new)
        held = yield from contents([place.id for place in new])
        return [_found(place, held[place.id]) for place in new if place.id in held]


def counts(process: Client, rows: Sequence[str], *, levels: int) -> Steps[Counts]:
    """The numbers of messages of these rows by state; reads the names of all their messages."""
    now = process.now()
    found = yield from in_parallel(_counts(row, levels, now) for row in rows)
    return Counts.of_rows(dict(zip(rows, found, strict=True)))


def contents(messages: Sequence[MessageId]) -> Steps[dict[MessageId, Content]]:
    """The contents of those messages that exist, all of one row; read a few at a time, as bodies may be long."""
    found: dict[MessageId, Content] = {}
    sizes, left = MessageSizes(), messages
    while left:
        limit = min(_BODIES, max(1, sizes.within(READ_BUDGET)))
        part, left = left[:limit], left[limit:]
        row = part[0].row
        columns = yield from read_one(Named(row, tuple(message_name(one.priority, one.id) for one in part)))
        if columns:
            sizes.saw(sum(len(column.value) for column in columns), len(columns))
        found |= {MessageId(row, column.name.priority, column.name.id): Content.of(column.value) for column in columns}
    return found


def _counts(row: str, levels: int, now: int) -> Steps[Counts]:
    snapshot = yield from peek_snapshot(row, levels, now)
    tally = Counter(place.standing for place in _hidden(snapshot, now))
    bound = ids.first_at(now + 1)
    for level in range(levels):
        after: Id | None = scanned_up_to(snapshot, level)
        while after is not None:
            page = yield from unlisted_page(snapshot, level, after)
            due = sum(id_ < bound for id_ in page.ids)
            tally.update({Standing.WAITING: due, Standing.DELAYED: len(page.ids) - due})
            after = page.last
        tally[Standing.DEAD] += yield from _dead(row, level)
    return Counts(*(tally[standing] for standing in Standing))


def _dead(row: str, level: int) -> Steps[int]:
    count, after = 0, LEAST
    while True:
        page = yield from read_one(
            Slice(row, Type.DEAD, level, after=after, beyond=True, limit=PAGE_SIZE, values=False)
        )
        count += len(page)
        if len(page) < PAGE_SIZE:
            return count
        after = page[-1].name.id


def _unhidden_places(
    snapshot: RowSnapshot, level: int, include: Include, *, now: int, limit: int
) -> Steps[list[_Place]]:
    """The next messages of one priority that no timer hides: those due, those for the future, or both."""
    if include is Include.HIDDEN:
        return []
    present = ids.first_at(now + 1)
    passed = scanned_up_to(snapshot, level)
    after: Id | None = passed
    if include is Include.FUTURE:
        after = max(passed, present)
    until = present if include is Include.DUE else GREATEST
    found: list[Id] = []
    while after is not None and len(found) < limit:
        page = yield from unlisted_page(snapshot, level, after, until=until)
        found += page.ids
        after = page.last
    return [_unhidden(MessageId(snapshot.row, level, id_), now) for id_ in found[:limit]]


def _hidden(snapshot: RowSnapshot, now: int) -> Iterator[_Place]:
    """The states of all messages that a timer lists; a blocked one whose group is free may be claimed, so it waits."""
    free = {blocked.entry.id for blocked in snapshot.loaded_timers.groups.free()}
    for timer, one in snapshot.loaded_timers.hidden_messages():
        place = _listed(MessageId(snapshot.row, one.priority, one.id), timer, one, now=now)
        yield place._replace(standing=Standing.WAITING) if one.id in free else place


def _listed(id_: MessageId, timer: Timer, one: Entry | Mark, *, now: int) -> _Place:
    """The state of a message by its timer; one with a mark was given back early and is not leased."""
    due = one.due if isinstance(one, Mark) else timer.due
    if timer.state == State.BLOCKED:
        return _Place(id=id_, standing=Standing.BLOCKED, due=id_.moment, spent=one.spent)
    if due <= now:
        return _Place(id_, Standing.WAITING, due, None, one.spent)
    standing = Standing.BACKING_OFF if isinstance(one, Mark) else STANDINGS[State(timer.state)]
    holder = timer.holder if standing is Standing.IN_FLIGHT else ""
    return _Place(id=id_, standing=standing, due=due, until=due, spent=one.spent, holder=holder)


def _unhidden(message: MessageId, now: int) -> _Place:
    if message.moment <= now:
        return _Place(message, Standing.WAITING, message.moment)
    return _Place(message, Standing.DELAYED, message.moment, message.moment)


def _dead_place(message: MessageId, value: bytes) -> _Place:
    death = decode_dead(value)
    return _Place(message, Standing.DEAD, death.at, spent=death.attempts, reason=death.reason)


def _included(place: _Place) -> Include:
    return Include.DUE if place.standing is Standing.WAITING else Include.HIDDEN


def _found(place: _Place, content: Content) -> Found:
    return Found(
        place.id,
        content,
        standing=place.standing,
        spent=place.spent,
        hidden_until=place.until,
        holder=place.holder,
        reason=place.reason,
    )


def found_by_key(process: Client, home: str, key: str) -> Steps[list[Found]]:
    """The messages that have this key, in the order in which they are due; `home`: the row of the key if it is unique.

    For a repeated message: its last run if that exists, and the next run if the last one has ended.
    """
    columns = {
        column.name.type: column for column in (yield from read_one(Named(home, (key_name(key), trigger_name(key)))))
    }
    owner = decode_owner(home, columns[Type.KEY].value) if Type.KEY in columns else None
    schedule = _own_schedule(home, key, columns.get(Type.TRIGGER))
    queue = queue_of(home)
    hints = yield from read_key_hints(queue, key)
    single = [owner.message(home)] if isinstance(owner, KeyOwner) else []
    runs = [MessageId(home, *schedule.run)] if schedule and schedule.run else []
    found = yield from get_all(process, dict.fromkeys([*single, *hints, *runs]))
    stale = [hint for message, hint in hints.items() if message not in found]
    yield from delete_key_hints(process, key_row(queue, key), stale)
    messages = [one for one in found.values() if one.key == key]
    if schedule and not any(one.id in runs and one.standing is not Standing.DEAD for one in messages):
        messages.append(_to_come(home, schedule))
    return sorted(messages, key=lambda one: one.id.id)


def _own_schedule(home: str, key: str, column: Column | None) -> Schedule | None:
    """The schedule that repeats the message of this key; None if there is none or it cannot be read."""
    schedule = readable_schedule(home, column.value) if column else None
    return schedule if schedule and schedule.name == key and schedule.origin is Origin.MESSAGE else None


def _to_come(home: str, schedule: Schedule) -> Found:
    """The next run: it has its id already, but is not stored yet."""
    run = next_run_of(schedule)
    occurrence = ids.moment(run.id)
    content = Content.of(message_of(schedule, run, occurrence=occurrence, now=occurrence).value)
    return Found(MessageId(home, *run), content, Standing.DELAYED, hidden_until=schedule.wakes)


class MessageBrowser:
    """Reads messages page by page from a position of its own; those that are hidden, leased or delayed come too.

    Each message has the state of the moment at which its page is read. The order is that of ids: of the moments at
    which messages were due first. None comes twice, and one that lands behind the position does not come. With `follow`
    each message comes when it is due, and also if it lands up to ten seconds later.
    """

    def __init__(self, process: Client, ring: Ring, *, begin: Id, follow: bool) -> None:
        """Begin beyond this id."""
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
        page = yield from unlisted_page(snapshot, level, after, until=end, limit=_BROWSED)
        return [MessageId(snapshot.row, level, id_) for id_ in page.ids], page.last
