"""Moments and ages on the command line."""

from __future__ import annotations

from datetime import datetime


def past(text: str | None) -> datetime | None:
    """Like `moment`, but None for None."""
    return None if text is None else moment(text)


def moment(text: str) -> datetime:
    """Parse an ISO 8601 moment, or an age: "2h" is two hours ago."""
    from astyqueue.clock import SystemClock, instant
    from astyqueue.durations import parsed_past

    return instant(parsed_past(text, SystemClock().now()))
