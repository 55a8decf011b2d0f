"""Which message a consumer may take, and which sleeping consumer is woken for a message.

What `wake` establishes: for each lane with more messages than consumers on their way to it, no consumer sleeps that may
take from it. So a message does not wait while a consumer that may take it sleeps; and a consumer that arrives,
withdraws or is removed without taking from its lane hands its wake-up over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from astyqueue.dispatch.consumers.consumer_states import INTERESTED, NOT_INTERESTED, NOTIFIED, Consumer, Consumers
from astyqueue.dispatch.consumers.credit import RunningLimit
from astyqueue.dispatch.consumers.ready_buffer import Lane, Ready, ReadyBuffer

T = TypeVar("T")


class Matcher(Generic[T]):
    """Moves consumers between their states as messages and credit come and go. Not safe from several threads.

    `calls` are to be made once the lock is released: wake-ups of consumers, and changes of credit. `short` are the
    consumers whose credit did not suffice for their next message.
    """

    def __init__(self, now: Callable[[], int], age: int | None, running: int | None = None) -> None:
        """`age`: the wait (microseconds) after which a consumer gets the next message before higher priorities.

        At most `running` messages are held at a time.
        """
        self.limit = RunningLimit(running)
        self.calls: list[Callable[[], None]] = []
        self.buffer: ReadyBuffer[T] = ReadyBuffer(now)
        self.consumers: Consumers[T] = Consumers()
        self._now = now
        self.age = age
        self.short: dict[Consumer[T], Ready[T]] = {}

    def lanes_of(self, consumer: Consumer[T]) -> list[Lane[T]]:
        """The lanes that this consumer's selector matches, as a copy: finding an expired message may end a lane."""
        return [*self.buffer.lanes_of(consumer.selector)]

    def enter(self, consumer: Consumer[T]) -> None:
        """Count a consumer with credit as interested, and wake it if it may take a message."""
        self.short.pop(consumer, None)
        if self.consumers.move(consumer, INTERESTED, NOT_INTERESTED):
            consumer.off_since = None
            self._begin_waiting(consumer)
            self.wake(self.lanes_of(consumer))

    def withdraw(self, consumer: Consumer[T]) -> None:
        """Count a consumer as not interested; others are woken for what it was woken for, or had the priority for."""
        if self._leave(consumer):
            self.retry_short(but=consumer)
            self.wake(self.lanes_of(consumer) if self.limit.most is None else self.buffer.lanes)

    def remove(self, consumer: Consumer[T]) -> bool:
        """Remove a consumer; returns whether it was the last with its selector."""
        self.withdraw(consumer)
        self.short.pop(consumer, None)
        if self.limit.forget(consumer):
            self.wake(self.buffer.lanes)
        return self.consumers.remove(consumer)

    def _leave(self, consumer: Consumer[T]) -> bool:
        """Count a consumer as not interested; False if it was not."""
        if not self.consumers.move(consumer, NOT_INTERESTED, INTERESTED, NOTIFIED):
            return False
        consumer.off_since = self._now()
        consumer.waiting_since = None
        self.forget_wakeup(consumer)
        return True

    def forget_wakeup(self, consumer: Consumer[T]) -> None:
        """Count a consumer as not on its way, and put back what was kept for it. `wake` has to follow."""
        self._arrive(consumer)
        if (kept := consumer.kept) is not None:
            consumer.kept = None
            if kept.holder is consumer:
                self.buffer.put_back(kept)

    def _arrive(self, consumer: Consumer[T]) -> Lane[T] | None:
        """The lane that the consumer was woken for; the consumer no longer counts as pending for that lane."""
        lane = consumer.woken_for
        if lane is not None:
            consumer.woken_for = None
            lane.coming -= 1
            self.limit.coming -= 1
        return lane

    def _begin_waiting(self, consumer: Consumer[T]) -> None:
        if self.age is not None and consumer.waiting_since is None:
            consumer.waiting_since = self._now()

    def pull(self, consumer: Consumer[T]) -> Ready[T] | None:
        """The next message for a consumer, which now holds it."""
        lane = self._arrive(consumer)
        if lane is None and self.limit.reached:
            self.forget_wakeup(consumer)
            ready = None
        else:
            ready = self._kept(consumer) or self._candidate(consumer)
        if ready is None:
            self._miss(consumer)
        elif consumer.credit is not None and not consumer.credit.take(ready.size):
            # A change of credit from here on is followed by `enter`, which needs to find the consumer not interested.
            if self.short.setdefault(consumer, ready) is not ready:
                self._retry([consumer])  # the credit waits for the size of a message that went or expired
            self.withdraw(consumer)
            ready = None
        else:
            self._give(consumer, ready)
        if lane is not None and self.consumers.asleep:
            self.wake((lane,) if self.limit.most is None else self.buffer.lanes)
        return ready

    def _miss(self, consumer: Consumer[T]) -> None:
        consumer.misses += 1
        if consumer.has_credit:
            self._begin_waiting(consumer)
            self.consumers.move(consumer, INTERESTED, NOT_INTERESTED, INTERESTED, NOTIFIED)
        else:
            self.withdraw(consumer)

    def _give(self, consumer: Consumer[T], ready: Ready[T]) -> None:
        if ready.lane is not None:
            self.buffer.take(ready.lane)
        consumer.kept = None
        ready.holder = consumer
        self.limit.take(consumer)
        consumer.delivered += 1
        consumer.bytes_delivered += ready.size
        if self.age is not None:
            consumer.waiting_since = self._now()
        if self.short:
            self.retry_short()
        if consumer.has_credit:
            if consumer.state is not NOTIFIED:
                self.consumers.move(consumer, NOTIFIED, NOT_INTERESTED, INTERESTED)
            consumer.off_since = None
        else:
            self.withdraw(consumer)
            consumer.off_since = self._now()

    def _kept(self, consumer: Consumer[T]) -> Ready[T] | None:
        """The message that was kept for a consumer, if it was not removed and did not expire."""
        kept = consumer.kept
        if kept is None or kept.holder is not consumer:
            consumer.kept = None
        elif self.buffer.is_expired(kept):
            self.forget_wakeup(consumer)
        return consumer.kept

    def _candidate(self, consumer: Consumer[T]) -> Ready[T] | None:
        """The first message that this consumer may take, whatever its size."""
        first: Ready[T] | None = None
        for lane in self.lanes_of(consumer):
            if consumer.number in lane.rejected_by:
                continue
            ready = self.buffer.head(lane)
            if ready is None or (first is not None and first.position < ready.position):
                continue
            if not self._yields(consumer, lane):
                first = ready
        return first

    def _yields(self, consumer: Consumer[T], lane: Lane[T]) -> bool:
        """Whether a consumer leaves the messages of a lane to a higher priority."""
        return self.consumers.wanted_above(lane, consumer.priority) and not self._has_aged(consumer)

    def _has_aged(self, consumer: Consumer[T]) -> bool:
        since = consumer.waiting_since
        return self.age is not None and since is not None and self._now() - since >= self.age

    def wake(self, lanes: Iterable[Lane[T]]) -> None:
        """Wake consumers for these lanes: one for each message, the one that may take it and sleeps longest."""
        todo = [*lanes]
        for lane in todo:
            while self.consumers.asleep and len(lane.messages) > lane.coming and not self.limit.reached:
                consumer = self._next_for(lane)
                if consumer is None:
                    break
                if self._may_be_woken(consumer):
                    self._notify(consumer, lane)
                else:
                    todo += self._pass_over(consumer)

    def _next_for(self, lane: Lane[T]) -> Consumer[T] | None:
        if self.buffer.head(lane) is None:
            return None
        if self.age is not None:
            consumer = self.consumers.longest_asleep(lane)
            if consumer is not None and self._has_aged(consumer):
                return consumer
        return self.consumers.next_asleep(lane)

    def _may_be_woken(self, consumer: Consumer[T]) -> bool:
        """Whether the credit of a consumer still is what it was, and suffices for its next message."""
        if consumer.credit is None:
            return True
        candidate = self._candidate(consumer)
        if candidate is None or consumer.credit.fits(candidate.size):
            return True
        self.short[consumer] = candidate
        return False

    def _pass_over(self, consumer: Consumer[T]) -> list[Lane[T]]:
        """Count a consumer without enough credit as not interested; returns the lanes that others may take now."""
        self._leave(consumer)
        if consumer.on_credit is None:
            self.calls.append(consumer.wake)  # its owner follows the credit, and has to pull when there is some
        return self.lanes_of(consumer)

    def _notify(self, consumer: Consumer[T], lane: Lane[T]) -> None:
        self.consumers.move(consumer, NOTIFIED, INTERESTED)
        if self.age is not None and self.consumers.wanted_above(lane, consumer.priority):
            consumer.kept = self.buffer.take(lane)  # for one that waited too long: a higher priority may pull first
            consumer.kept.holder = consumer
        else:
            consumer.woken_for = lane
            lane.coming += 1
            self.limit.coming += 1
        self.count_wakeup(consumer)

    def count_wakeup(self, consumer: Consumer[T]) -> None:
        """Wake this consumer when the lock is released."""
        consumer.wakeups += 1
        self.calls.append(consumer.wake)

    def retry_short(self, but: Consumer[T] | None = None) -> None:
        """Look again at consumers whose next message was too large: another message may be their next."""
        self._retry([one for one in self.short if one is not but])

    def recheck(self) -> None:
        """Do what time alone gives reason for: some consumers have waited too long, some large messages expired."""
        self._retry([one for one, ready in self.short.items() if self.buffer.is_expired(ready)])
        self.wake(self.buffer.lanes)

    def _retry(self, short: list[Consumer[T]]) -> None:
        for consumer in short:
            del self.short[consumer]
            if consumer.credit is not None:
                self.calls.append(consumer.credit.forget_need)
