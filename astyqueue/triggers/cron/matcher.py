"""The fields of a cron expression, and the wall times they admit."""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

HOUR: Final = 3_600
MINUTE: Final = 60
DAY: Final = 86_400
#: In the place of a number: the last one of the month.
LAST: Final = -1

EVERY_HOUR: Final = tuple(range(24))
EVERY_MINUTE: Final = tuple(range(60))
EVERY_MONTH: Final = tuple(range(1, 13))
EVERY_WEEKDAY: Final = tuple((weekday, 0) for weekday in range(7))
EVERY_MONTH_DAY: Final = tuple(range(1, 32))

#: The years searched, as many as an expression can name; the rarest day, 29 February on a given weekday, is within
#: forty.
_YEARS_AHEAD: Final = 130
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """The values each field admits, in order. Month days count from 1 (`LAST`: the last), weekdays from 0, Sunday.

    A weekday is a pair: the day of the week, and its number in the month (0: each, `LAST`: the last). A day field of
    None restricts nothing; if both restrict, a day that either admits is admitted. Years of None are all years.

    Compared by identity, which is quick: each expression is read once.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: tuple[int, ...] | None
    months: tuple[int, ...]
    weekdays: tuple[tuple[int, int], ...] | None
    years: tuple[int, ...] | None = None

    @property
    def hourly(self) -> bool:
        """Whether every hour is admitted: such an expression follows the clocks, others name times of a day."""
        return self.hours == EVERY_HOUR

    @property
    def always(self) -> bool:
        """Whether each second of each day is admitted."""
        whole_days = self.hourly and self.minutes == self.seconds == EVERY_MINUTE
        return whole_days and self._any_day and self.months == EVERY_MONTH and self.years is None

    def first(self, wall: int) -> int | None:
        """The first wall time from this one on that the fields admit; None if none is within 130 years."""
        day, rest = divmod(wall, DAY)
        if self.admits_day(day) and (time := self._time(rest)) is not None:
            return day * DAY + time
        following = self._day(day + 1)
        return (
            None
            if following is None
            else following * DAY + self.hours[0] * HOUR + self.minutes[0] * MINUTE + self.seconds[0]
        )

    def first_not(self, wall: int) -> int | None:
        """The first wall time from this one on that the fields do not admit; None if none is within 130 years."""
        limit = wall + _YEARS_AHEAD * 366 * DAY
        while wall < limit:
            if self.first(wall) != wall:
                return wall
            size = self._evenly()
            wall += size - wall % size
        return None

    def admits_day(self, day: int) -> bool:
        """Whether the fields admit this day, counted from 1970-01-01."""
        when = date.fromordinal(_EPOCH_DAY + day)
        return self._admits_month(when.year, when.month) and when.day in _days(self, when.year, when.month)

    @property
    def _any_day(self) -> bool:
        """Whether the day fields admit each day of a month."""
        return (
            (self.month_days is None and self.weekdays is None)
            or self.month_days == EVERY_MONTH_DAY
            or self.weekdays == EVERY_WEEKDAY
        )

    def _evenly(self) -> int:
        """The length in seconds of the longest unit of which the fields admit either all wall times or none."""
        if self.seconds != EVERY_MINUTE:
            return 1
        if self.minutes != EVERY_MINUTE:
            return MINUTE
        return DAY if self.hourly else HOUR

    def _time(self, rest: int) -> int | None:
        """The first admitted time of day, in seconds, from this one on; None if the day has no further one."""
        hour, minute, second = rest // HOUR, rest // MINUTE % 60, rest % MINUTE
        if hour in self.hours:
            if minute in self.minutes and (later := _from(self.seconds, second)) is not None:
                return hour * HOUR + minute * MINUTE + later
            if (later := _from(self.minutes, minute + 1)) is not None:
                return hour * HOUR + later * MINUTE + self.seconds[0]
        if (later := _from(self.hours, hour + 1)) is not None:
            return later * HOUR + self.minutes[0] * MINUTE + self.seconds[0]
        return None

    def _day(self, day: int) -> int | None:
        """The first admitted day from this one on."""
        when = date.fromordinal(_EPOCH_DAY + day)
        earliest = when.day
        for month in range(when.year * 12 + when.month - 1, (when.year + _YEARS_AHEAD) * 12):
            found = self._day_of(month, earliest)
            if found is not None:
                return found
            earliest = 1
        return None

    def _day_of(self, month: int, earliest: int) -> int | None:
        """The first admitted day of a month (counted from the year 0) from the day `earliest` on."""
        year, number = month // 12, month % 12 + 1
        if not self._admits_month(year, number):
            return None
        of_month = next((of_month for of_month in _days(self, year, number) if of_month >= earliest), None)
        return None if of_month is None else date(year, number, of_month).toordinal() - _EPOCH_DAY

    def _admits_month(self, year: int, month: int) -> bool:
        return month in self.months and (self.years is None or year in self.years)


@lru_cache(maxsize=4_096)
def _days(fields: Fields, year: int, month: int) -> tuple[int, ...]:
    """The days of this month that the day fields admit, in order."""
    # `calendar` counts from Monday, so this is the weekday of the day before as counted from Sunday
    weekday_before, length = monthrange(year, month)
    return tuple(day for day in range(1, length + 1) if _admits(fields, day, weekday_before, length))


def _admits(fields: Fields, day: int, weekday_before: int, length: int) -> bool:
    """Whether the day fields admit a day of a month, given the weekday before its first day, and its length."""
    by_day = fields.month_days is not None and (
        day in fields.month_days or (day == length and LAST in fields.month_days)
    )
    if fields.weekdays is None:
        return by_day or fields.month_days is None
    weekday = (weekday_before + day) % 7
    places = (0, (day + 6) // 7, LAST if day + 7 > length else 0)
    return by_day or any((weekday, place) in fields.weekdays for place in places)


def _from(values: tuple[int, ...], least: int) -> int | None:
    """The first of these values that is at least `least`."""
    place = bisect_left(values, least)
    return values[place] if place < len(values) else None
