"""Messages delivered at most once: they are removed from the store before a consumer gets them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from astyqueue.model.envelope import MessageId
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.queue.consuming.waiters import Shares, Waiters
from astyqueue.queue.delivery.base_delivery import AT_MOST_ONCE
from astyqueue.queue.hooks import HookNotifier
from astyqueue.queue.metrics import QueueStats
from astyqueue.structured_log import log_event

_log: Final = logging.getLogger("astyqueue.queue")


class AtMostOnceBuffer:
    """Delivers messages that are delivered at most once, and keeps those whose waiter has left for the next one here.

    They are lost with the process, as at most once allows. Those lost because the queue is closed, or because they
    expired before a waiter came, are counted as `dropped`.
    """

    def __init__(self, waiters: Waiters, stats: QueueStats, notifier: HookNotifier) -> None:
        """`notifier` calls the hooks."""
        self._notifier = notifier
        self._waiters = waiters
        self._stats = stats
        self._lock = threading.Lock()
        self._kept: list[tuple[str, ClaimedMessage]] = []

    def hand_out(self, row: str, held: list[ClaimedMessage], *, shares: Shares) -> None:
        """Deliver messages that were claimed from a row, first come first served."""
        if not held:
            return
        allocated = self._waiters.allocate(row, held, None, shares=shares)
        self.keep((row, one) for one in held[sum(len(deliveries) for _, deliveries in allocated) :])
        unwanted = self._waiters.deliver(allocated)
        self.keep((delivery.row, delivery.held) for delivery in unwanted)
        for delivery in (one for _, deliveries in allocated for one in deliveries if one not in unwanted):
            self._notifier.settled(delivery, AT_MOST_ONCE)

    def keep(self, left: Iterable[tuple[str, ClaimedMessage]]) -> None:
        """Keep messages that no consumer got."""
        with self._lock:
            self._kept.extend(left)

    def hand_out_kept(self, now: int, *, shares: Shares) -> bool:
        """Deliver the kept messages; returns whether there were any."""
        kept = self._take_kept()
        if not kept:
            return False
        good = [(row, one) for row, one in kept if not _is_expired(one, now)]
        self._drop([(row, one) for row, one in kept if _is_expired(one, now)], "expired")
        for row, one in good:
            self.hand_out(row, [one], shares=shares)
        return True

    def close(self, queue: str) -> None:
        """Count and log the messages that no consumer got."""
        if kept := self._take_kept():
            self._drop(kept, "closed")
            self._notifier.call()
            log_event(_log, logging.WARNING, "at_most_once_dropped", queue=queue, messages=len(kept), reason="closed")

    def _drop(self, kept: list[tuple[str, ClaimedMessage]], why: str) -> None:
        self._stats.add("dropped", len(kept))
        for row, one in kept:
            self._notifier.deleted(MessageId(row, one.entry.priority, one.entry.id), why)

    def _take_kept(self) -> list[tuple[str, ClaimedMessage]]:
        with self._lock:
            kept, self._kept = self._kept, []
        return kept


def _is_expired(one: ClaimedMessage, now: int) -> bool:
    return one.envelope.expires is not None and one.envelope.expires <= now
