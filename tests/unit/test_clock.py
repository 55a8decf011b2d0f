"""Instants as microseconds, as arguments and as text, and the clock of this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue import ids
from astyqueue.clock import SystemClock, instant, microseconds
from astyqueue.durations import EARLIEST, LATEST, instant_of, parsed_past
from astyqueue.errors import BadInput
from astyqueue.units import SECOND


def test_instants_count_microseconds_from_1970() -> None:
    assert microseconds(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert microseconds(datetime(2000, 1, 1, 0, 0, 0, 7, tzinfo=UTC)) == 946_684_800_000_007
    assert instant(946_684_800_000_007) == datetime(2000, 1, 1, 0, 0, 0, 7, tzinfo=UTC)


def test_an_instant_survives_the_way_there_and_back() -> None:
    for moment in (-1, 0, 1, 1_767_225_600_000_001, 253_402_300_799_999_999):
        assert microseconds(instant(moment)) == moment


def test_an_instant_of_another_zone_is_the_same_moment() -> None:
    paris = timezone(timedelta(hours=2))
    assert microseconds(datetime(2026, 7, 1, 14, tzinfo=paris)) == microseconds(datetime(2026, 7, 1, 12, tzinfo=UTC))


def test_instants_are_shown_in_utc() -> None:
    assert instant(0).tzinfo is UTC


def test_a_naive_datetime_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="has no time zone: give an aware datetime"):
        microseconds(datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake this is about


def test_a_system_clock_counts_in_microseconds() -> None:
    clock = SystemClock()
    assert instant(clock.now()).year >= 2025
    first = clock.monotonic()
    assert clock.monotonic() >= first


def test_a_system_clock_says_how_long_to_block() -> None:
    clock = SystemClock()
    assert clock.blocking_seconds(clock.monotonic() - SECOND) == 0
    left = clock.blocking_seconds(clock.monotonic() + 100 * SECOND)
    assert left is not None
    assert 99 < left <= 100


def test_nobody_moves_a_system_clock() -> None:
    calls: list[str] = []
    SystemClock().on_move(lambda: calls.append("moved"))()
    assert calls == []


@pytest.mark.parametrize("moment", [EARLIEST, -1, 0, 1_767_225_600_000_001, LATEST])
def test_an_instant_in_range_is_taken_and_has_an_id_and_a_datetime(moment: int) -> None:
    assert instant_of(instant(moment)) == moment
    assert ids.moment(ids.at(moment)) == moment
    assert ids.parse(ids.text(ids.at(moment))) < ids.GREATEST


@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime(5237, 1, 1, tzinfo=UTC),
        instant(LATEST + 1),
        instant(EARLIEST - 1),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(hours=12))),
    ],
)
def test_an_instant_out_of_range_is_refused_with_the_range(moment: datetime) -> None:
    with pytest.raises(BadInput, match=r"out of range: an instant lies between 1600-01-01.* and 5000-01-01"):
        instant_of(moment)


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01", 5, None])  # noqa: DTZ001 - naive is one of the mistakes
def test_what_is_no_aware_datetime_is_refused_with_advice(moment: object) -> None:
    with pytest.raises(BadInput, match="give an aware"):
        instant_of(moment)


@pytest.mark.parametrize("written", ["2h", "7200", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00+01:00"])
def test_a_moment_in_text_is_iso_8601_or_so_long_ago(written: str) -> None:
    assert parsed_past(written, 3_600 * SECOND) == -3_600 * SECOND


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("noon", "'noon' is not a moment: write 2026-11-21T09:00:00Z, .*; or 2h for two hours ago"),
        ("2026-11-21", "has no time zone: write 2026-11-21T00:00:00Z for UTC"),
        ("9999-01-01T00:00:00Z", "out of range"),
    ],
)
def test_a_moment_in_text_that_cannot_be_read_is_refused_with_advice(written: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parsed_past(written, 0)


@given(some.integers())
def test_whatever_is_stored_has_an_id_and_a_datetime_to_show(moment: int) -> None:
    shown, id_ = instant(moment), ids.at(moment)
    assert ids.LEAST <= ids.first_at(moment) <= id_ < ids.GREATEST
    assert ids.parse(ids.text(id_)) == id_
    assert instant(ids.moment(id_)) is not None
    if microseconds(shown) != moment:
        assert shown in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
