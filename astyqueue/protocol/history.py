"""The history of a queue: events in a table of their own, only ever added to, gone by themselves after a while.

A row of it holds the events of one day (UTC) and one bucket, in the order of time; which bucket follows from the message.
An event's name is made from its facts (time, kind, and message and attempt, or schedule and slot), which are fixed when it
happens: written again, by whomever, it takes its own place. Beside it lie two small columns that list it under its message
and its key, so that the history of one message is found without reading the others'.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.ids import Id
from astyqueue.model.event import FLAT, Event, Kind
from astyqueue.model.message import FORMAT, MessageId
from astyqueue.protocol.rows import Ring, history_row
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.store import HISTORY, Batch, Column, Name, Put, Slice

DAY: Final = 86_400 * 1_000_000
#: No event is kept for longer, whatever a queue's setting.
LONGEST: Final = 400 * DAY
#: The kinds of columns: events, and where those of a message or a key are listed.
EVENT: Final = 0
OF_MESSAGE: Final = 1
OF_KEY: Final = 2
#: Columns and bytes of one batch, and batches under way at once.
_COLUMNS: Final = 200
_BYTES: Final = 256 * 1024
_TOGETHER: Final = 8
#: Events read together at the least: more than there are kinds.
_LEAST: Final = 32
#: How often events whose sending has an unknown end are sent again before that is told.
_TRIES: Final = 3
#: Characters of a traceback that are kept: of a longer one the end, which says what happened.
TRACE: Final = 16 * 1024
REASON: Final = 1024
#: Attempts of messages whose ids count up are so far apart where they are listed, in 30 bits.
_APART: Final = 0x2545F491

#: The number of each kind in names, and in which order events of one attempt and moment are told.
ORDER: Final = {kind: number for number, kind in enumerate(Kind)}
_KINDS: Final = dict(enumerate(Kind))
#: What is in the column's name or its row, and not in its value; and what is the value, as it was found.
_ELSEWHERE: Final = frozenset({"at", "kind", "queue", "message", "raw"})
_FIELDS: Final = frozenset(Event.__dataclass_fields__) - _ELSEWHERE
#: What stands in the value of an event that this version wrote.
_TOLD: Final = _FIELDS | {"message"}


class Part(NamedTuple):
    """A stretch of one row of history: the events from `after` (inclusive) up to `until` (exclusive), both bounds of ids."""

    row: str
    after: Id
    until: Id

    def slice(self, limit: int | None = None) -> Slice:
        """What to read for the first so many of its events."""
        return Slice(self.row, EVENT, 0, after=self.after, until=self.until, limit=limit, table=HISTORY)


def parts(ring: Ring, since: int, until: int) -> list[Part]:
    """Where all events of a queue from `since` up to `until` (microseconds) are: for each day its buckets, in order of time.

    They are independent of each other, so they may be read by as many at once. An event may be written some time after the
    moment it tells of, usually less than a second; by as much as the store was away, if it was.
    """
    return [
        Part(history_row(ring.queue, day, bucket), ids.first_at(max(day, since)), ids.first_at(min(day + DAY, until)))
        for day in _days(since, until)
        for bucket in range(ring.layout.concurrency_shards)
    ]


def read_part(part: Part, limit: int) -> Steps[tuple[list[Event], Part | None]]:
    """The first so many events of a part, or a few less, and what is left of it; None at its end."""
    page = max(limit, _LEAST)
    columns = yield from read_one(part.slice(page))
    if len(columns) < page:
        return [decode_event(part.row, column) for column in columns], None
    last = columns[-1].name.id  # of whose columns, one a kind, the rest may be missing
    return [decode_event(part.row, column) for column in columns if column.name.id != last], part._replace(after=last)


def decode_event(row: str, column: Column) -> Event:
    """The event in a column of a row of history; of one that cannot be read, its time and kind, and why.

    What a newer astyqueue wrote is kept as it is (`raw`) beside what of it can be understood.
    """
    at, kind, queue = ids.moment(column.name.id), _KINDS.get(column.name.state, Kind.UNKNOWN), row.split(":", 1)[0]
    try:
        if column.value[:1] != FORMAT:
            problem = f"this event cannot be read: its format byte is {column.value[:1].hex() or 'missing'}"
            return Event(at, Kind.UNKNOWN, queue, reason=problem, raw=_raw(column))
        told: dict[str, Any] = from_json(column.value[1:])
        message = MessageId.parse(told["message"]) if told.get("message") else None
        known = {name: value for name, value in told.items() if name in _FIELDS}
        if wrong := [name for name, value in known.items() if not _fits(name, value)]:
            _refuse(wrong)
        understood = kind is not Kind.UNKNOWN and told.keys() <= _TOLD
        return Event(at, kind, queue, message, **known, raw="" if understood else _raw(column))
    except (ValueError, TypeError, AttributeError) as error:
        return Event(at, kind, queue, reason=f"this event cannot be read: {error}", raw=_raw(column))


def _raw(column: Column) -> str:
    """The number of an event's kind and what was written of it, bytes that are no text as escapes."""
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
    message = f"what it says of {', '.join(sorted(wrong))} is of another kind, or out of range"
    raise ValueError(message)


def encode_event(event: Event) -> bytes:
    """The value of an event's column: what is told, as JSON."""
    told = {name: value for name in sorted(_FIELDS) if (value := getattr(event, name)) not in (None, "", False, 0)}
    if event.message is not None:
        told["message"] = str(event.message)
    if event.reason or event.trace:
        told |= {"reason": _writable(event.reason[:REASON]), "trace": _writable(event.trace[-TRACE:])}
    return FORMAT + to_json(told)


def _writable(text: str) -> str:
    """What an error says may hold halves of characters (a file's name that is not UTF-8, say), which JSON has no way to write."""
    return text.encode(errors="backslashreplace").decode()


def subject(event: Event) -> str:
    """Whose event it is: the message's id as text, or the name of a schedule."""
    return str(event.message) if event.message is not None else event.key or ""


def event_name(event: Event) -> Name:
    """The column of an event; the same for the same event, whoever writes it."""
    which = event.slot if event.message is None else event.attempt  # a schedule may skip several slots at one moment
    return Name(EVENT, 0, ids.derived(event.at, f"{subject(event)}/{which}"), ORDER[event.kind])


def record(ring: Ring, events: Iterable[Event], kept: int) -> Steps[None]:
    """Write events, to be kept for so many microseconds; they are in the store when this returns.

    OutcomeUnknown and StoreUnavailable leave any of them written or not: to write them again is always right.
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
    """The batches that write these events, one or more a row."""
    by_row: dict[str, list[Event]] = {}
    for event in events:
        by_row.setdefault(history_row(ring.queue, event.at, ring.shard_of_key(subject(event))), []).append(event)
    ttl = max(1, kept // 1_000_000)
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
    """What tells an event from others of one moment and kind where they are listed.

    Messages that are sent together have ids that count up, and so have their numbers: by chance two of a thousand would be the
    same now and then, and one of their events would be listed nowhere.
    """
    if event.message is None:
        return int.from_bytes(name.id)
    return int.from_bytes(event.message.id) + event.attempt * _APART


def _days(since: int, until: int) -> Iterator[int]:
    """The beginnings of the days that a stretch of time touches."""
    if since < until:
        yield from range(since // DAY * DAY, until, DAY)
