"""Moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from astyqueue.errors import BadInput

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
#: An age is told in so many units: "2d3h", not "2d3h7m12s".
_UNITS_TOLD: Final = 2


def iso(moment: datetime) -> str:
    """A moment in UTC: "2026-11-21T09:00:00Z", with milliseconds if it has any."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


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


def with_age(moment: datetime, now: datetime) -> str:
    """A moment and how far it is from now: "2026-11-21T09:00:00Z (3m ago)"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return f"{iso(moment)} (now)"
    told = _told(int(abs(seconds)))
    return f"{iso(moment)} ({told} ago)" if seconds > 0 else f"{iso(moment)} (in {told})"


def _told(seconds: int) -> str:
    """A duration in its two greatest units."""
    parts: list[str] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:_UNITS_TOLD])
