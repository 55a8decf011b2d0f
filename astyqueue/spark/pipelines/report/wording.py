"""Numbers as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_SECOND: Final = 1_000_000
#: From how many microseconds on a unit is used, its length, and its name.
_UNITS: Final = (
    (2 * 86_400 * _SECOND, 86_400 * _SECOND, "d"),
    (2 * 3_600 * _SECOND, 3_600 * _SECOND, "h"),
    (2 * 60 * _SECOND, 60 * _SECOND, "min"),
    (_SECOND, _SECOND, "s"),
    (0, 1_000, "ms"),
)
_TEN: Final = 10
_HUNDRED: Final = 100
NONE: Final = "\N{EN DASH}"


def length(microseconds: float | None) -> str:
    """A length of time, to three digits: "1.23 s", "45.6 ms"."""
    if microseconds is None:
        return NONE
    unit, name = next((unit, name) for least, unit, name in _UNITS if microseconds >= least)
    return f"{_digits(microseconds / unit)} {name}"


def plain(microseconds: int) -> str:
    """A round length of time, as it follows "each": "second", "10 seconds", "hour"."""
    units = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
    unit, name = next(each for each in units if microseconds % (each[0] * _SECOND) == 0)
    number = microseconds // (unit * _SECOND)
    return name if number == 1 else f"{number} {name}s"


def count(number: float) -> str:
    """A number, its thousands apart."""
    return f"{round(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def share(part: float, whole: float) -> str:
    """A part of a whole; what is nearly all is not called all, nor what is nearly none nothing."""
    if not whole:
        return NONE
    percent = _HUNDRED * part / whole
    if 0 < percent < 0.01:  # noqa: PLR2004 - as written below
        return "< 0.01 %"
    if 99.99 < percent < _HUNDRED:  # noqa: PLR2004 - as written below
        return "> 99.99 %"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def level(objective: str) -> str:
    """A service level in print."""
    return objective.replace("<=", " \N{LESS-THAN OR EQUAL TO} ")


def moment(when: datetime) -> str:
    """A moment, UTC."""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _digits(number: float) -> str:
    if number >= _HUNDRED:
        return count(number)
    return f"{number:.1f}" if number >= _TEN else f"{number:.2f}"
