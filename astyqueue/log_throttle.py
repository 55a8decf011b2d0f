"""Limits what would fill a log: one entry a minute of each name, and of at most 100 names."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from astyqueue.units import SECOND, MonotonicUs

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: Moments of one clock, whichever it is.
M = TypeVar("M", int, MonotonicUs)

MINUTE: Final = 60 * SECOND
#: The most names within a minute: producers choose the names of tasks, and handlers what they raise.
NAMES: Final = 100


class MinuteLimit(Generic[K, V, M]):
    """Keeps the first entry of each name for a minute. Safe from any thread."""

    def __init__(self) -> None:
        """Start without names."""
        self._kept: dict[K, tuple[M, V]] = {}
        self._lock = threading.Lock()

    def first(self, name: K, entry: V, now: M) -> V | None:
        """The first entry of this name within the minute before `now` (microseconds): `entry` itself if it is that.

        None if there were 100 other names within that minute.
        """
        with self._lock:
            self._kept = {other: kept for other, kept in self._kept.items() if 0 <= now - kept[0] < MINUTE}
            if name not in self._kept and self.full:
                return None
            return self._kept.setdefault(name, (now, entry))[1]

    @property
    def full(self) -> bool:
        """Whether the names of this minute are used up."""
        return len(self._kept) >= NAMES


class RateLimitedLog:
    """Limits log lines to one per name and 100 names a minute."""

    def __init__(self) -> None:
        """Start without names."""
        self._lines: MinuteLimit[str | None, object, MonotonicUs] = MinuteLimit()

    def may_say(self, name: str | None, now: MonotonicUs) -> bool:
        """Whether to log a line of this name at the monotonic moment `now`; if so, it is counted."""
        line = object()
        return self._lines.first(name, line, now) is line

    @property
    def full(self) -> bool:
        """Whether the names of this minute are used up."""
        return self._lines.full
