"""Calendars of times in which a trigger does not fire: days, and times that a cron expression admits."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from astyqueue.durations import LONGEST
from astyqueue.errors import BadExpression, BadInput
from astyqueue.triggers.base import Value
from astyqueue.triggers.cron.matcher import DAY, EVERY_MINUTE, Fields
from astyqueue.triggers.cron.parser import Form, read_expression
from astyqueue.triggers.cron.timezone import first_shown, stretches, zone_named
from astyqueue.units import SECOND

_EPOCH: Final = date(1970, 1, 1)
_YEARLY: Final = re.compile(r"(\d\d)-(\d\d)", re.ASCII)
#: A year that has all days, 29 February included.
_LEAP_YEAR: Final = 2000


class Calendar(Value, ABC):
    """Times in which nothing fires."""

    __slots__ = ()

    @abstractmethod
    def free(self, moment: int) -> int:
        """The moment itself if it is not in the calendar; else a later one with only excluded time in between."""


@dataclass(frozen=True, slots=True, init=False)
class Days(Calendar):
    """Whole days of a zone.

    Each is a date ("2026-12-25"), a date of each year ("12-25"), or from one to another ("2026-12-24/2027-01-02").
    """

    kind: ClassVar[str] = "days"

    days: tuple[str, ...]
    zone: str

    def __init__(self, days: Iterable[str | date], zone: str = "UTC") -> None:
        """BadInput for an invalid day, or without days."""
        written = [days] if isinstance(days, str) else days
        self._fill(days=tuple(sorted({_spelled(day) for day in written})), zone=zone_named(zone))
        if not self.days:
            problem = 'Days takes at least one day, such as "2026-12-25"'
            raise BadInput(problem)

    def free(self, moment: int) -> int:
        """The moment itself, or the start of the next day that is not one of these, within a hundred years."""
        second = moment // SECOND
        today = _wall(self.zone, second) // DAY
        day, last = today, today + LONGEST // SECOND // DAY
        while day <= last and _holds(self.days, day):
            day += 1
        return moment if day == today else first_shown(self.zone, day * DAY, since=second) * SECOND


@dataclass(frozen=True, slots=True, init=False)
class Times(Calendar):
    """Times of a zone that a cron expression admits: whole minutes with five fields, whole seconds with six.

    `Times("* 22-23,0-5 * * *", "Europe/Paris")` is the night, `Times("* * * * sat,sun")` the weekend.
    """

    kind: ClassVar[str] = "times"

    expression: str
    zone: str
    form: Form

    def __init__(self, expression: str, zone: str = "UTC", *, seconds: bool = False) -> None:
        """BadExpression for an invalid expression, or one that admits every time: the trigger would never fire."""
        form: Form = "seconds" if seconds else "unix"
        self._fill(expression=" ".join(expression.split()), zone=zone_named(zone), form=form)
        if _to_the_second(self.expression, self.form).always:
            raise BadExpression(expression, "", "it admits every time, so the trigger would never fire")

    def free(self, moment: int) -> int:
        """The moment itself, or the next at which the clocks show a time not admitted, or change."""
        second = moment // SECOND
        stretch = next(stretches(self.zone, second))
        wall = second + stretch.offset
        other = _to_the_second(self.expression, self.form).first_not(wall)
        if other == wall:
            return moment
        return moment + LONGEST if other is None else min(other - stretch.offset, stretch.end) * SECOND


class _Span(NamedTuple):
    """Consecutive days, the first and the last, counted from 1970-01-01."""

    first: int
    last: int


@lru_cache(maxsize=256)
def _to_the_second(expression: str, form: Form) -> Fields:
    """The times that an expression admits; without seconds it admits each second of its minutes."""
    fields = read_expression(expression, form)
    return fields if form == "seconds" else replace(fields, seconds=EVERY_MINUTE)


def _spelled(day: object) -> str:
    """A day or days as text in their stored form; BadInput for anything else."""
    text = day.isoformat() if type(day) is date else day
    try:
        if isinstance(text, str) and (yearly := _YEARLY.fullmatch(text)):
            date(_LEAP_YEAR, int(yearly[1]), int(yearly[2]))
            return text
        if isinstance(text, str) and _span(text).first <= _span(text).last:
            return text
    except ValueError:
        pass
    problem = (
        f'invalid day {day!r}: give "2026-12-25", "12-25" for each year, "2026-12-24/2027-01-02" for a range, or a date'
    )
    raise BadInput(problem)


def _span(text: str) -> _Span:
    """The span of "first/last", or of a single date."""
    first, _, last = text.partition("/")
    ends = [(date.fromisoformat(end) - _EPOCH) // timedelta(days=1) for end in (first, last or first)]
    return _Span(*ends)


@lru_cache(maxsize=256)
def _read_days(days: tuple[str, ...]) -> tuple[frozenset[str], tuple[_Span, ...]]:
    """The days of each year as "12-25", and all others as spans."""
    yearly = frozenset(day for day in days if _YEARLY.fullmatch(day))
    return yearly, tuple(_span(day) for day in days if day not in yearly)


def _holds(days: tuple[str, ...], day: int) -> bool:
    """Whether a day, counted from 1970, is one of these."""
    yearly, spans = _read_days(days)
    return (
        any(span.first <= day <= span.last for span in spans)
        or (_EPOCH + timedelta(days=day)).isoformat()[5:] in yearly
    )


def _wall(zone: str, second: int) -> int:
    """The wall time of a zone at this second."""
    return second + next(stretches(zone, second)).offset
