"""Converts durations and moments ("10m", 600, 0.5, a `timedelta`, an aware `datetime`) to whole microseconds.

Units in text are w, d, h, m, s and ms, the greater first, each at most once: "1h30m", "1.5h", "2d 12h". A number, also
as text, is seconds.
"""

from __future__ import annotations

import math
import re
import reprlib
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, TypeGuard

from astyqueue.clock import microseconds
from astyqueue.errors import BadInput
from astyqueue.units import SECOND

#: A duration as callers may pass it.
Duration = float | timedelta | str

#: The longest duration: a hundred years, so that a moment that far from now still has an id and a datetime.
LONGEST: Final = 36_525 * 86_400 * SECOND

_UNITS: Final = {
    "w": 7 * 86_400 * SECOND,
    "d": 86_400 * SECOND,
    "h": 3_600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": SECOND // 1_000,
}
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_PLAIN: Final = re.compile(_NUMBER)
_PARTS: Final = re.compile(r"\s*".join(f"(?:({_NUMBER}){unit}(?![a-z]))?" for unit in _UNITS))
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = datetime(1600, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(5000, 1, 1, tzinfo=UTC)
#: The first and the last valid instant, in microseconds since 1970.
EARLIEST: Final = microseconds(_FIRST)
LATEST: Final = microseconds(_LAST)


def as_microseconds(duration: Duration) -> int:
    """A duration rounded to whole microseconds; BadInput unless it is from zero to a hundred years."""
    found = _exact(duration)
    if found is None or not 0 <= found <= LONGEST:
        message = (
            f"{reprlib.repr(duration)} is not a duration: give seconds (90 or 0.5), a timedelta, "
            'or text such as "10m", "1h30m", "500ms" or "2d", from zero to a hundred years'
        )
        raise BadInput(message)
    return round(found)


def seconds(duration: Duration) -> float:
    """A duration in seconds; BadInput unless it is from zero to a hundred years."""
    return as_microseconds(duration) / SECOND


def _exact(duration: object) -> Fraction | float | None:
    """The microseconds of a duration; None for another value."""
    if isinstance(duration, timedelta):
        return duration // _MICROSECOND
    if isinstance(duration, str):
        return _written(duration.strip())
    return duration * SECOND if _is_number(duration) else None


def _is_number(value: object) -> TypeGuard[float]:
    """Whether this is a finite number; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _written(text: str) -> Fraction | None:
    """The microseconds of a duration as text; None for other text."""
    if _PLAIN.fullmatch(text):
        return Fraction(text) * SECOND
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        return None
    sizes = zip(parts.groups(), _UNITS.values(), strict=True)
    return sum((Fraction(number) * size for number, size in sizes if number is not None), Fraction(0))


def parsed_moment(text: str) -> datetime:
    """An ISO 8601 moment. BadInput without a time zone, because the writer's time zone is unknown."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a moment: write 2026-11-21T09:00:00Z, or an offset such as +01:00 instead of Z"
        raise BadInput(message) from error
    if found.tzinfo is None:
        message = f"{text!r} has no time zone: write {found.isoformat()}Z for UTC, or add an offset such as +01:00"
        raise BadInput(message)
    return found


def parsed_past(text: str, now: int) -> int:
    """An ISO 8601 moment, or a duration before `now`: "2h" is two hours ago; in microseconds since 1970."""
    try:
        return now - as_microseconds(text)
    except BadInput:
        pass
    try:
        return instant_of(parsed_moment(text))
    except BadInput as error:
        message = f"{error}; or 2h for two hours ago"
        raise BadInput(message) from error


def instant_of(moment: object) -> int:
    """Microseconds since 1970 of an aware datetime from the year 1600 up to 5000; anything else raises BadInput."""
    if not isinstance(moment, datetime):
        problem = f"{moment!r:.120} is not a datetime: give an aware one, for example datetime.now(UTC)"
        raise BadInput(problem)
    try:
        found = microseconds(moment)
    except ValueError as error:
        raise BadInput(str(error)) from error
    if not EARLIEST <= found <= LATEST:
        bounds = f"{_FIRST.isoformat()} and {_LAST.isoformat()}"
        problem = f"{moment.isoformat()} is out of range: an instant lies between {bounds}"
        raise BadInput(problem)
    return found


def upper_bound_of(moment: object) -> int:
    """As `instant_of`, for the end of a period: a moment after the last valid one means "for ever", `LATEST`."""
    endless = isinstance(moment, datetime) and moment.tzinfo is not None and microseconds(moment) > LATEST
    return LATEST if endless else instant_of(moment)
