"""Finding messages by key.

The column of a unique key says which message has it, a schedule which one comes again under it, and hints say where the others
of a key may be.

A hint is written before its message, so that none is missed. One whose message is gone is harmless; it is removed by
whoever meets it, and goes by itself in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown
from astyqueue.model.message import FORMAT, MessageId
from astyqueue.model.schedules import Origin, Schedule
from astyqueue.model.views import Content, Found, Standing
from astyqueue.protocol.along import Owner, decode_owner, key_name
from astyqueue.protocol.browse import get_all
from astyqueue.protocol.columns import State, Type
from astyqueue.protocol.keystate import run_to_come
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import is_message_row, key_row
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.protocol.triggercolumn import message_of, readable_schedule, trigger_name
from astyqueue.store import Batch, Column, Name, Named, Put, Slice

_SECOND: Final = 1_000_000
#: A hint lasts so many seconds longer than its message is to wait, and at most as long as every store can count.
LASTS: Final = 30 * 24 * 3_600
_LONGEST: Final = 600_000_000
#: A hint may be older than its message by as much as a producer is slow; after so long that message does not come any more.
_ON_ITS_WAY: Final = 3_600 * _SECOND
#: Hints in one batch, and batches under way at once.
_MANY: Final = 200
_TOGETHER: Final = 8


def leave_hints(process: Process, sent: Iterable[tuple[str, MessageId]]) -> Steps[None]:
    """Say where these messages of these keys will be. A hint that is lost costs nothing but that its message is not found by its key."""
    batches = list(_batches(sent, process.now()))
    for first in range(0, len(batches), _TOGETHER):
        with contextlib.suppress(OutcomeUnknown):
            yield Send(batches[first], tuple(batches[first + 1 : first + _TOGETHER]))


def _batches(sent: Iterable[tuple[str, MessageId]], now: int) -> Iterator[Batch]:
    for key, messages in groupby(sorted(sent), key=lambda one: one[0]):
        puts = [_hint(message, now) for _, message in messages]
        row = key_row(puts[0].value[1:].decode().split(":", 1)[0], key)
        for first in range(0, len(puts), _MANY):
            yield Batch(row, tuple(puts[first : first + _MANY]))


def _hint(message: MessageId, now: int) -> Put:
    lasts = max(0, message.moment - now) // _SECOND + LASTS
    name = Name(Type.MESSAGE, message.priority, message.id, State.NONE)
    return Put(name, FORMAT + message.row.encode(), ttl=min(lasts, _LONGEST))


def found_by_key(process: Process, home: str, key: str) -> Steps[list[Found]]:
    """The messages that have this key, in the order in which they are due; `home` is the row of such a key if it is unique.

    Of one that comes again these are its last run, if that is there, and the run to come unless the last has not ended.
    """
    columns = {column.name.type: column for column in (yield from read_one(Named(home, (key_name(key), trigger_name(key)))))}
    owner = decode_owner(home, columns[Type.KEY].value) if Type.KEY in columns else None
    schedule = _own_schedule(home, key, columns.get(Type.TRIGGER))
    queue = home.split(":", 1)[0]
    row = key_row(queue, key)
    hints = yield from read_one(Slice(row, Type.MESSAGE))
    told = {message: column for column in hints if (message := _told(queue, column))}
    single = [owner.message(home)] if isinstance(owner, Owner) else []
    runs = [MessageId(home, *schedule.run)] if schedule and schedule.run else []
    found = yield from get_all(process, dict.fromkeys([*single, *told, *runs]))
    long_ago = process.now() - _ON_ITS_WAY
    yield from _forget(row, [hint.name for message, hint in told.items() if message not in found and hint.written < long_ago])
    messages = [one for one in found.values() if one.key == key]
    if schedule and not any(one.id in runs and one.standing is not Standing.DEAD for one in messages):
        messages.append(_to_come(home, schedule))
    return sorted(messages, key=lambda one: one.id.id)


def _own_schedule(home: str, key: str, column: Column | None) -> Schedule | None:
    """The schedule by which the message of this key comes again, if it does; one that cannot be read is passed over."""
    schedule = readable_schedule(home, column.value) if column else None
    return schedule if schedule and schedule.name == key and schedule.origin is Origin.MESSAGE else None


def _to_come(home: str, schedule: Schedule) -> Found:
    """The run that is sent next: it has its id already, and is no message yet."""
    run = run_to_come(schedule)
    slot = ids.moment(run.id)
    content = Content.of(message_of(schedule, run, slot=slot, now=slot).value)
    return Found(MessageId(home, *run), content, Standing.DELAYED, hidden_until=schedule.wakes)


def _forget(row: str, stale: list[Name]) -> Steps[None]:
    """Remove hints whose messages are gone."""
    for first in range(0, len(stale), _MANY):
        yield Send(Batch(row, deletes=tuple(stale[first : first + _MANY])))


def _told(queue: str, hint: Column) -> MessageId | None:
    """The message that a hint speaks of; None if it cannot be read, for it is but a hint."""
    row = hint.value[1:].decode(errors="replace")
    is_one = hint.value[:1] == FORMAT and is_message_row(queue, row)
    return MessageId(row, hint.name.priority, hint.name.id) if is_one else None
