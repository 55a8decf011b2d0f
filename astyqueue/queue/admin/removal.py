"""Removes messages, with the triggers by which they recur, and whole queues, as steps."""

from __future__ import annotations

import contextlib

from astyqueue.errors import BadInput
from astyqueue.model.compose import check_key
from astyqueue.model.message import MessageId
from astyqueue.protocol.admin import delete as stored
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin import commands, schedules
from astyqueue.queue.admin.inspection import find, id_of
from astyqueue.queue.runtime import QueueRuntime


def delete(core: QueueRuntime, message: MessageId | str | None, key: str | None) -> Steps[bool]:
    """Delete one message, or all with a key; True if there was any. What recurs by its own trigger recurs no longer."""
    if (message is None) == (key is None):
        problem = "delete takes the id of a message or a key: give one of them"
        raise BadInput(problem)
    if message is not None:
        return _delete_one(core, id_of(core, message))
    return _delete_all(core, check_key(key))


def _delete_one(core: QueueRuntime, message: MessageId) -> Steps[bool]:
    """Delete a message and its own trigger, whichever of its runs the id names."""
    own = yield from schedules.of_message(message)
    deleted = yield from commands.delete(core, message)
    if own is None:
        return deleted
    return (yield from schedules.remove(core, own.name, with_run=True)) is not None or deleted


def _delete_all(core: QueueRuntime, key: str) -> Steps[bool]:
    """Stop a recurring message under the key first, so that no new run follows the messages found."""
    deleted = False
    with contextlib.suppress(BadInput):  # a key need not be a valid schedule name
        deleted = yield from schedules.stop(core, key)
    for found in (yield from find(core, key)):
        deleted |= yield from commands.delete(core, found.id)
    return deleted


def clear(core: QueueRuntime) -> Steps[int]:
    """Remove all messages; return their number."""
    removed = 0
    for row in core.ring.rows():
        removed += yield from stored.clear(core.process, row, core.settings.layout.priorities)
        core.claimer.changed(row)
    return removed


def drop(core: QueueRuntime) -> Steps[int]:
    """Remove all messages and the queue itself; return the number of messages."""
    return stored.drop(core.process, core.settings)
