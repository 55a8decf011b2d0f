"""Messages that are handed out at most once: the store has given them away before anybody has them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from astyqueue.protocol.picking import Held
from astyqueue.queue.holding import AT_MOST_ONCE
from astyqueue.queue.seats import Seats, Shares
from astyqueue.queue.stats import Stats
from astyqueue.queue.telling import Telling

_log: Final = logging.getLogger("astyqueue.queue")


class Once:
    """Hands them out, and keeps those whose taker has left for whoever comes next in this process.

    They are lost with the process, as at most once allows; what is lost because the queue is closed, or because it expired
    while nobody came, is counted.
    """

    def __init__(self, seats: Seats, stats: Stats, telling: Telling) -> None:
        """Nothing is kept yet."""
        self._telling = telling
        self._seats = seats
        self._stats = stats
        self._lock = threading.Lock()
        self._kept: list[tuple[str, Held]] = []

    def hand_out(self, row: str, held: list[Held], *, shares: Shares) -> None:
        """Hand out what was claimed of a row, first come first served."""
        if not held:
            return
        dealt = self._seats.deal(row, held, None, shares=shares)
        self.keep((row, one) for one in held[sum(len(deliveries) for _, deliveries in dealt) :])
        unwanted = self._seats.accept(dealt)
        self.keep((delivery.row, delivery.held) for delivery in unwanted)
        for delivery in (one for _, deliveries in dealt for one in deliveries if one not in unwanted):
            self._telling.happened(delivery, AT_MOST_ONCE)

    def keep(self, undealt: Iterable[tuple[str, Held]]) -> None:
        """Keep what its taker never saw."""
        with self._lock:
            self._kept.extend(undealt)

    def hand_out_kept(self, now: int, *, shares: Shares) -> bool:
        """Hand out what was kept; whether there was any."""
        kept = self._take_kept()
        good = [(row, one) for row, one in kept if one.envelope.expires is None or one.envelope.expires > now]
        self._stats.add("dropped", len(kept) - len(good))
        for row, one in good:
            self.hand_out(row, [one], shares=shares)
        return bool(kept)

    def close(self, queue: str) -> None:
        """Count and tell what was kept in vain."""
        if kept := self._take_kept():
            self._stats.add("dropped", len(kept))
            _log.warning(
                "%s: %d of the messages that are handed out at most once went to nobody before the queue was closed", queue, len(kept)
            )

    def _take_kept(self) -> list[tuple[str, Held]]:
        with self._lock:
            kept, self._kept = self._kept, []
        return kept
