"""The counters of one process for one queue."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from astyqueue.model.envelope import MessageId
from astyqueue.protocol.claiming.claim import ClaimResult

#: The number of messages with lost outcomes that are remembered.
_LATEST: Final = 10


@dataclass(slots=True)
class QueueStats:
    """Counts since this process opened the queue; `add` may be called from any thread.

    - `sent`, `received`, `acked`: messages
    - `empty_polls`: calls of `receive` that got nothing
    - `redelivered`: delivered messages that had used an attempt before
    - `released`: deliveries given back, also by a failed attempt
    - `rejected`: dead letters made by a settle, also by a last failed attempt
    - `claims`: scans to claim from a row, also those that found nothing
    - `refused_commits`: refused commits of claims
    - `lost`: outcomes whose receipt was no longer current
    - `buried`: messages that a claim made dead letters
    - `undecodable`: messages and columns that could not be read
    - `dropped`: at-most-once messages that no consumer took before they expired or the queue was closed
    - `rows`: delivered messages per row
    - `fired`: messages that schedules sent
    - `busy_rows`: visits to rows whose lock another process had
    - `spooled`: messages that sends wrote to the spool; `sent` counts them once the spool's forwarder has stored them
    - `refused`: messages that were not sent because the queue was full
    - `evicted`: messages that sends deleted because the queue was full
    - `forwarded`: those of `sent` that went to another queue because this one was full
    """

    sent: int = 0
    received: int = 0
    redelivered: int = 0
    acked: int = 0
    released: int = 0
    rejected: int = 0
    lost: int = 0
    buried: int = 0
    claims: int = 0
    empty_polls: int = 0
    refused_commits: int = 0
    busy_rows: int = 0
    undecodable: int = 0
    dropped: int = 0
    fired: int = 0
    spooled: int = 0
    refused: int = 0
    evicted: int = 0
    forwarded: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    _latest: deque[MessageId] = field(default_factory=partial(deque, maxlen=_LATEST), repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, name: str, count: int = 1) -> None:
        """Add `count` to the counter of this name."""
        with self._lock:
            setattr(self, name, getattr(self, name) + count)

    def lose(self, message: MessageId) -> None:
        """Count an outcome whose receipt was no longer current."""
        with self._lock:
            self.lost += 1
            self._latest.append(message)

    def latest_lost(self, count: int) -> list[MessageId]:
        """The messages of the last `count` lost outcomes (ten are remembered)."""
        with self._lock:
            return list(self._latest)[-count:]

    def count(self, row: str, claimed: ClaimResult) -> int:
        """Count the results of a claim; returns the number of messages it delivered."""
        handed = [one for taken in claimed.claims for one in taken.held] + claimed.at_most_once
        self.add("claims")
        self.add("refused_commits", claimed.refused)
        self.add("buried", claimed.dead)
        self.add("undecodable", claimed.undecodable)
        self.rows[row] += len(handed)
        self.add("received", len(handed))
        self.add("redelivered", len([one for one in handed if one.entry.spent > 0]))
        return len(handed)
