"""Finds and removes messages by their keys."""

from __future__ import annotations

import contextlib

from astyqueue.errors import BadInput
from astyqueue.model.compose import check_key
from astyqueue.model.message import MessageId
from astyqueue.model.views import Found
from astyqueue.protocol.admin.browse import found_by_key
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin.inspection import QueueAdmin
from astyqueue.queue.admin.schedules import ScheduleAdmin
from astyqueue.queue.runtime import QueueRuntime


class KeyCommands:
    """Commands by key on one queue."""

    def __init__(self, core: QueueRuntime) -> None:
        """`core` is the open queue."""
        self._core = core

    def find(self, key: str) -> Steps[list[Found]]:
        """The messages with this key, ordered by due time."""
        ring = self._core.ring
        home = ring.home(ring.shard_of_key(check_key(key)))
        return (yield from found_by_key(self._core.process, home, key))

    def delete(self, message: MessageId | str | None, key: str | None) -> Steps[bool]:
        """Delete one message, or all with a key; True if there was any."""
        if (message is None) == (key is None):
            problem = "delete takes the id of a message or a key: give one of them"
            raise BadInput(problem)
        if message is not None:
            return (yield from ScheduleAdmin(self._core).delete(message))
        return (yield from self._delete_all(check_key(key)))

    def _delete_all(self, key: str) -> Steps[bool]:
        """Stop a recurring message under the key first, so that no new run follows the messages found."""
        deleted = False
        with contextlib.suppress(BadInput):  # a key need not be a valid schedule name
            deleted = yield from ScheduleAdmin(self._core).stop(key)
        for found in (yield from self.find(key)):
            deleted |= yield from QueueAdmin(self._core).delete(found.id)
        return deleted
