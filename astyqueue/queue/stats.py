"""Counters of what one process did with one queue."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Counts since the queue was opened here.

    `redelivered` counts messages handed out that had used up an attempt before; `lost`, outcomes whose receipt was no longer
    current; `buried`, messages that a claim made dead letters; `undecodable`, messages and columns that could not be read.
    `rows` counts messages handed out per row.
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
    undecodable: int = 0
    rows: Counter[str] = field(default_factory=Counter)
