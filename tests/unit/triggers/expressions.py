"""Cron expressions drawn at random, each with what it means, which is not read from the text but drawn with it."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from random import Random
from typing import Final, NamedTuple

from astyqueue.errors import BadExpression
from astyqueue.triggers import Cron
from astyqueue.triggers.cron.parser import Form

Meaning = tuple[str, frozenset[int]]
DayTest = Callable[[date], bool]

WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
EVERY_HOUR: Final = frozenset(range(24))


class Bounds(NamedTuple):
    """What values of a field there are."""

    least: int
    most: int
    names: tuple[str, ...] = ()


SECOND: Final = Bounds(0, 59)
MINUTE: Final = Bounds(0, 59)
HOUR: Final = Bounds(0, 23)
MONTH_DAY: Final = Bounds(1, 31)
MONTH: Final = Bounds(1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))


@dataclass(frozen=True)
class Drawn:
    """An expression and what it means."""

    form: Form
    texts: dict[str, str]
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    day: DayTest

    @property
    def expression(self) -> str:
        unix = [self.texts[field] for field in ("minute", "hour", "day", "month", "weekday")]
        return " ".join(
            {"unix": unix, "seconds": [*unix, self.texts["second"]], "quartz": [self.texts["second"], *unix]}[self.form]
        )

    def trigger(self, zone: str) -> Cron:
        if self.form == "quartz":
            return Cron.quartz(self.expression, zone)
        return Cron(self.expression, zone, seconds=self.form == "seconds")


def possible(random: Random, count: int) -> list[Drawn]:
    """Expressions that have an occurrence now and then; those refused have no day in sixty years."""
    found: list[Drawn] = []
    while len(found) < count:
        one = drawn(random)
        try:
            one.trigger("UTC")
        except BadExpression as error:
            assert "never fire" in str(error)  # noqa: PT017 - most are not refused
            assert not any(
                one.day(date.fromordinal(day))
                for day in range(date(1990, 1, 1).toordinal(), date(2050, 1, 1).toordinal())
            )
        else:
            found.append(one)
    return found


def drawn(random: Random) -> Drawn:
    """An expression, more often than not for the hours when clocks are changed."""
    form: Form = random.choices(("unix", "seconds", "quartz"), (8, 1, 1))[0]
    texts, free = {}, "?" if form == "quartz" else "*"
    texts["second"], seconds = some(random, SECOND) if form != "unix" else ("0", frozenset({0}))
    texts["minute"], minutes = random.choices((some(random, MINUTE), ("*", frozenset(range(60)))), (20, 1))[0]
    hours_drawn = (some(random, HOUR), some(random, HOUR, most=3), ("*", EVERY_HOUR), ("0-23", EVERY_HOUR))
    texts["hour"], hours = random.choices(hours_drawn, (4, 4, 3, 1))[0]
    texts["month"], months = random.choices((some(random, MONTH), ("*", frozenset(range(1, 13)))), (1, 6))[0]
    days = [] if random.random() < 0.65 else [month_days(random)]
    weekdays = (
        [] if random.random() < 0.65 or (form == "quartz" and days) else [by_weekday(random, quartz=form == "quartz")]
    )
    texts["day"] = days[0][0] if days else free if weekdays else "*"
    texts["weekday"] = weekdays[0][0] if weekdays else free
    either = [test for _, test in (*days, *weekdays)]
    return Drawn(
        form,
        texts,
        seconds,
        minutes,
        hours,
        lambda day: day.month in months and (not either or any(test(day) for test in either)),
    )


def some(random: Random, bounds: Bounds, *, most: int | None = None) -> Meaning:
    """A value, a list, steps, or a range, which may go round the end."""
    low, high = sorted(random.sample(range(bounds.least, (most or bounds.most) + 1), 2))
    step = random.randint(max(1, (bounds.most - bounds.least) // 5), (bounds.most - bounds.least) // 2)

    def said(value: int) -> str:
        return random.choice((str(value), bounds.names[value - 1].upper())) if bounds.names else str(value)

    kinds: list[Meaning] = [
        (said(low), frozenset({low})),
        (said(high), frozenset({high})),
        (f"{said(high)},{said(low)}", frozenset({low, high})),
        (f"{said(low)}-{said(high)}/{step}", frozenset(range(low, high + 1, step))),
        (f"{said(high)}/{step}", frozenset(range(high, bounds.most + 1, step))),
        (f"*/{step}", frozenset(range(bounds.least, bounds.most + 1, step))),
    ]
    between, around = (
        frozenset(range(low, high + 1)),
        frozenset({*range(high, bounds.most + 1), *range(bounds.least, low + 1)}),
    )
    kinds += [(f"{said(low)}-{said(high)}", between)] if len(between) < 12 else []
    kinds += [(f"{said(high)}-{said(low)}", around)] if len(around) < 12 else []
    return random.choice(kinds)


def month_days(random: Random) -> tuple[str, DayTest]:
    text, days = some(random, MONTH_DAY)
    if random.random() < 0.3:
        return f"{text},L", lambda day: day.day in days or day.day == monthrange(day.year, day.month)[1]
    return text, lambda day: day.day in days


def by_weekday(random: Random, *, quartz: bool) -> tuple[str, DayTest]:
    weekday = random.randrange(7)
    said = random.choice((str(weekday + quartz), WEEKDAYS[weekday], WEEKDAYS[weekday].title()))

    def on(day: date) -> bool:
        return day.isoweekday() % 7 == weekday

    place = random.randint(1, 5)
    return random.choice(
        [
            (said, on),
            (f"{said}#{place}", lambda day: on(day) and (day.day - 1) // 7 + 1 == place),
            (f"{said}L", lambda day: on(day) and day.day + 7 > monthrange(day.year, day.month)[1]),
            ("mon-fri", lambda day: day.isoweekday() < 6),
            ("2-6" if quartz else "1-5", lambda day: day.isoweekday() < 6),
            ("sat-sun" if quartz else "6-7", lambda day: day.isoweekday() >= 6),
            ("FRI-MON", lambda day: day.isoweekday() in {5, 6, 7, 1}),
        ]
    )
