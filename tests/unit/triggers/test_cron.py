"""Cron by its written rules: what comes next, in the nights when clocks are changed, and in every other."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue.clock import instant, microseconds
from astyqueue.errors import BadInput
from astyqueue.triggers import Cron
from astyqueue.units import SECOND
from tests.unit.triggers.expressions import EVERY_HOUR, Drawn, possible
from tests.unit.triggers.minute_reference import ZONES, Minutes, changes, differing, fired, occurrences, year

PAGE: Final = Path(__file__).parents[3] / "docs/explanation/triggers.md"
ROWS: Final = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().partition("| expression | 29 March")[2].partition("\n\n")[0].splitlines()[2:]
]


def at(text: str, zone: str = "UTC") -> int:
    """The moment of a text such as "2026-03-29 01:30"."""
    return microseconds(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def told(trigger: Cron, since: str, count: int) -> list[str]:
    """The next occurrences as the clocks of the trigger's zone show them."""
    zone = ZoneInfo(trigger.zone)
    found = trigger.upcoming(datetime.fromisoformat(since).replace(tzinfo=zone))
    return [occurrence.astimezone(zone).strftime("%m-%d %H:%M%z")[:-2] for occurrence in islice(found, count)]


def in_words(occurrence: int) -> str:
    """The time of a second in Paris, as the page writes it."""
    return re.sub(
        r"\+0(\d)00", r"+\1", datetime.fromtimestamp(occurrence, ZoneInfo("Europe/Paris")).strftime("%H:%M%z")
    )


@pytest.mark.parametrize(("expression", "forward", "back"), ROWS, ids=[row[0] for row in ROWS])
def test_each_row_of_the_page_on_changes_of_clocks_is_what_happens(expression: str, forward: str, back: str) -> None:
    trigger = Cron(expression, "Europe/Paris")
    nights = [("2026-03-29 01:00", "2026-03-29 04:00"), ("2026-10-25 01:00", "2026-10-25 04:00")]
    spans = [(at(begin, "Europe/Paris") // SECOND, at(end, "Europe/Paris") // SECOND) for begin, end in nights]
    assert [" ".join(map(in_words, fired(trigger, *span))) for span in spans] == [forward, back]


def test_the_page_has_rows_for_all_sorts() -> None:
    assert len(ROWS) == 8


@pytest.mark.parametrize(("zone", "which"), [ZONES[0], ZONES[2], ZONES[4]], ids=["Berlin", "Lord Howe", "St John's"])
def test_random_expressions_have_the_occurrences_that_every_minute_shows_around_changes_of_clocks(
    zone: str, which: int
) -> None:
    random = Random(f"short {zone}")
    spans = [Minutes(zone, day - 1, day + 1) for day in changes(zone, year(which))]
    drawn = possible(random, 30)
    assert {one.expression: wrong for one in drawn if (wrong := differing(one, zone, spans))} == {}
    assert sum(len(span.occurrences(one)) for one in drawn for span in spans) > 1_000


def test_the_oracle_itself_sees_a_gap_a_fold_and_every_hour() -> None:
    gap, fold = Minutes("Europe/Berlin", 20_541, 20_541), Minutes("Europe/Berlin", 20_751, 20_751)
    assert gap.begin == at("2026-03-29") // SECOND
    assert fold.begin == at("2026-10-25") // SECOND
    half_past_two = Drawn("unix", {}, frozenset({0}), frozenset({30}), frozenset({2}), lambda _: True)
    every_half_hour = Drawn("unix", {}, frozenset({0}), frozenset({0, 30}), EVERY_HOUR, lambda _: True)
    assert [gap.occurrences(half_past_two), fold.occurrences(half_past_two)] == [
        [at("2026-03-29 01:00") // SECOND],
        [at("2026-10-25 00:30") // SECOND],
    ]
    assert [len(gap.occurrences(every_half_hour)), len(fold.occurrences(every_half_hour))] == [48, 48]


def test_an_occurrence_at_the_moment_itself_is_past() -> None:
    trigger = Cron("0 9 * * *")
    nine = at("2026-05-01 09:00")
    assert trigger.after(nine - 1) == nine
    assert trigger.after(nine) == nine + 24 * 3_600 * SECOND
    assert trigger.after(nine + 1) == nine + 24 * 3_600 * SECOND


def test_the_first_instant_after_a_gap_is_later_than_the_microsecond_before_it() -> None:
    trigger = Cron("30 2 * * *", "Europe/Berlin")
    change = at("2026-03-29 01:00")
    assert trigger.after(change - 1) == change
    assert trigger.after(change) == at("2026-03-30 00:30")


def test_nothing_that_was_shown_before_fires_when_asked_in_the_middle_of_the_second_time() -> None:
    trigger = Cron("*/10 2 * * *", "Europe/Berlin")
    assert trigger.after(at("2026-10-25 01:15")) == at("2026-10-26 01:00")


def test_the_example_of_the_recipe_fires_every_five_seconds() -> None:
    trigger = Cron.quartz("*/5 * * * * ?")
    begin = at("2026-01-01")
    assert list(occurrences(trigger, begin, begin + 60 * SECOND)) == [begin + step * 5 * SECOND for step in range(12)]


def test_seconds_come_last_when_asked_for() -> None:
    assert [
        occurrence.second
        for occurrence in islice(Cron("* * * * * 10,40", seconds=True).upcoming(datetime(2026, 1, 1, tzinfo=UTC)), 3)
    ] == [
        10,
        40,
        10,
    ]


@pytest.mark.parametrize(
    ("expression", "dates"),
    [
        ("@yearly", ["2027-01-01", "2028-01-01"]),
        ("@annually", ["2027-01-01", "2028-01-01"]),
        ("@monthly", ["2026-02-01", "2026-03-01"]),
        ("@weekly", ["2026-01-04", "2026-01-11"]),
        ("@daily", ["2026-01-02", "2026-01-03"]),
        ("@midnight", ["2026-01-02", "2026-01-03"]),
        ("0 0 L * *", ["2026-01-31", "2026-02-28"]),
        ("0 0 L feb *", ["2026-02-28", "2027-02-28", "2028-02-29"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 0 * * fri#2", ["2026-01-09", "2026-02-13"]),
        ("0 0 * * 5#5", ["2026-01-30", "2026-05-29"]),
        ("0 0 * * 5L", ["2026-01-30", "2026-02-27"]),
        ("0 0 * * 6L", ["2026-01-31", "2026-02-28"]),
        ("0 0 * * L5", ["2026-01-30", "2026-02-27"]),
        ("0 0 * * 7", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * mon,fri#2", ["2026-01-05", "2026-01-09", "2026-01-12"]),
        ("0 0 13 * fri", ["2026-01-02", "2026-01-09", "2026-01-13"]),
        ("0 0 */10 * fri", ["2026-01-02", "2026-01-09", "2026-01-11"]),
        ("0 0 * * */2", ["2026-01-03", "2026-01-04", "2026-01-06"]),
    ],
)
def test_days_are_read_as_written(expression: str, dates: list[str]) -> None:
    found = islice(Cron(expression).upcoming(datetime(2026, 1, 1, tzinfo=UTC)), len(dates))
    assert [occurrence.date().isoformat() for occurrence in found] == dates


@pytest.mark.parametrize(
    ("expression", "dates"),
    [
        ("0 0 12 ? * 1", ["2026-01-04", "2026-01-11"]),
        ("0 0 12 ? * 2-6", ["2026-01-01", "2026-01-02", "2026-01-05"]),
        ("0 0 12 ? * 6L", ["2026-01-30", "2026-02-27"]),
        ("0 0 12 ? * 6#2", ["2026-01-09", "2026-02-13"]),
        ("0 0 12 ? * L", ["2026-01-03", "2026-01-10"]),
        ("0 0 12 ? * 2/2", ["2026-01-02", "2026-01-05", "2026-01-07"]),
        ("0 0 12 L * ?", ["2026-01-31", "2026-02-28"]),
        ("0 0 12 1 JAN ? 2028/2", ["2028-01-01", "2030-01-01"]),
        ("0 0 12 1 1 ? 2027", ["2027-01-01"]),
        ("@daily", ["2026-01-02"]),
    ],
)
def test_quartz_counts_weekdays_from_a_sunday_and_has_years(expression: str, dates: list[str]) -> None:
    found = list(islice(Cron.quartz(expression).upcoming(datetime(2026, 1, 1, tzinfo=UTC)), len(dates)))
    assert [occurrence.date().isoformat() for occurrence in found] == dates


def test_a_year_that_is_over_leaves_no_occurrence() -> None:
    assert Cron.quartz("0 0 12 1 1 ? 2027").after(at("2027-01-01 12:00")) is None


def test_the_day_that_was_left_out_fires_as_the_next_begins() -> None:
    assert told(Cron("0 9 * * *", "Pacific/Apia"), "2011-12-29 00:00", 4) == [
        "12-29 09:00-10",
        "12-31 00:00+14",
        "12-31 09:00+14",
        "01-01 09:00+14",
    ]


def test_midnight_fires_once_where_the_clocks_go_back_at_a_minute_past_it() -> None:
    assert told(Cron("@daily", "America/St_Johns"), "2010-11-06 12:00", 2) == ["11-07 00:00-02", "11-08 00:00-03"]
    assert told(Cron("@hourly", "America/St_Johns"), "2010-11-06 22:30", 4) == [
        "11-06 23:00-02",
        "11-07 00:00-02",
        "11-07 00:00-03",
        "11-07 01:00-03",
    ]


def test_no_time_fires_twice_where_a_law_would_put_clocks_back_over_the_turn_of_the_year(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = at("2026-12-31 23:30") // SECOND
    monkeypatch.setattr("astyqueue.triggers.cron.timezone._offset", lambda _, second: 3_600 if second < change else 0)
    quarter_past = Cron("15 0 * * *", "Etc/GMT+9")  # a zone that no other test asks for: what a zone does is remembered
    assert list(occurrences(quarter_past, at("2026-12-31 22:30"), at("2027-01-01 01:30"))) == [at("2026-12-31 23:15")]


def test_start_and_end_are_both_included() -> None:
    nine = datetime(2026, 5, 1, 9, tzinfo=UTC)
    trigger = Cron("0 9 * * *", start=nine, end=nine + timedelta(days=2))
    assert list(trigger.upcoming(datetime(2020, 1, 1, tzinfo=UTC))) == [
        nine,
        nine + timedelta(days=1),
        nine + timedelta(days=2),
    ]


def test_a_count_is_a_number_of_occurrences_from_the_anchor_on() -> None:
    trigger = Cron("0 9 * * *", count=3).anchored(at("2026-05-01 09:00"))
    assert [instant(occurrence).day for occurrence in occurrences(trigger, 0, at("2030-01-01"))] == [1, 2, 3]
    assert trigger.anchored(at("2028-01-01")) == trigger


def test_a_count_with_a_start_is_counted_from_there_whenever_it_is_anchored() -> None:
    trigger = Cron("0 9 * * *", start=datetime(2026, 5, 1, tzinfo=UTC), count=3)
    assert trigger.anchored(at("2026-01-01")) == trigger.anchored(at("2026-05-02 10:00"))


def test_a_count_that_the_end_cuts_short_leaves_the_end() -> None:
    trigger = Cron(
        "0 9 * * *", start=datetime(2026, 5, 1, tzinfo=UTC), end=datetime(2026, 5, 2, 12, tzinfo=UTC), count=9
    )
    assert len(list(occurrences(trigger.anchored(0), 0, at("2027-01-01")))) == 2


@pytest.mark.parametrize("start", [None, datetime(2026, 5, 1, 12, tzinfo=UTC)])
def test_a_count_needs_an_anchor_and_a_start_is_none(start: datetime | None) -> None:
    trigger = Cron("@daily", start=start, count=1)
    with pytest.raises(BadInput, match=r"is not anchored, .*: use trigger.anchored\(moment\)$"):
        trigger.after(0)
    occurrence = at("2026-05-02 00:00")
    assert trigger.anchored(at("2026-05-01 12:00")).after(0) == occurrence
    assert trigger.anchored(at("2026-05-01 12:00")).after(occurrence) is None


@pytest.mark.parametrize("count", [0, -1, 10_001, True])
def test_a_count_is_a_number_that_can_be_iterated(count: int) -> None:
    with pytest.raises(BadInput, match="give the number of occurrences, from 1 to 10000"):
        Cron("@daily", count=count)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../etc/passwd", "CEST+1", "Europe"])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(BadInput, match=r"unknown time zone .*: give a name of the IANA database"):
        Cron("@daily", zone)


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(BadInput, match=r"end is before start.*: give an end after the start"):
        Cron("@daily", start=datetime(2026, 5, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC))


def test_a_naive_start_is_refused() -> None:
    with pytest.raises(BadInput, match="give an aware datetime"):
        Cron("@daily", start=datetime(2026, 5, 1))  # noqa: DTZ001 - that is the point


def test_occurrences_begin_in_1970_and_end_where_instants_do() -> None:
    assert Cron("* * * * *").after(-(10**18)) == 0
    assert Cron("* * * * *").after(at("4999-12-31T23:59:00")) == at("5000-01-01")
    assert Cron("* * * * *").after(at("5000-01-01")) is None
    assert Cron("@yearly").after(at("4998-06-01")) == at("4999-01-01")
    assert Cron("@yearly").after(at("4999-06-01")) == at("5000-01-01")
    assert Cron("@yearly").after(at("5000-01-01")) is None


@given(
    moment=st.integers(at("1990-01-01"), at("2060-01-01")),
    later=st.integers(1, 400 * 86_400 * SECOND),
    seed=st.integers(0, 50),
    zone=st.sampled_from([zone for zone, _ in ZONES]),
)
def test_after_is_later_and_never_goes_back(moment: int, later: int, seed: int, zone: str) -> None:
    trigger = possible(Random(seed), 1)[0].trigger(zone)
    occurrence, following = trigger.after(moment), trigger.after(moment + later)
    assert occurrence is not None
    assert following is not None
    assert moment < occurrence <= following
    assert trigger.after(occurrence - 1) == occurrence
