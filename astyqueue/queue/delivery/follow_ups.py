"""Follow-ups: messages that are sent when a delivery is acked, and not if it ends in any other way.

One in the row of the delivery goes into the commit of the ack. One in another row is sent before that commit, with an
id that follows from the delivery and the message: sent again, it is still one message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from astyqueue.errors import AlreadySettled, BadInput
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message, PreparedMessage
from astyqueue.protocol.layout.columns import message_name
from astyqueue.protocol.steps import BATCH_BYTES, Steps
from astyqueue.store import Put

#: What is called after the commit of a transaction, in order.
AfterCommit = list[Callable[[], object]]
#: Follow-ups of one delivery; together they have at most `BATCH_BYTES`, unless there is only one.
MOST: Final = 100


@dataclass(slots=True, eq=False)
class FollowUp:
    """A message that is sent when a delivery is acked; `id` is None until the ack if it goes into that commit."""

    queue: FollowUpQueue
    message: Message
    prepared: PreparedMessage
    id: MessageId | None = None

    @property
    def sent_as(self) -> MessageId:
        """Its id; it has one when it is sent."""
        if self.id is None:
            message = "a follow-up in the row of its delivery has no id before the ack"
            raise ValueError(message)
        return self.id


class FollowUpSends(Protocol):
    """Sends follow-ups into rows of one queue, by one thread or task at a time."""

    def send(self, follow_ups: Sequence[FollowUp]) -> Steps[list[FollowUp]]:
        """Send those that were not sent before; returns them. After an error any of them may have been sent."""
        ...


class FollowUpQueue(Protocol):
    """A queue, as follow-ups are sent to it."""

    @property
    def connection(self) -> object:
        """Identifies the connection: a follow-up goes to a queue of the same one."""
        ...

    def prepare(self, message: Message, origin: MessageId, number: int, *, base: int) -> FollowUp:
        """Check and encode a message that follows `origin` as its follow-up of this number.

        `base` is the moment that it is stored by if it has no due time: one that is the same at every attempt.
        """
        ...

    def new_id(self, row: str, prepared: PreparedMessage) -> MessageId:
        """An id, drawn now, for a message in this row."""
        ...

    def sends(self, after_commit: AfterCommit | None = None) -> FollowUpSends:
        """Sends into other rows than that of the delivery.

        In a transaction they are in the store once that is committed: counting them is left to `after_commit`, and
        announcing them to the caller.
        """
        ...

    def announce(self, follow_ups: Sequence[FollowUp]) -> Steps[None]:
        """Have consumers scan the rows of these messages, which are in the store."""
        ...

    def call_after_send(self, follow_up: FollowUp) -> None:
        """Call the queue's hooks about a message that is in the store."""
        ...


class Destination(Protocol):
    """A queue, as callers name it."""

    @property
    def follow_ups(self) -> FollowUpQueue:
        """The queue, as follow-ups are sent to it."""
        ...


def follow_ups_of(queue: Destination) -> FollowUpQueue:
    """The queue, as follow-ups are sent to it; BadInput for what is none, such as the name of one."""
    try:
        return queue.follow_ups
    except AttributeError:
        problem = f"queue= of a follow-up is of type {type(queue).__name__}: give the object of a queue, not its name"
        raise BadInput(problem) from None


@dataclass(slots=True, eq=False)
class FollowUps:
    """The follow-ups of one delivery: `together` with its ack, and those sent `before` it.

    `base`: when the delivered message was due for the first time, or when it was sent if that was later. `ready`:
    nothing has to be written before the ack. When the first ack is tried they are frozen: another try, after
    an unknown outcome, commits the same messages.
    """

    origin: MessageId
    base: int
    together: list[FollowUp] = field(default_factory=list)
    before: list[FollowUp] = field(default_factory=list)
    ready: bool = True
    _puts: tuple[Put, ...] | None = None

    def add(self, message: Message, queue: FollowUpQueue) -> None:
        """Add one; BadInput if it is invalid or one too many, AlreadySettled if an ack was tried before."""
        if self._puts is not None:
            raise AlreadySettled(str(self.origin), "acked, with unknown outcome")
        number = len(self.together) + len(self.before)
        if number >= MOST:
            problem = f"a delivery has at most {MOST} follow-ups: have one of them send the rest"
            raise BadInput(problem)
        added = queue.prepare(message, self.origin, number, base=self.base)
        size = sum(len(one.prepared.value) for one in (*self.together, *self.before, added))
        if number and size > BATCH_BYTES:
            problem = f"the follow-ups of a delivery have at most {BATCH_BYTES} bytes, not {size}: send references"
            raise BadInput(problem)
        (self.together if added.id is None else self.before).append(added)
        self.ready = self.ready and added.id is None and added.prepared.key is None

    def freeze(self) -> tuple[Put, ...]:
        """Draw the ids of those that go into the commit of the ack, once; returns their columns.

        Later calls return the same.
        """
        if self._puts is None:
            for one in self.together:
                one.id = one.queue.new_id(self.origin.row, one.prepared)
            self._puts = tuple(
                Put(message_name(one.prepared.priority, one.sent_as.id), one.prepared.value) for one in self.together
            )
        return self._puts

    @property
    def is_frozen(self) -> bool:
        """Whether an ack was tried."""
        return self._puts is not None

    def thaw(self) -> None:
        """Let others be added again: the ack that was tried is known to have changed nothing."""
        self._puts = None
