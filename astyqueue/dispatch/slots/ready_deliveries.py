"""The deliveries of one queue that were claimed, and wait for a slot."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from astyqueue.clock import Clock
from astyqueue.dispatch.consumers import ConsumerManager, Ready
from astyqueue.dispatch.flow_control import AdaptivePrefetch
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.units import BEGINNING


class ReadyDeliveries:
    """The deliveries of a queue that wait, and the slots that take them: consumers of its `manager`."""

    def __init__(self, clock: Clock, prefetch: AdaptivePrefetch, limit: int | None) -> None:
        """At most `limit` deliveries are with slots at a time. Those that waited for too long shrink `prefetch`."""
        self.manager: ConsumerManager[Delivery] = ConsumerManager(clock.now, running=limit)
        self._clock = clock
        self._prefetch = prefetch
        self._lock = threading.Lock()
        self._shut = False
        self._first: Ready[Delivery] | None = None
        self._first_since = BEGINNING

    def __len__(self) -> int:
        """The number of waiting deliveries."""
        return len(self.manager)

    @property
    def places(self) -> int | None:
        """How many more deliveries slots may have, if that has a limit."""
        return self.manager.places

    def accept(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Add these deliveries; returns those to give back because it was shut."""
        with self._lock:
            late = [delivery for delivery in deliveries if not delivery.settled] if self._shut else []
            self._add(deliveries if not late else [one for one in deliveries if one.settled])
        return late

    def _add(self, deliveries: Iterable[Delivery]) -> None:
        self.manager.put([Ready(delivery) for delivery in deliveries])

    def hoarded(self) -> list[Delivery]:
        """The deliveries to give back because every slot was busy and none was taken for too long."""
        now = self._clock.monotonic()
        first = self.manager.oldest if len(self.manager) else None
        if first is not self._first:
            self._first, self._first_since = first, now
        if first is None or now - self._first_since < self._prefetch.hoarded_after:
            return []
        lease = first.message.lease
        if lease is not None and lease.timer.due <= self._clock.now():
            return []  # others may claim it already: there is nothing to release
        self._prefetch.hoarded(now - self._first_since)
        return self.give_back()

    def shut(self) -> list[Delivery]:
        """Accept no more; returns the deliveries to give back. At-most-once ones stay, to be handled."""
        with self._lock:
            self._shut = True
        return self.give_back()

    def give_back(self) -> list[Delivery]:
        """Remove and return the waiting deliveries that a process can claim again; at-most-once ones stay."""
        waiting = self.abandon()
        self._add(delivery for delivery in waiting if delivery.settled)
        return [delivery for delivery in waiting if not delivery.settled]

    def abandon(self) -> list[Delivery]:
        """Remove and return all waiting deliveries."""
        return [ready.message for ready in self.manager.take_back()]
