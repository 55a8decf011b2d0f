"""The waiters of a queue in this process, and which messages each gets: first come, first served."""

from __future__ import annotations

import threading

from astyqueue.clock import Clock
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease, Waiter
from astyqueue.units import NEVER, MonotonicUs

#: The number of messages that each waiter was promised, reduced as it gets them.
Shares = dict[Waiter, int]


class Waiters:
    """The waiters of a queue in this process, in order of arrival."""

    def __init__(self, clock: Clock) -> None:
        """`full_for`: how long (microseconds) all waiters were without credit, the last time that was so."""
        self.full_for = NEVER
        self._clock = clock
        self._full_since: MonotonicUs | None = None
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []

    def __repr__(self) -> str:
        """The number of waiters."""
        return f"<Waiters: {len(self._waiters)}>"

    def add(self, waiter: Waiter) -> None:
        """Add a waiter at the end of the line."""
        with self._lock:
            self._waiters.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter; it gets no deliveries afterwards."""
        with self._lock:  # no other call comes before the removal: it might be interrupted
            if waiter in self._waiters:  # or an interrupt came before it was added
                self._waiters.remove(waiter)
        at = self._clock.monotonic()
        with self._lock:
            if not self._waiters:
                self._note(at, full=True)

    def shares(self) -> Shares:
        """Each waiter's credit; messages claimed for it are its own unless it leaves. Only the leader calls this."""
        shares = {waiter: credit for waiter in self._in_line() if (credit := waiter.credit()) > 0}
        at = self._clock.monotonic()
        with self._lock:
            self._note(at, full=shares.keys().isdisjoint(self._waiters))
        return shares

    def _note(self, at: MonotonicUs, *, full: bool) -> None:
        if not full and self._full_since is not None:
            self.full_for, self._full_since = at - self._full_since, None
        elif full and self._full_since is None:
            self._full_since = at

    def fail(self, error: Exception, shares: Shares) -> bool:
        """End the wait of one waiter with an error, preferring one with a share; False if there is no waiter."""
        with self._lock:
            waiting = [waiter for waiter in self._waiters if waiter in shares] or self._waiters
            waiter = next((waiter for waiter in waiting if waiter.error is None), None)
            if waiter is None:
                return bool(waiting)
            waiter.error = error
        waiter.wake()
        return True

    def allocate(
        self, row: str, held: list[ClaimedMessage], lease: Lease | None, *, shares: Shares
    ) -> list[tuple[Waiter, list[BaseDelivery]]]:
        """Assign these messages to the waiters by their shares; the rest is left over."""
        allocated: list[tuple[Waiter, list[BaseDelivery]]] = []
        first = 0
        for waiter in self._in_line():
            share = held[first : first + shares.get(waiter, 0)]
            if share:
                allocated.append((waiter, waiter.deliveries_of(row, share, lease)))
                shares[waiter] -= len(share)
                first += len(share)
        return allocated

    def deliver(self, allocated: list[tuple[Waiter, list[BaseDelivery]]]) -> list[BaseDelivery]:
        """Deliver what was allocated; returns the deliveries of waiters that have left, which get nothing."""
        unwanted: list[BaseDelivery] = []
        for waiter, deliveries in allocated:
            if not self._deliver_to(waiter, deliveries):
                unwanted += deliveries
        return unwanted

    def _deliver_to(self, waiter: Waiter, deliveries: list[BaseDelivery]) -> bool:
        with self._lock:
            if waiter not in self._waiters:
                return False
            waiter.accept(deliveries)
        waiter.wake()
        return True

    def _in_line(self) -> tuple[Waiter, ...]:
        with self._lock:
            return tuple(self._waiters)
