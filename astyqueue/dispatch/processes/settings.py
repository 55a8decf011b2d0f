"""How many child processes there are, and when each is replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The number of children, when one is replaced (messages, bytes in memory), and variables."""

    count: int
    max_tasks: int | None = None
    max_rss: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def available_processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
