"""A union is a merge, an exclusion is a filter."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue.clock import instant, microseconds
from astyqueue.errors import BadExpression, BadInput
from astyqueue.triggers import AnyOf, Calendar, Cron, Days, Every, Excluding, Once, Times, Trigger
from astyqueue.units import SECOND
from tests.unit.triggers.expressions import possible
from tests.unit.triggers.minute_reference import ZONES, occurrences

START = datetime(2026, 3, 27, tzinfo=UTC)
BEGIN = microseconds(START)
DAY = 86_400 * SECOND
A_ZONE = st.sampled_from([zone for zone, _ in ZONES])
CRONS = st.builds(lambda seed, zone: possible(Random(seed), 1)[0].trigger(zone), st.integers(0, 200), A_ZONE)
EVERIES = st.builds(
    lambda minutes, jitter: Every(minutes * 60, start=START, jitter=jitter * 60),
    st.integers(20, 3_000),
    st.integers(0, 20),
)
TRIGGERS: st.SearchStrategy[Trigger] = st.one_of(CRONS, EVERIES, st.just(Once(START + timedelta(days=2))))
TEXTS = ["* 2-3 * 3 *", "* * * 3 sat,sun", "0-29 * * 3 *", "* * 28-30 * *", "15 * * 3 *", "* 22-5 * 3 mon"]
CALENDARS: st.SearchStrategy[Calendar] = st.one_of(
    st.builds(Times, st.sampled_from(TEXTS), A_ZONE),
    st.builds(Days, st.sampled_from([["03-28"], ["2026-03-29"], ["2026-03-27/2026-03-28", "03-30"]]), A_ZONE),
)


def few(trigger: Trigger) -> list[int]:
    """The occurrences of five days, a thousand at most."""
    return list(islice(occurrences(trigger, BEGIN, BEGIN + 5 * DAY), 1_000))


@given(triggers=st.lists(TRIGGERS, min_size=1, max_size=3))
def test_a_union_is_the_merge_of_what_it_is_made_of(triggers: list[Trigger]) -> None:
    parts = [few(trigger) for trigger in triggers]
    merged = sorted({occurrence for part in parts for occurrence in part})
    found = few(AnyOf(*triggers))
    assert found == merged[: len(found)]
    assert len(found) == min(1_000, len(merged))


@given(trigger=TRIGGERS, calendars=st.lists(CALENDARS, min_size=1, max_size=2))
def test_an_exclusion_leaves_what_is_in_no_calendar(trigger: Trigger, calendars: list[Calendar]) -> None:
    everything = few(trigger)
    kept = [occurrence for occurrence in everything if not any(covers(calendar, occurrence) for calendar in calendars)]
    last = everything[-1] if everything else BEGIN
    assert [occurrence for occurrence in few(Excluding(trigger, *calendars)) if occurrence <= last] == kept


def covers(calendar: Calendar, occurrence: int) -> bool:
    """Whether a moment is in a calendar, by what the clocks show and no more."""
    assert isinstance(calendar, Days | Times)
    wall = instant(occurrence).astimezone(ZoneInfo(calendar.zone))
    if isinstance(calendar, Days):
        return any(
            day.startswith(wall.date().isoformat())
            or day == f"{wall:%m-%d}"
            or ("/" in day and in_row(day, wall.date()))
            for day in calendar.days
        )
    return {
        "* 2-3 * 3 *": wall.month == 3 and wall.hour in {2, 3},
        "* * * 3 sat,sun": wall.month == 3 and wall.isoweekday() > 5,
        "0-29 * * 3 *": wall.month == 3 and wall.minute < 30,
        "* * 28-30 * *": wall.day in {28, 29, 30},
        "15 * * 3 *": wall.month == 3 and wall.minute == 15,
        "* 22-5 * 3 mon": wall.month == 3 and wall.isoweekday() == 1 and not 6 <= wall.hour <= 21,
    }[calendar.expression]


def in_row(days: str, day: date) -> bool:
    first, last = map(date.fromisoformat, days.split("/"))
    return first <= day <= last


def test_moments_that_several_have_are_one_occurrence() -> None:
    both = AnyOf(Cron("0 * * * *"), Cron("0 9 * * *"))
    assert len(list(occurrences(both, BEGIN, BEGIN + DAY))) == 24


def test_a_combined_trigger_anchors_what_it_is_made_of() -> None:
    union = AnyOf(Once(delay="1h"), Every("1h", jitter="5m")).anchored(BEGIN, seed="s")
    assert union == AnyOf(Once(START + timedelta(hours=1)), Every("1h", start=START, jitter="5m", seed="s"))
    night = Times("* 0-5 * * *")
    assert Excluding(Every("1h"), night).anchored(BEGIN) == Excluding(Every("1h", start=START), night)


def test_the_first_occurrence_after_days_off_is_found_at_once_even_among_very_many() -> None:
    trigger = Excluding(Every("1ms", start=START), Days(["2026-03-27/2026-12-31"], "Europe/Paris"))
    assert trigger.after(BEGIN) == microseconds(datetime(2026, 12, 31, 23, tzinfo=UTC))


def test_a_trigger_that_is_wholly_excluded_has_no_occurrence() -> None:
    assert Excluding(Cron("0 9 * * sat"), Times("* * * * sat")).after(BEGIN) is None
    assert Excluding(Every("1m", start=START), Times("0-29 * * * *"), Times("30-59 * * * *")).after(BEGIN) is None


@pytest.mark.parametrize(
    "days", [["2026-01-01/9999-12-31"], [f"{date(2000, 1, 1) + timedelta(day):%m-%d}" for day in range(366)]]
)
def test_days_without_end_leave_no_occurrence(days: list[str]) -> None:
    assert Excluding(Every("1h", start=START), Days(days)).after(BEGIN) is None


def test_calendars_before_1970_hold_their_own_days_and_times_and_no_others() -> None:
    begin = datetime(1969, 12, 30, tzinfo=UTC)
    every = Every("6h", start=begin)
    around = begin - timedelta(hours=1)
    days = list(islice(Excluding(every, Days(["1969-12-31", "01-01"])).upcoming(around), 5))
    assert days == [begin + timedelta(hours=hours) for hours in (0, 6, 12, 18, 72)]
    nights = list(islice(Excluding(every, Times("* 0-8 * * *")).upcoming(around), 3))
    assert nights == [begin + timedelta(hours=hours) for hours in (12, 18, 36)]


def test_a_calendar_may_go_by_the_second() -> None:
    trigger = Excluding(Every("1s", start=START), Times("* * * * * 0-57", seconds=True))
    assert [occurrence.second for occurrence in islice(trigger.upcoming(START), 3)] == [58, 59, 58]


def test_a_calendar_of_all_times_is_refused() -> None:
    for expression in ("* * * * *", "*/1 0-23 * * *", "* * 1-31 * mon"):
        with pytest.raises(BadExpression, match="it admits every time, so the trigger would never fire"):
            Times(expression)


@pytest.mark.parametrize("day", ["2026-02-29", "02-30", "soon", "2026-03-02/2026-03-01", "1-1", 5, START, "/", ""])
def test_what_is_no_day_is_refused(day: object) -> None:
    with pytest.raises(BadInput, match="invalid day"):
        Days([day])  # type: ignore[list-item]  # wrong values are the point


def test_days_may_be_dates_and_are_kept_in_order_and_once() -> None:
    assert Days([date(2026, 12, 25), "01-01", "2026-12-25"]) == Days(["01-01", "2026-12-25"])


def test_there_has_to_be_something_to_combine() -> None:
    with pytest.raises(BadInput, match="AnyOf takes one trigger or more: give it some, such as "):
        AnyOf()
    with pytest.raises(BadInput, match="one calendar or more"):
        Excluding(Cron("@daily"))
    with pytest.raises(BadInput, match='at least one day, such as "2026-12-25"'):
        Days([])
