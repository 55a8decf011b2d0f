"""What must hold of consumers and their managers, computed from accounts that are kept apart from theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.ready_buffer import Ready

if TYPE_CHECKING:
    from tests.consumer_schedules.world import Queue

Item = Ready[int]


class Broken(AssertionError):
    """A promise of the manager did not hold."""


class Oracle:
    """What must hold, computed from the accounts and in the simplest way."""

    def __init__(self) -> None:
        self.rejections: set[tuple[Consumer[int], Item]] = set()

    def check_pulled(self, queue: Queue, consumer: Consumer[int], item: Item) -> None:
        """Each message goes to one consumer that may have it, in order, and to the highest that wants it."""
        if item not in queue.present or consumer not in queue.live_members():
            message = f"{consumer} got {item}, which was taken before, or it stands by"
            raise Broken(message)
        if not self.matches(consumer, item) or item.expires <= queue.world.time:
            message = f"{consumer} got {item}, which it does not select or has rejected, or which expired"
            raise Broken(message)
        if queue.running_limit is not None and queue.running >= queue.running_limit:
            message = f"{consumer} got {item}, and {queue.running} messages are held already"
            raise Broken(message)
        if queue.world.age is not None:
            return  # one that waited too long goes first, and the message kept for it may be a later one
        rivals = [one for one in queue.live_members() if one.priority > consumer.priority]
        for earlier in queue.present[: queue.present.index(item)]:
            if earlier.expires <= queue.world.time:
                continue
            if self.matches(consumer, earlier) and not any(self.matches(one, earlier) for one in rivals):
                message = f"{consumer} got {item} before {earlier}"
                raise Broken(message)
        if not queue.world.later and any(self.sleeps(queue, one) and self.wants(queue, one, item) for one in rivals):
            message = f"{consumer} got {item}, which a higher priority wants"
            raise Broken(message)

    def check_rest(self, queue: Queue) -> None:
        """Nothing is under way: no consumer sleeps that may take a message."""
        full = queue.running_limit is not None and queue.running >= queue.running_limit
        for consumer in () if full else queue.live_members():
            if self.sleeps(queue, consumer) and self.may_take(queue, consumer):
                message = f"{self.first(queue, consumer)} waits while {consumer} sleeps, which may take it"
                raise Broken(message)
        if len(queue) != len(queue.present):
            message = f"{len(queue)} messages wait, and {len(queue.present)} should"
            raise Broken(message)

    def matches(self, consumer: Consumer[int], item: Item) -> bool:
        return consumer.selector.matches(item) and (consumer, item) not in self.rejections

    @staticmethod
    def sleeps(queue: Queue, consumer: Consumer[int]) -> bool:
        return queue.members[consumer].phase == "sleep"

    @staticmethod
    def is_busy(queue: Queue, consumer: Consumer[int]) -> bool:
        """Whether it is of several queues, and handles a message of one of them."""
        slot = queue.members[consumer]
        return slot.multi is not None and slot.phase == "handle"

    @staticmethod
    def has_credit(queue: Queue, consumer: Consumer[int], item: Item) -> bool:
        credit = queue.members[consumer].credit
        return credit is None or credit.could_take(item.size)

    def may_take(self, queue: Queue, consumer: Consumer[int]) -> bool:
        """Whether a consumer has credit for its first message.

        A consumer of several queues that is busy counts as one that wants messages until the manager has asked it. So
        a lower priority has one message or another as its first, and may be short of bytes for one of them.
        """
        firsts = [self.first(queue, consumer), self.first(queue, consumer, busy_rivals=False)]
        return all(item is not None and self.has_credit(queue, consumer, item) for item in firsts)

    def first(self, queue: Queue, consumer: Consumer[int], *, busy_rivals: bool = True) -> Item | None:
        """The first message that a consumer may take, whatever its size."""
        rivals = [
            one
            for one in queue.live_members()
            if one.priority > consumer.priority and (busy_rivals or not self.is_busy(queue, one))
        ]
        return next(
            (
                item
                for item in queue.present
                if item.expires > queue.world.time
                and self.matches(consumer, item)
                and not any(self.wants(queue, one, item) for one in rivals)
            ),
            None,
        )

    def wants(self, queue: Queue, consumer: Consumer[int], item: Item) -> bool:
        """Whether a consumer would take a message some time, with the credit that it has now."""
        if not self.matches(consumer, item):
            return False
        first = self.first(queue, consumer)
        return first is not None and self.has_credit(queue, consumer, first)
