"""Moments, durations, counts and errors as text for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from astyqueue.clock import instant
from astyqueue.errors import HandlerFailed
from astyqueue.units import SECOND

_MILLISECOND: Final = SECOND // 1_000
_TENTH: Final = SECOND // 10
_UNITS: Final = {"d": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND}
#: A duration is shown in this number of units: "2d3h", not "2d3h7m12s".
_UNITS_SHOWN: Final = 2
#: Shorter ones are shown in hours: how long tombstones are kept, and rows rest, is spoken of in hours.
_LEAST_IN_DAYS: Final = 2 * _UNITS["d"]
#: Longer ones are shown in whole seconds.
_LONGEST_IN_TENTHS: Final = 10 * SECOND
#: Characters of an error's text that are kept in a reason: what a person reads in one line.
_REASON: Final = 1_000


def exact(moment: datetime) -> str:
    """A moment in JSON: "2026-11-21T09:00:00.000000Z", in UTC and to the microsecond: texts sort as moments do."""
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
    age = _in_units(int(abs(seconds)) * SECOND)
    return f"{iso(moment)} ({age} ago)" if seconds > 0 else f"{iso(moment)} (in {age})"


def instant_text(moment: int, now: int) -> str:
    """As `with_age`, for moments in microseconds since 1970."""
    return with_age(instant(moment), instant(now))


def length_text(microseconds: int) -> str:
    """A duration, rounded down: "350ms", "2.5s", "1m30s", "29h" or "2d3h"."""
    if 0 < microseconds < SECOND:
        return f"{microseconds // _MILLISECOND}ms"
    if microseconds < _LONGEST_IN_TENTHS:
        return f"{microseconds // _TENTH / 10:g}s"
    return _in_units(microseconds)


def _in_units(microseconds: int) -> str:
    """In the two greatest units, of which a zero is left out."""
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, rest = divmod(microseconds, size)
        if count and (unit != "d" or microseconds >= _LEAST_IN_DAYS):
            parts.append(f"{count}{unit}")
            microseconds = rest
    return "".join(parts[:_UNITS_SHOWN])


def duration_setting_text(duration: int) -> str:
    """Microseconds as "1d", "1h30m", "2.5s" or "500ms": text that reads back as the same duration."""
    if 0 < duration < SECOND and duration % _MILLISECOND == 0:
        return f"{duration // _MILLISECOND}ms"
    written = ""
    for unit in ("d", "h", "m"):
        count, duration = divmod(duration, _UNITS[unit])
        written += f"{count}{unit}" if count else ""
    if duration or not written:
        whole, part = divmod(duration, SECOND)
        written += f"{whole}.{part:06}".rstrip("0").rstrip(".") + "s"
    return written


def counted(count: int, what: str) -> str:
    """The number of things, as in "1 row", "2 rows" and "2 processes"."""
    return f"{count} {what}{'' if count == 1 else 'es' if what.endswith('s') else 's'}"


def type_and_text(error: BaseException | None, form: Callable[[object], str] = str) -> str:
    """The type of an error, and its text in a form if it has one; of one in another process, as they were there."""
    if isinstance(error, HandlerFailed):
        return form(error)
    try:
        text = form(error)
    except Exception:  # noqa: BLE001 - an error whose __str__ raises is still the reason
        text = "(its text is not available: its __str__ raised)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def reason_of(error: BaseException | None) -> str:
    """An error in one line: its type, and its text if it has one."""
    return type_and_text(error, one_line)


def one_line(text: object) -> str:
    """Text without line breaks, at most 1000 characters of it."""
    return " ".join(str(text).split())[:_REASON]
