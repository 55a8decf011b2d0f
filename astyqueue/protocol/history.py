"""The history of a queue: an append-only table of events, which expire after a configured time.

A row has the events of one day (UTC) and one bucket, ordered by time; the message determines the bucket. An event's
column name is derived from its facts (time, kind, and message and attempt, or schedule and occurrence), which do not
change: any process that writes it again overwrites it. Two small columns list the event under its message and its key,
so that the history of one message is found without reading all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.ids import Id
from astyqueue.model.envelope import FORMAT, MessageId, queue_of, unframed
from astyqueue.model.event import FLAT, Event, Kind
from astyqueue.protocol.layout.rows import Ring, history_row
from astyqueue.protocol.steps import BATCH_BYTES, BATCH_COLUMNS, Send, Steps, read, read_one
from astyqueue.store import HISTORY, Batch, Column, Name, Named, Put, Slice
from astyqueue.units import SECOND

DAY: Final = 86_400 * SECOND
#: Longest time for which events are kept (microseconds), whatever a queue's setting.
LONGEST: Final = 400 * DAY
#: The kinds of columns: events, and the lists of a message's and a key's events.
EVENT: Final = 0
OF_MESSAGE: Final = 1
OF_KEY: Final = 2
#: Columns and bytes of one batch, and batches in one request.
_COLUMNS: Final = BATCH_COLUMNS
_BYTES: Final = BATCH_BYTES // 2
_TOGETHER: Final = 8
#: Least number of events in one read: more than there are kinds.
_LEAST: Final = 32
#: Attempts of a write with unknown outcome before OutcomeUnknown is raised.
_TRIES: Final = 3
#: Characters kept of a traceback (its end, which has the error) and of a reason.
TRACE: Final = 16 * 1024
REASON: Final = 1024
#: Distance between the list numbers of a message's attempts (30 bits), so that consecutive ids do not collide.
_APART: Final = 0x2545F491

#: The number of each kind in names, which also orders the events of one attempt and moment.
ORDER: Final = {kind: number for number, kind in enumerate(Kind)}
_KINDS: Final = dict(enumerate(Kind))
#: Fields of an event that come from its column's name or row, or are the raw value.
_ELSEWHERE: Final = frozenset({"at", "kind", "queue", "message", "raw"})
_FIELDS: Final = frozenset(Event.__dataclass_fields__) - _ELSEWHERE
#: Fields in the value of an event that this version writes.
_WRITTEN: Final = _FIELDS | {"message"}
#: Rows that one read searches for a message or a key, and columns of one bucket in one read.
_ROWS: Final = 32
_PAGE: Final = 500
#: Messages and days that are looked up in one request.
_LOOKED_UP: Final = 100


class HistorySlice(NamedTuple):
    """A slice of one row of history: the events from the id `after` (inclusive) up to `until` (exclusive)."""

    row: str
    after: Id
    until: Id

    def slice(self, limit: int | None = None) -> Slice:
        """The read of its first `limit` events; None: of all."""
        return Slice(self.row, EVENT, 0, after=self.after, until=self.until, limit=limit, table=HISTORY)


def history_slices(ring: Ring, since: int, until: int) -> list[HistorySlice]:
    """The slices of all events of a queue from `since` up to `until` (microseconds): one per day and bucket, by time.

    They are independent, so they may be read in parallel. An event is written some time after its moment: usually less
    than a second, or after an outage of the store as long as that took.
    """
    return [
        HistorySlice(
            history_row(ring.queue, day, bucket), ids.first_at(max(day, since)), ids.first_at(min(day + DAY, until))
        )
        for day in _days(since, until)
        for bucket in range(ring.layout.concurrency_shards)
    ]


def read_history_slice(part: HistorySlice, limit: int) -> Steps[tuple[list[Event], HistorySlice | None]]:
    """About the first `limit` events of a slice, and the rest of the slice; None at its end."""
    page = max(limit, _LEAST)
    columns = yield from read_one(part.slice(page))
    if len(columns) < page:
        return [decode_event(part.row, column) for column in columns], None
    last = columns[-1].name.id  # other columns of this id (one per kind) may be on the next page
    return [decode_event(part.row, column) for column in columns if column.name.id != last], part._replace(after=last)


def decode_event(row: str, column: Column) -> Event:
    """The event in a column of a row of history; if it cannot be read, its time and kind, and the `reason`.

    `raw` has the whole value if this version does not understand all of it.
    """
    at, kind, queue = ids.moment(column.name.id), _KINDS.get(column.name.state, Kind.UNKNOWN), queue_of(row)
    try:
        content = unframed(column.value)
    except ValueError as error:
        return Event(at, Kind.UNKNOWN, queue, reason=f"this event cannot be read: {error}", raw=_raw(column))
    try:
        written: dict[str, Any] = from_json(content)
        message = MessageId.parse(written["message"]) if written.get("message") else None
        known = {name: value for name, value in written.items() if name in _FIELDS}
        if wrong := [name for name, value in known.items() if not _fits(name, value)]:
            _refuse(wrong)
        understood = kind is not Kind.UNKNOWN and written.keys() <= _WRITTEN
        return Event(at, kind, queue, message, **known, raw="" if understood else _raw(column))
    except (ValueError, TypeError, AttributeError) as error:
        return Event(at, kind, queue, reason=f"this event cannot be read: {error}", raw=_raw(column))


def _raw(column: Column) -> str:
    """The number of an event's kind and its value, with bytes that are not UTF-8 escaped."""
    return f"{column.name.state} {column.value.removeprefix(FORMAT).decode('utf-8', 'backslashreplace')}"


def _fits(name: str, value: object) -> bool:
    """Whether a field of an event may have this value."""
    match FLAT[name]:
        case "instant":
            return ids.is_moment(value)
        case "number":
            return type(value) is int and value >= 0
        case "flag":
            return type(value) is bool
    return type(value) is str


def _refuse(wrong: list[str]) -> None:
    message = f"invalid {', '.join(sorted(wrong))}: of another type, or out of range"
    raise ValueError(message)


def encode_event(event: Event) -> bytes:
    """The value of an event's column: its fields as JSON."""
    fields = {name: value for name in sorted(_FIELDS) if (value := getattr(event, name)) not in (None, "", False, 0)}
    if event.message is not None:
        fields["message"] = str(event.message)
    if event.reason or event.trace:
        fields |= {"reason": _writable(event.reason[:REASON]), "trace": _writable(event.trace[-TRACE:])}
    return FORMAT + to_json(fields)


def _writable(text: str) -> str:
    """A text with its surrogates escaped, which JSON cannot encode: errors may name files whose names are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def subject(event: Event) -> str:
    """The subject of an event: its message's id as text, or the name of its schedule."""
    return str(event.message) if event.message is not None else event.key or ""


def event_name(event: Event) -> Name:
    """The column of an event; the same for the same event, whichever process writes it."""
    which = (
        event.slot if event.message is None else event.attempt
    )  # a schedule may skip several occurrences at one moment
    return Name(EVENT, 0, ids.derived(event.at, f"{subject(event)}/{which}"), ORDER[event.kind])


def record_events(ring: Ring, events: Iterable[Event], kept: int) -> Steps[None]:
    """Write events, to be kept for `kept` microseconds; they are stored when this returns.

    After OutcomeUnknown or StoreUnavailable any of them may be written: writing them again is always safe.
    """
    batches = batches_of(ring, events, kept)
    for first in range(0, len(batches), _TOGETHER):
        yield from _send(Send(batches[first], tuple(batches[first + 1 : first + _TOGETHER])))


def _send(request: Send) -> Steps[None]:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(OutcomeUnknown):
            yield request
            return
    yield request


def batches_of(ring: Ring, events: Iterable[Event], kept: int) -> list[Batch]:
    """The batches that write these events, one or more per row."""
    by_row: dict[str, list[Event]] = {}
    for event in events:
        by_row.setdefault(history_row(ring.queue, event.at, ring.shard_of_key(subject(event))), []).append(event)
    ttl = max(1, kept // SECOND)
    return [batch for row, some in by_row.items() for batch in _batches(row, some, ttl)]


def _batches(row: str, events: list[Event], ttl: int) -> Iterator[Batch]:
    puts: list[Put] = []
    size = 0
    for event in events:
        columns = _puts(event, ttl)
        if puts and (len(puts) + len(columns) > _COLUMNS or size + len(columns[0].value) > _BYTES):
            yield Batch(row, tuple(puts), table=HISTORY)
            puts, size = [], 0
        puts += columns
        size += len(columns[0].value)
    yield Batch(row, tuple(puts), table=HISTORY)


def _puts(event: Event, ttl: int) -> list[Put]:
    name = event_name(event)
    listed = [(OF_MESSAGE, str(event.message))] if event.message is not None else []
    if event.key is not None:
        listed.append((OF_KEY, event.key))
    number = _number(event, name)
    places = [Name(kind, 0, ids.listed(text, event.at, number), name.state) for kind, text in listed]
    return [Put(name, encode_event(event), ttl=ttl), *(Put(place, FORMAT + name.id, ttl=ttl) for place in places)]


def _number(event: Event, name: Name) -> int:
    """The number that distinguishes an event from others of one moment and kind in a list.

    Messages that are sent together have consecutive ids, and so get distinct numbers. Random numbers would collide now
    and then among a thousand, and one of the events would not be listed.
    """
    if event.message is None:
        return int.from_bytes(name.id)
    return int.from_bytes(event.message.id) + event.attempt * _APART


def _days(since: int, until: int) -> Iterator[int]:
    """The beginnings of the days that overlap this time."""
    if since < until:
        yield from range(since // DAY * DAY, until, DAY)


Found = tuple[str, Column]


class HistoryFilter(NamedTuple):
    """A choice of events: from `since` up to `until` (microseconds), of a message or key or all, of `kinds` or any."""

    since: int
    until: int
    message: MessageId | None = None
    key: str | None = None
    kinds: frozenset[Kind] = frozenset()

    def fits(self, event: Event) -> bool:
        """Whether the filter includes an event; its time is not checked."""
        return (
            (self.message is None or event.message == self.message)
            and (self.key is None or event.key == self.key)
            and (not self.kinds or event.kind in self.kinds)
        )


class HistoryCursor:
    """Reads the events of a filter in order of time; `over` at the end."""

    def __init__(self, ring: Ring, asked: HistoryFilter) -> None:
        """Begin at the filter's `since`; nothing is read yet."""
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
        """The next events in order; may be empty before the end."""
        if self._asked.message is None and self._asked.key is None:
            found = yield from self._all()
        else:
            found = yield from self._listed()
        events = (decode_event(row, column) for row, column in found)
        return sorted(filter(self._asked.fits, events), key=_order)

    def _all(self) -> Steps[list[Found]]:
        """A page of each bucket of one day, up to the moment that all pages reach."""
        since = ids.moment(self._now_at)
        end = min((since // DAY + 1) * DAY, self._asked.until)
        buckets = [
            part._replace(after=max(part.after, self._now_at)) for part in history_slices(self._ring, since, end)
        ]
        pages = yield from read(*[part.slice(_PAGE) for part in buckets])
        reached = min((page[-1].name.id for page in pages if len(page) == _PAGE), default=ids.first_at(end))
        self._now_at = reached  # a page may end between two columns of one id, so that id is read again
        return [
            (part.row, column)
            for part, page in zip(buckets, pages, strict=True)
            for column in page
            if column.name.id < reached
        ]

    def _listed(self) -> Steps[list[Found]]:
        """The events of some days that are listed under a message or a key: reads the lists, then the events."""
        kind, text = (
            (OF_KEY, self._asked.key or "") if self._asked.message is None else (OF_MESSAGE, str(self._asked.message))
        )
        shards = range(self._ring.layout.concurrency_shards) if kind == OF_KEY else [self._ring.shard_of_key(text)]
        since = ids.moment(self._now_at)
        end = min((since // DAY + max(1, self._rows // len(shards))) * DAY, self._asked.until)
        days = range(since // DAY * DAY, end, DAY)
        rows = [history_row(self._ring.queue, day, shard) for day in days for shard in shards]
        bounds = ids.listed(text, since), ids.listed(text, end)
        pages = yield from read(*[Slice(row, kind, 0, *bounds, limit=self._page, table=HISTORY) for row in rows])
        named = self._named(rows, pages, (since, end))
        columns = (
            (yield from read(*[Named(row, names, table=HISTORY) for row, names in named.items()])) if named else []
        )
        return [(row, column) for row, some in zip(named, columns, strict=True) for column in some]

    def _named(
        self, rows: list[str], pages: list[list[Column]], bounds: tuple[int, int]
    ) -> dict[str, tuple[Name, ...]]:
        """The events to read now, by row: those before the moment that all pages reach.

        After a full page the days are read one by one; if one moment fills a page, the page size is doubled.
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


def first_sent(ring: Ring, messages: Iterable[MessageId], *, since: int, until: int) -> Steps[set[MessageId]]:
    """Those of these messages that have a `sent` event from `since` up to `until` (microseconds)."""
    days = range(since // DAY * DAY, until, DAY)
    wanted = [(one, _sent_listed(ring, one, day)) for one in messages for day in days]
    sent: set[MessageId] = set()
    for first in range(0, len(wanted), _LOOKED_UP):
        some = wanted[first : first + _LOOKED_UP]
        pages = yield from read(*[slice_ for _, slice_ in some])
        found = ((one, column) for (one, _), page in zip(some, pages, strict=True) for column in page)
        sent |= {one for one, column in found if column.name.state == ORDER[Kind.SENT]}
    return sent


def _sent_listed(ring: Ring, message: MessageId, day: int) -> Slice:
    """The list of a message's events on one day."""
    text = str(message)
    row = history_row(ring.queue, day, ring.shard_of_key(text))
    return Slice(row, OF_MESSAGE, 0, ids.listed(text, day), ids.listed(text, day + DAY), values=False, table=HISTORY)


def _order(event: Event) -> tuple[int, int, int, int]:
    return event.at, event.attempt, ORDER[event.kind], event.slot or 0


def _event_of(listed: Column) -> Name | None:
    """The column of the event that is listed here; None if it cannot be read: the event then only shows among all."""
    id_ = listed.value[1:]
    return Name(EVENT, 0, id_, listed.name.state) if len(id_) == len(ids.LEAST) and id_ <= ids.GREATEST else None
