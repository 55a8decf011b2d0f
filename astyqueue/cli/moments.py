"""Moments as people type them."""

from __future__ import annotations

from datetime import datetime

from astyqueue.errors import BadInput


def written(text: str) -> datetime:
    """The moment in a text; one without a time zone raises BadInput, because nobody can tell where it was written."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a moment: write 2026-11-21T09:00:00Z, or +01:00 in place of the Z"
        raise BadInput(message) from error
    if found.tzinfo is None:
        message = f"{text!r} has no time zone: write {found.isoformat()}Z for UTC, or an offset such as +01:00 in place of the Z"
        raise BadInput(message)
    return found


def past(text: str | None) -> datetime | None:
    """As `moment`, if there is a text."""
    return None if text is None else moment(text)


def moment(text: str) -> datetime:
    """The moment that was written, or so long ago: "2h" is two hours ago."""
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
