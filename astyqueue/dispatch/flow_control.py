"""The limits of a dispatcher's deliveries: the prefetch bound, the total number of messages, and those at a time.

The prefetch bound is large enough that no handler waits for a claim, and small enough that no delivery is hoarded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Final

from astyqueue.dispatch.running_executions import ExecutionsUnderWay
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.units import SECOND

#: The backlog should be handled within this time: longer than several claims, short for consumers that could take it.
_HORIZON: Final = SECOND // 10
#: ... and within this part of a lease.
_PART_OF_LEASE: Final = 10
#: The most deliveries that wait: two claims, so that one can be under way while the other is handled.
_MOST: Final = 400
#: Deliveries of a bound that adapts go back when no handler took one for this duration, those of a fixed one after half
#: a lease if that is longer: another process may have a free handler.
_HOARDED: Final = 2 * SECOND
#: The typical duration is a moving average over about this number of attempts.
_MEMORY: Final = 8
#: A change by less than this factor is ignored, so that the bound does not oscillate.
_WORTH_A_CHANGE: Final = 2


class AdaptivePrefetch:
    """The bound of a backlog, computed from how long handlers take.

    It starts at zero: each free handler gets one delivery. With quick handlers it grows to the number they handle in a
    tenth of a second (or of the lease); with slow ones it shrinks, back to zero if one takes longer than that. A fixed
    bound is zero after deliveries were hoarded, until a handler ends.
    """

    def __init__(self, threads: int, lease: int, fixed: int | None = None) -> None:
        """For `threads` concurrent handlers and a lease in microseconds; a `fixed` bound does not adapt."""
        self.bound = self._fixed = fixed or 0
        self._withheld = False
        #: Deliveries go back when no handler took one for this duration.
        self.hoarded_after = _HOARDED if fixed is None else max(_HOARDED, lease // 2)
        #: The part of the threads' time that is for these handlers, while other queues have messages too.
        self.part = 1.0
        self.adapts = fixed is None
        self._budget = threads * min(_HORIZON, lease // _PART_OF_LEASE)
        self._typical = float(2 * self._budget)

    def took(self, microseconds: int) -> None:
        """Record the duration of one attempt. Many threads call this without a lock: a lost update does no harm."""
        self._typical += (microseconds - self._typical) / _MEMORY
        if self._withheld:
            self._withheld = False
            self.bound = self._fixed

    def hoarded(self, microseconds: int) -> None:
        """No handler took a delivery for this long: have none wait until handlers are quick, or one ends."""
        if self.adapts:
            self.took(microseconds)
        else:
            self._withheld = True
            self.bound = 0

    def adapt(self) -> None:
        """Set the bound from the observed durations."""
        wanted = min(_MOST, int(self.part * self._budget / max(1.0, self._typical)))
        if self.adapts and (wanted >= self.bound * _WORTH_A_CHANGE or wanted * _WORTH_A_CHANGE <= self.bound):
            self.bound = wanted


class InFlightLimit:
    """How many messages of one queue a process has at the same time: waiting for a handler, or with one.

    Nothing is claimed beyond it, so that what is too much for this process is there for others. Only the thread that
    leads the claims of the queue calls `accepted` and `room`; any thread calls `left`.
    """

    def __init__(self, most: int, under_way: ExecutionsUnderWay, now: Callable[[], int]) -> None:
        """At most `most` messages, whatever the kinds of their handlers."""
        self._most = most
        self._under_way = under_way
        self._now = now
        self._not_begun: list[BaseDelivery] = []
        self._left: deque[BaseDelivery] = deque()

    def accepted(self, deliveries: Iterable[BaseDelivery]) -> None:
        """Count deliveries that were claimed."""
        self._not_begun.extend(deliveries)

    def left(self, delivery: BaseDelivery) -> None:
        """A handler has ended, or does not begin. Of one delivered at most once nothing else says the latter."""
        if delivery.lease is None and delivery.began is None:
            self._left.append(delivery)

    def room(self) -> int:
        """How many more messages may be claimed."""
        left = {self._left.popleft() for _ in range(len(self._left))}
        # Before those under way are counted: one that begins meanwhile counts twice rather than not at all.
        self._not_begun = [one for one in self._not_begun if one not in left and self._waits(one)]
        return max(0, self._most - len(self._not_begun) - self._under_way.count)

    def _waits(self, delivery: BaseDelivery) -> bool:
        over = delivery.lease is not None and (delivery.decided or delivery.lease.timer.due <= self._now())
        return delivery.began is None and not over


class MessageQuota:
    """The total number of messages a dispatcher begins; when the last of them has ended, the dispatcher ends.

    No more are claimed than may still begin; if several queues claim the last ones, surplus deliveries go back. Those
    without a lease, delivered at most once, cannot: they are handled too, and not counted.
    """

    def __init__(self, most: int | None) -> None:
        """Without `most` the number is not `limited`, and executions need not be counted."""
        self.on_end: Callable[[], None] = lambda: None
        self.limited = most is not None
        #: While it is set, nothing is claimed.
        self.held = False
        self._most = most
        self._lock = threading.Lock()
        self._begun = 0
        self._ended = 0
        self._lines: list[Sized] = []

    def count_line(self, line: Sized) -> None:
        """Count the deliveries that wait in this line as claimed."""
        self._lines.append(line)

    def forget_line(self, line: Sized) -> None:
        """Count the deliveries in this line no longer."""
        self._lines = [other for other in self._lines if other is not line]

    def room(self, wanted: int) -> int:
        """How many of the wanted messages may be claimed."""
        if self.held:
            return 0
        return (
            wanted if self._most is None else max(0, min(wanted, self._most - self._begun - sum(map(len, self._lines))))
        )

    def begin(self) -> bool:
        """Count one more message as begun; returns False, without counting it, if the limit is reached."""
        with self._lock:
            if self._begun == self._most:
                return False
            self._begun += 1
            return True

    def end(self) -> None:
        """Count a message that began as ended or given up; the last one ends the dispatcher."""
        with self._lock:
            self._ended += 1
            last = self._ended == self._most
        if last:
            self.on_end()
