"""The leases of one process in a queue: how many deliveries they cover, and when each is renewed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from astyqueue.protocol.settling.outcomes import Outcomes
from astyqueue.protocol.settling.settle import SettleResult
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease, after_settling
from astyqueue.units import NEVER


class LeaseTable:
    """The leases of this process in one queue. Only the leader changes it; `leased_count`: the unsettled deliveries."""

    def __init__(self) -> None:
        """No lease."""
        self.leased_count = 0
        self._leases: set[Lease] = set()
        self._settled_elsewhere: deque[BaseDelivery] = deque()  # any thread appends; the leader removes

    def __repr__(self) -> str:
        """How many leases there are, and how many of their deliveries are not settled."""
        return f"<LeaseTable: {len(self._leases)} leases, {self.leased_count} deliveries>"

    def add(self, lease: Lease, deliveries: list[BaseDelivery]) -> None:
        """Add a lease and its deliveries."""
        lease.deliveries.update({delivery.id: delivery for delivery in deliveries})
        self._leases.add(lease)
        self.leased_count += len(deliveries)

    def settled(self, lease: Lease, outcomes: Outcomes, result: SettleResult) -> list[BaseDelivery]:
        """Update a lease after a commit, which may split it; returns the deliveries that were lost."""
        before = len(lease.deliveries)
        lost, parted = after_settling(lease, outcomes, result)
        if lease in self._leases:
            self.leased_count -= before - len(lease.deliveries) - sum(len(part.deliveries) for part in parted)
            self._leases.update(parted)
        if not lease.deliveries:
            self._leases.discard(lease)
        return lost

    def settled_elsewhere(self, deliveries: Iterable[BaseDelivery]) -> None:
        """Note, in any thread, deliveries that were settled by a commit of another thread than the leader's."""
        self._settled_elsewhere.extend(deliveries)

    def _drop_settled(self) -> None:
        while self._settled_elsewhere:
            delivery = self._settled_elsewhere.popleft()
            lease = delivery.lease
            if lease is not None and lease in self._leases and delivery.id in lease.deliveries:
                del lease.deliveries[delivery.id]
                self.leased_count -= 1
                if not lease.deliveries:
                    self._leases.discard(lease)

    def forget_lapsed(self, now: int, waits: Callable[[Lease], bool]) -> None:
        """Drop leases that have run out, unless something of them `waits` for a commit.

        Other consumers may have their messages. A late settle may still be tried.
        """
        lapsed = [lease for lease in self._leases if lease.timer.due <= now and not waits(lease)]
        self._leases.difference_update(lapsed)
        self.leased_count -= sum(len(lease.deliveries) for lease in lapsed)

    def begin_renewals(self, now: int) -> list[Lease]:
        """The leases to be renewed now, of those that have such messages; their next renewals are planned."""
        if self._settled_elsewhere:
            self._drop_settled()
        due = [lease for lease in self._leases if lease.renew_at <= now]
        if not due:  # the common case, kept cheap
            return due
        for lease in due:
            lease.plan_renewal(now)
        return [lease for lease in due if lease.to_be_renewed(now)]

    @property
    def next_renewal(self) -> int:
        """When the next lease is to be renewed; NEVER if none is."""
        return min([lease.renew_at for lease in self._leases], default=NEVER)

    def set_back(self, now: int) -> None:
        """After the clock was set back, renew leases by the new time, not when it has caught up."""
        for lease in self._leases:
            lease.renew_at = min(lease.renew_at, now + lease.duration // 2)
