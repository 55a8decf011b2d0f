"""Moments and ages on the command line."""

from __future__ import annotations

from datetime import datetime

from astyqueue.errors import BadInput


def written(text: str) -> datetime:
    """Parse an ISO 8601 moment. BadInput without a time zone, because the writer's time zone is unknown."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a moment: write 2026-11-21T09:00:00Z, or an offset such as +01:00 instead of Z"
        raise BadInput(message) from error
    if found.tzinfo is None:
        message = f"{text!r} has no time zone: write {found.isoformat()}Z for UTC, or add an offset such as +01:00"
        raise BadInput(message)
    return found


def past(text: str | None) -> datetime | None:
    """Like `moment`, but None for None."""
    return None if text is None else moment(text)


def moment(text: str) -> datetime:
    """Parse an ISO 8601 moment, or an age: "2h" is two hours ago."""
    from astyqueue.clock import SystemClock, instant
    from astyqueue.durations import as_microseconds

    try:
        return instant(SystemClock().now() - as_microseconds(text))
    except BadInput:
        pass
    try:
        return written(text)
    except BadInput as error:
        message = f"{error}; or 2h for two hours ago"
        raise BadInput(message) from error
