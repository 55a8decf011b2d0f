"""Instants as microseconds, and the clock of this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from astyqueue.clock import SystemClock, instant, microseconds
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
