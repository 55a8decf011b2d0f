"""Finding and removing messages by their keys."""

from __future__ import annotations

import contextlib

from astyqueue.errors import BadInput
from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import check_key
from astyqueue.model.views import Found
from astyqueue.protocol.lookup import found_by_key
from astyqueue.protocol.steps import Steps
from astyqueue.queue.core import Core
from astyqueue.queue.scheduling import Scheduling


class Keys:
    """The keys of one queue."""

    def __init__(self, core: Core) -> None:
        """Work with the parts of an open queue."""
        self._core = core

    def find(self, key: str) -> Steps[list[Found]]:
        """The messages that have this key, in the order in which they are due."""
        ring = self._core.ring
        home = ring.home(ring.shard_of_key(check_key(key)))
        return (yield from found_by_key(self._core.process, home, key))

    def delete(self, message: MessageId | str | None, key: str | None) -> Steps[bool]:
        """Delete one message, or all that have a key; whether there was any."""
        if (message is None) == (key is None):
            problem = "delete takes the id of a message, or a key: one of them"
            raise BadInput(problem)
        if message is not None:
            return (yield from Scheduling(self._core).delete(message))
        return (yield from self._delete_all(check_key(key)))

    def _delete_all(self, key: str) -> Steps[bool]:
        """Stop what comes again under the key first, so that nothing comes after what is found."""
        deleted = False
        with contextlib.suppress(BadInput):  # a text that names no schedule can be a key all the same
            deleted = yield from Scheduling(self._core).stop(key)
        for found in (yield from self.find(key)):
            deleted |= yield from self._core.operating.delete(found.id)
        return deleted
