"""Finding messages by key: the column of a unique key says which message has it, and hints say where the others of a key may be.

A hint is written before its message, so that none is missed. One whose message is gone is harmless; it is removed by
whoever meets it, and goes by itself in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from astyqueue.errors import OutcomeUnknown
from astyqueue.model.message import FORMAT, MessageId
from astyqueue.model.views import Found
from astyqueue.protocol.along import decode_owner, key_name
from astyqueue.protocol.browse import get
from astyqueue.protocol.columns import State, Type
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import is_message_row, key_row
from astyqueue.protocol.steps import Send, Steps, read_column, read_one
from astyqueue.store import Batch, Column, Name, Put, Slice

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


def found_by_key(process: Process, home: str, key: str, *, also: Iterable[MessageId] = ()) -> Steps[list[Found]]:
    """The messages that have this key, in the order in which they are due; `home` is the row of such a key if it is unique.

    `also` are messages that may have it, of which nothing in the store tells.
    """
    messages = yield from _unique(home, key)
    queue = home.split(":", 1)[0]
    row = key_row(queue, key)
    hints = yield from read_one(Slice(row, Type.MESSAGE))
    told = {message: column for column in hints if (message := _told(queue, column))}
    found: list[Found] = []
    for message in sorted({*messages, *told, *also}, key=lambda one: one.id):
        there = yield from get(process, message)
        if there is not None:
            found.append(there)
        elif message in told and told[message].written < process.now() - _ON_ITS_WAY:
            yield Send(Batch(row, deletes=(told[message].name,)))
    return [one for one in found if one.key == key]


def _unique(home: str, key: str) -> Steps[list[MessageId]]:
    column = yield from read_column(home, key_name(key))
    return [decode_owner(home, column.value).message(home)] if column else []


def _told(queue: str, hint: Column) -> MessageId | None:
    """The message that a hint speaks of; None if it cannot be read, for it is but a hint."""
    row = hint.value[1:].decode(errors="replace")
    is_one = hint.value[:1] == FORMAT and is_message_row(queue, row)
    return MessageId(row, hint.name.priority, hint.name.id) if is_one else None
