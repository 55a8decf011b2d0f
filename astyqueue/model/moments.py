"""Moments and lengths of time in the words of people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from astyqueue.clock import SECOND, instant

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
#: A length of time is told in so many units: "2d3h", not "2d3h7m12s".
_UNITS_TOLD: Final = 2


def exact(moment: datetime) -> str:
    """A moment in JSON: "2026-11-21T09:00:00.000000Z", always in UTC and to the microsecond, so that texts sort as moments do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def iso(moment: datetime) -> str:
    """A moment in UTC, for people: "2026-11-21T09:00:00Z", with milliseconds if it has any."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


def with_age(moment: datetime, now: datetime) -> str:
    """A moment and how far it is from now: "2026-11-21T09:00:00Z (3m ago)"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return f"{iso(moment)} (now)"
    told = _told(int(abs(seconds)))
    return f"{iso(moment)} ({told} ago)" if seconds > 0 else f"{iso(moment)} (in {told})"


def told_at(moment: int, now: int) -> str:
    """As `with_age`, of microseconds since 1970."""
    return with_age(instant(moment), instant(now))


def told_length(microseconds: int) -> str:
    """A length of time in its two greatest units: "2d3h"; what is less than a second in milliseconds."""
    if microseconds < SECOND:
        return f"{microseconds // 1_000}ms"
    return _told(microseconds // SECOND)


def _told(seconds: int) -> str:
    parts: list[str] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:_UNITS_TOLD])
