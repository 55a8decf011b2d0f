"""One consumer of several queues, such as a handler thread that serves them all.

While several queues have messages for it, each gets turns by its weight, evenly spread (stride scheduling). A pull
costs O(log n) in the queues that have something, and nothing for the others.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import NOT_INTERESTED, Consumer
from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.ready_buffer import ALL, Ready, Selector
from astyqueue.waiting import BargingLock

T = TypeVar("T")
#: The stride of a queue of weight 1: a multiple of small weights, so that theirs are exact.
_STRIDE: Final = 720_720
#: Creating a named tuple this way halves the cost; there is one for each message.
_new: Final = tuple.__new__


class Pulled(NamedTuple, Generic[T]):
    """A message, the manager it came from, and the consumer that holds it there, to release it with."""

    manager: ConsumerManager[T]
    consumer: Consumer[T]
    ready: Ready[T]


def stride_of(weight: int) -> int:
    """How far one turn moves a queue of this weight back among the others; at least 1, whatever the weight."""
    return max(1, _STRIDE // weight)


class QueueShare(Generic[T]):
    """A queue among those that a consumer serves. `position` grows with each turn, slower for a greater weight."""

    __slots__ = ("consumer", "listed", "manager", "number", "position", "stride")

    def __init__(self, manager: ConsumerManager[T], consumer: Consumer[T], weight: int, number: int) -> None:
        """Not listed: it is not known to have messages."""
        self.manager = manager
        self.consumer = consumer
        self.number = number
        self.position = 0
        self.stride = stride_of(weight)
        self.listed = False

    def __lt__(self, other: QueueShare[T]) -> bool:
        """Whether its turn comes first; of equals, the one that was added first."""
        return (self.position, self.number) < (other.position, other.number)


class MultiQueueConsumer(Generic[T]):
    """A consumer of several queues. One thread pulls; any thread may add queues and change its credit.

    Without credit it takes one message at a time: a pull says that the one before has ended. While it is busy with
    one, or has used up its credit, a queue wakes other consumers instead of this one.
    """

    def __init__(self, wake: Callable[[], None], credit: Credit | None = None) -> None:
        """`wake` is called when a queue has something and the last `pull` got nothing.

        `credit` is shared by all queues; give that of a message back when it has ended.
        """
        self.credit = credit
        self._wake = wake
        self._lock = BargingLock()
        self._numbers = itertools.count()
        self._shares: dict[ConsumerManager[T], QueueShare[T]] = {}
        self._ready: list[QueueShare[T]] = []
        self._expecting: set[QueueShare[T]] = set()
        self._position = 0
        self._asleep = False
        self._busy = False
        self._last: QueueShare[T] | None = None
        if credit is not None:
            credit.listen(self._on_credit)

    def _is_free(self) -> bool:
        """Whether it will pull once it is woken."""
        return not self._busy if self.credit is None else self.credit.interested

    def add_queue(
        self, manager: ConsumerManager[T], *, weight: int = 1, priority: int = 0, selector: Selector = ALL
    ) -> None:
        """Serve this queue too, from the next pull on. A queue of weight 3 gets three turns for each of weight 1."""
        consumer: Consumer[T] = Consumer(
            lambda: None, credit=self.credit, priority=priority, selector=selector, is_free=self._is_free
        )
        share = QueueShare(manager, consumer, weight, next(self._numbers))
        consumer.wake = functools.partial(self._on_wake, share)
        with self._lock:
            self._shares[manager] = share
        manager.add_consumer(consumer, follow_credit=False)
        self._on_wake(share)

    def remove_queue(self, manager: ConsumerManager[T]) -> None:
        """Serve this queue no longer, if it was. Messages that came from it stay with this consumer until released."""
        with self._lock:
            share = self._shares.pop(manager, None)
            if share is None:
                return
            self._expecting.discard(share)
        manager.remove_consumer(share.consumer)

    def close(self) -> None:
        """Serve no queue any more."""
        if self.credit is not None:
            self.credit.unlisten(self._on_credit)
        for manager in list(self._shares):
            self.remove_queue(manager)

    def pull(self) -> Pulled[T] | None:
        """The next message; None if no queue has one, after a look at each that might.

        After None, `wake` is called when a queue has something.
        """
        last = self._last
        if last is None:
            return self._pull_in_turn(None)
        pulled = self._pull_next_quickly(last) if self._ready else self._pull_quickly(last)
        return pulled or self._pull_in_turn(last)

    def _pull_quickly(self, share: QueueShare[T]) -> Pulled[T] | None:
        """A message of this queue in the usual case; None in others. The consumer stays busy: no queue has to know."""
        ready = share.manager.pull_quickly(share.consumer)
        if ready is None:
            return None
        self._position = share.position
        share.position += share.stride
        return _new(Pulled, (share.manager, share.consumer, ready))

    def _pull_next_quickly(self, last: QueueShare[T]) -> Pulled[T] | None:
        """As `_pull_quickly`, of the queue whose turn it is: several have something. A message of `last` has ended."""
        with self._lock:
            self._list(last)
            share = self._take_first()
        pulled = self._pull_quickly(share) if share.manager in self._shares else None
        if pulled is None:
            with self._lock:
                self._list(share)
            return None
        self._last = share
        if share is not last:
            last.manager.ended(last.consumer)
        return pulled

    def _pull_in_turn(self, last: QueueShare[T] | None) -> Pulled[T] | None:
        """Pull from one queue after the other; a message of `last` has ended."""
        while (share := self._next()) is not None:
            ready = share.manager.pull(share.consumer, ended=share is last)
            if share is last:
                last = None
            self._after_pull(share, got=ready is not None)
            if ready is not None:
                if last is not None:
                    last.manager.ended(last.consumer)
                self._on_credit()
                return Pulled(share.manager, share.consumer, ready)
        return None

    def _after_pull(self, share: QueueShare[T], *, got: bool) -> None:
        """List a queue again that gave something, or that refused for want of credit and so does not wake this one."""
        without_credit = share.consumer.state is NOT_INTERESTED and share.consumer.live
        with self._lock:
            if got:
                share.position += share.stride
            if self.credit is None:
                self._busy, self._last = got, share if got else None
                return
            if got and not without_credit:
                self._expecting.add(share)
            if got or without_credit:
                self._list(share)

    def _next(self) -> QueueShare[T] | None:
        """The queue whose turn it is."""
        with self._lock:
            self._busy = False
            if (last := self._last) is not None:
                self._last = None
                self._list(last)
            while self._ready and self._is_free():
                share = self._take_first()
                if share.manager in self._shares:
                    self._position = share.position
                    return share
            self._asleep = True
            return None

    def _take_first(self) -> QueueShare[T]:
        """Take the listed queue whose turn it is off the list, before the pull."""
        share = heapq.heappop(self._ready)
        share.listed = False
        self._expecting.discard(share)  # a wake-up that comes during the pull has to be followed
        return share

    def _list(self, share: QueueShare[T]) -> None:
        """List a queue as having something. One that had nothing for a while saved up no turns."""
        if not share.listed:
            share.listed = True
            share.position = max(share.position, self._position)
            heapq.heappush(self._ready, share)

    def _on_wake(self, share: QueueShare[T]) -> None:
        """A queue has something; it is to wake another consumer if this one will not pull."""
        with self._lock:
            self._list(share)
            can_come = self._is_free()
            wake = can_come and self._asleep
            self._asleep &= not can_come
            # Also if it is busy: it may be free again, and then busy anew, before `refresh` below looks.
            self._expecting.add(share)
        if not can_come:
            self._hand_over(share)
        elif wake:
            self._wake()

    def _hand_over(self, share: QueueShare[T]) -> None:
        """Have a queue wake another consumer if this one will not pull; then it is listed, to be looked at later."""
        share.manager.refresh(share.consumer)
        with self._lock:
            if share.consumer.state is NOT_INTERESTED and share.consumer.live:
                self._list(share)
        self._wake_if_asleep()

    def _on_credit(self) -> None:
        """Follow the credit: without any, no queue may expect this consumer; with some, it looks at those listed."""
        expecting: set[QueueShare[T]] = set()
        with self._lock:
            if not self._is_free():
                expecting, self._expecting = self._expecting, expecting
        for share in expecting:
            self._hand_over(share)
        if self._asleep:
            self._wake_if_asleep()

    def _wake_if_asleep(self) -> None:
        """Wake the thread that got nothing from its last pull, if a queue is listed and it is free."""
        with self._lock:
            wake = self._asleep and bool(self._ready) and self._is_free()
            if wake:
                self._asleep = False
        if wake:
            self._wake()
