"""Cron against the plain look at every minute: ten zones, a thousand expressions, all days around changes, whole years.

The short form of this is among the unit tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from operator import gt
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from tests.unit.triggers.expressions import EVERY_HOUR, Drawn, possible
from tests.unit.triggers.minute_reference import ZONES, Minutes, differing, fired, windows, year

A_ZONE = pytest.mark.parametrize(("zone", "which"), ZONES, ids=[zone for zone, _ in ZONES])

#: cronsim is wrong where clocks change by half an hour or at a quarter to the hour, and never ends where they go back
#: past midnight.
WRONG_IN_CRONSIM: Final = {"Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns"}


@A_ZONE
def test_a_hundred_expressions_have_the_occurrences_that_every_minute_shows_around_changes_of_clocks(
    zone: str, which: int
) -> None:
    random = Random(f"around {zone}")
    spans = windows(zone, year(which), random)
    drawn = possible(random, 100)
    assert {one.expression: wrong for one in drawn if (wrong := differing(one, zone, spans))} == {}
    occurrences = sum(len(span.occurrences(one)) for one in drawn for span in spans)
    compared = [one for one in drawn if told_alike(one) and zone not in WRONG_IN_CRONSIM]
    assert {one.expression: wrong for one in compared if (wrong := against_cronsim(one, zone, spans))} == {}
    print(f"{zone} {which}: 100 expressions, {occurrences} occurrences, {len(compared)} also by cronsim")  # noqa: T201 - shown with -s


@A_ZONE
def test_five_expressions_have_the_occurrences_that_every_minute_of_a_year_shows(zone: str, which: int) -> None:
    random = Random(f"year {zone}")
    days = year(which)
    span = Minutes(zone, days[0], days[-1])
    assert {one.expression: wrong for one in possible(random, 5) if (wrong := differing(one, zone, [span]))} == {}


def told_alike(drawn: Drawn) -> bool:
    """Whether cronsim has the same rules for it: it goes by a leading star, and we by the hours that are admitted."""
    stars = {field for field, text in drawn.texts.items() if text.startswith("*")}
    stepped = {field for field in stars if drawn.texts[field] != "*"}
    fixed_alike = drawn.hours != EVERY_HOUR and not stars & {"minute", "hour"}
    shown_alike = drawn.texts["hour"] == "*"
    return (
        drawn.form == "unix"
        and not stepped & {"day", "weekday"}
        and (fixed_alike or shown_alike)
        and taken(drawn.expression)
    )


def taken(expression: str) -> bool:
    """Whether cronsim reads it; it takes no range that goes round."""
    try:
        CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def against_cronsim(drawn: Drawn, zone: str, spans: Iterable[Minutes]) -> list[int]:
    """The seconds that are occurrences only by cronsim, or only by asking the trigger."""
    trigger = drawn.trigger(zone)
    wrong: set[int] = set()
    for span in spans:
        told = CronSim(drawn.expression, datetime.fromtimestamp(span.begin - 1, ZoneInfo(zone)))
        ahead = (int(moment.timestamp()) for moment in told)
        wrong |= set(takewhile(partial(gt, span.end), ahead)) ^ set(fired(trigger, span.begin, span.end))
    return sorted(wrong)
