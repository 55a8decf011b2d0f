"""Finding messages by key.

A unique key's column names the message or the schedule that owns it. Hints name the messages that may have a key that
is not unique.

A hint is written before its message, so that none is missed. A hint whose message is gone is harmless: a process that
reads it deletes it, and it expires in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from astyqueue.errors import OutcomeUnknown
from astyqueue.model.envelope import FORMAT, MessageId, unframed
from astyqueue.protocol.layout.columns import State, Type
from astyqueue.protocol.layout.rows import is_message_row, key_row
from astyqueue.protocol.steps import BATCH_COLUMNS, Client, Send, Steps, read_one
from astyqueue.store import Batch, Column, Name, Put, Slice
from astyqueue.units import SECOND

#: Seconds that a hint lasts after its message is due, and the longest time to live that every store supports.
LASTS: Final = 30 * 24 * 3_600
_LONGEST: Final = 600_000_000
#: A slow producer may write the message later than its hint, but not later than this.
_ON_ITS_WAY: Final = 3_600 * SECOND
#: Batches in one request.
_TOGETHER: Final = 8


def write_key_hints(process: Client, sent: Iterable[tuple[str, MessageId]]) -> Steps[None]:
    """Write hints to messages, each with its key. If a hint is lost, only finding its message by key fails."""
    batches = list(_batches(sent, process.now()))
    for first in range(0, len(batches), _TOGETHER):
        with contextlib.suppress(OutcomeUnknown):
            yield Send(batches[first], tuple(batches[first + 1 : first + _TOGETHER]))


def _batches(sent: Iterable[tuple[str, MessageId]], now: int) -> Iterator[Batch]:
    for key, messages in groupby(sorted(sent), key=lambda one: one[0]):
        named = [message for _, message in messages]
        puts = [_hint(message, now) for message in named]
        for first in range(0, len(puts), BATCH_COLUMNS):
            yield Batch(key_row(named[0].queue, key), tuple(puts[first : first + BATCH_COLUMNS]))


def _hint(message: MessageId, now: int) -> Put:
    lasts = max(0, message.moment - now) // SECOND + LASTS
    name = Name(Type.MESSAGE, message.priority, message.id, State.NONE)
    return Put(name, FORMAT + message.row.encode(), ttl=min(lasts, _LONGEST))


def read_key_hints(queue: str, key: str) -> Steps[dict[MessageId, Column]]:
    """The messages that the hints of this key name, each with its hint."""
    hints = yield from read_one(Slice(key_row(queue, key), Type.MESSAGE))
    return {message: column for column in hints if (message := _message_of(queue, column))}


def delete_key_hints(process: Client, row: str, hints: Iterable[Column]) -> Steps[None]:
    """Delete hints whose messages are gone, unless they are younger than an hour: their messages may still arrive."""
    long_ago = process.now() - _ON_ITS_WAY
    stale = [hint.name for hint in hints if hint.written < long_ago]
    for first in range(0, len(stale), BATCH_COLUMNS):
        yield Send(Batch(row, deletes=tuple(stale[first : first + BATCH_COLUMNS])))


def _message_of(queue: str, hint: Column) -> MessageId | None:
    """The message that a hint names; None if it cannot be read."""
    try:
        row = unframed(hint.value).decode()
    except ValueError:
        return None
    return MessageId(row, hint.name.priority, hint.name.id) if is_message_row(queue, row) else None
