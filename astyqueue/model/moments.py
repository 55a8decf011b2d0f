"""Moments and durations as text for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from astyqueue.clock import instant
from astyqueue.units import SECOND

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
#: A duration is shown in this number of units: "2d3h", not "2d3h7m12s".
_UNITS_SHOWN: Final = 2


def exact(moment: datetime) -> str:
    """A moment in JSON: "2026-11-21T09:00:00.000000Z".

    It is always in UTC and to the microsecond, so that texts sort as moments do.
    """
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def iso(moment: datetime) -> str:
    """A moment in UTC, for people: "2026-11-21T09:00:00Z", with milliseconds if it has any."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


def with_age(moment: datetime, now: datetime) -> str:
    """A moment and its distance from `now`: "2026-11-21T09:00:00Z (3m ago)"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return f"{iso(moment)} (now)"
    age = _in_units(int(abs(seconds)))
    return f"{iso(moment)} ({age} ago)" if seconds > 0 else f"{iso(moment)} (in {age})"


def instant_text(moment: int, now: int) -> str:
    """As `with_age`, for moments in microseconds since 1970."""
    return with_age(instant(moment), instant(now))


def length_text(microseconds: int) -> str:
    """A duration in its two greatest units: "2d3h"; below a second in milliseconds."""
    if microseconds < SECOND:
        return f"{microseconds // 1_000}ms"
    return _in_units(microseconds // SECOND)


def _in_units(seconds: int) -> str:
    parts: list[str] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:_UNITS_SHOWN])
