"""Durations as people write them, in whole microseconds: "10m", 600, 0.5 or a `timedelta`.

Units in text are w, d, h, m, s and ms, the greater first, each at most once: "1h30m", "1.5h", "2d 12h". Text without a
unit is seconds, as a number is.
"""

from __future__ import annotations

import math
import re
import reprlib
from datetime import timedelta
from fractions import Fraction
from typing import Final, TypeGuard

from astyqueue.clock import SECOND
from astyqueue.errors import BadInput

#: A duration as it may be handed in.
Duration = float | timedelta | str

#: The longest duration there is: a hundred years, so that a moment that far from now is still an id and a datetime.
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


def as_microseconds(duration: Duration) -> int:
    """The whole microseconds of a duration, to the nearest; raises `BadInput` unless it is from zero to a hundred years."""
    found = _exact(duration)
    if found is None or not 0 <= found <= LONGEST:
        message = (
            f"{reprlib.repr(duration)} is not a duration: give seconds (90 or 0.5), a timedelta, "
            'or text such as "10m", "1h30m", "500ms" or "2d", from zero to a hundred years'
        )
        raise BadInput(message)
    return round(found)


def seconds(duration: Duration) -> float:
    """A duration in seconds; raises as `as_microseconds`."""
    return as_microseconds(duration) / SECOND


def _exact(duration: object) -> Fraction | float | None:
    """The microseconds of what may be a duration; None when it is not one."""
    if isinstance(duration, timedelta):
        return duration // _MICROSECOND
    if isinstance(duration, str):
        return _written(duration.strip())
    return duration * SECOND if _is_number(duration) else None


def _is_number(value: object) -> TypeGuard[float]:
    """Whether this is a finite number; True and False are not, nor is an integer that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _written(text: str) -> Fraction | None:
    """The microseconds that a text stands for."""
    if _PLAIN.fullmatch(text):
        return Fraction(text) * SECOND
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        return None
    sizes = zip(parts.groups(), _UNITS.values(), strict=True)
    return sum((Fraction(number) * size for number, size in sizes if number is not None), Fraction(0))
