"""Deletes messages, whatever their state, as steps: one, those of a key, all of a queue, or the queue with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from astyqueue.errors import BadInput
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.model.message import check_key
from astyqueue.protocol.admin.delete import clear as clear_row
from astyqueue.protocol.admin.delete import delete as delete_stored
from astyqueue.protocol.admin.delete import drop as drop_queue
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin import schedules
from astyqueue.queue.admin.inspection import find, id_of
from astyqueue.queue.hooks import call_after_delete
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
    deleted = yield from delete_message(core, message)
    if own is None:
        return deleted
    return (yield from schedules.remove(core, own.name, with_run=True)) is not None or deleted


def _delete_all(core: QueueRuntime, key: str) -> Steps[bool]:
    """Stop a recurring message under the key first, so that no new run follows the messages found."""
    deleted = False
    with contextlib.suppress(BadInput):  # a key need not be a valid schedule name
        deleted = yield from schedules.stop(core, key)
    for found in (yield from find(core, key)):
        deleted |= yield from delete_message(core, found.id)
    return deleted


def delete_message(core: QueueRuntime, message: MessageId) -> Steps[bool]:
    """Remove a message in any state; True if it existed."""
    events = yield from core.claimer.history.of_command(Kind.CANCELLED, [message], why="deleted")
    deleted = yield from delete_stored(core.process, message)
    yield from core.claimer.history.write_or_buffer(events if deleted else ())
    call_after_delete(core.hooks, [message] if deleted else [], "deleted")
    if deleted:  # it may have been the one that others of its group wait for
        yield from core.claimer.announce([(message.row, None)], frees_group=True)
    return deleted


def _report(core: QueueRuntime, why: str) -> Callable[[Sequence[MessageId]], None]:
    return lambda messages: call_after_delete(core.hooks, messages, why)


def clear(core: QueueRuntime) -> Steps[int]:
    """Remove all messages; return their number."""
    removed = 0
    for row in core.ring.rows():
        removed += yield from clear_row(core.process, row, core.settings.layout.priorities, _report(core, "cleared"))
        core.claimer.changed(row)
    return removed


def drop(core: QueueRuntime) -> Steps[int]:
    """Remove all messages and the queue itself; return the number of messages."""
    removed = yield from drop_queue(core.process, core.settings, _report(core, "dropped"))
    yield from core.claimer.announce([])
    return removed
