"""Moments as people type them."""

from __future__ import annotations

from datetime import datetime

from astyqueue.errors import BadInput


def written(text: str) -> datetime:
    """The moment in a text; one without a time zone raises BadInput, because nobody can tell where it was written."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a moment: write 2026-11-21T09:00:00Z, or +01:00 in place of the Z"
        raise BadInput(message) from error
    if moment.tzinfo is None:
        message = f"{text!r} has no time zone: add Z for UTC, or an offset such as +01:00"
        raise BadInput(message)
    return moment
