"""Moments, durations, counts and settings as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue.durations import LONGEST, as_microseconds
from astyqueue.model.settings import setting_name, setting_text
from astyqueue.text import counted, duration_setting_text, length_text, with_age
from astyqueue.units import SECOND

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("microseconds", "written"),
    [
        (0, "0s"),
        (1, "0.000001s"),
        (500_000, "500ms"),
        (2 * SECOND, "2s"),
        (2_500_000, "2.5s"),
        (120 * SECOND, "2m"),
        (90 * 60 * SECOND, "1h30m"),
        (60 * SECOND + 250_000, "1m0.25s"),
        (36 * 3_600 * SECOND, "1d12h"),
    ],
)
def test_durations_are_spelled_in_the_units_people_use(microseconds: int, written: str) -> None:
    assert duration_setting_text(microseconds) == written


@given(some.integers(0, LONGEST))
def test_a_spelled_duration_reads_back_as_the_same(microseconds: int) -> None:
    assert as_microseconds(duration_setting_text(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0s", "0s"),
        ("0.0004s", "0ms"),
        ("999.9ms", "999ms"),
        ("1s", "1s"),
        ("2.59s", "2.5s"),
        ("9.99s", "9.9s"),
        ("10.9s", "10s"),
        ("90s", "1m30s"),
        ("1h0m5s", "1h5s"),
        ("29h", "29h"),
        ("47h59m59s", "47h59m"),
        ("48h", "2d"),
        ("2d3h7m12s", "2d3h"),
    ],
)
def test_a_length_is_shown_in_two_units_at_most_and_in_days_from_two_on(written: str, shown: str) -> None:
    assert length_text(as_microseconds(written)) == shown


@given(some.integers(0, LONGEST))
def test_a_length_is_never_shown_as_longer_than_it_is(microseconds: int) -> None:
    shown = as_microseconds(length_text(microseconds))
    assert shown <= microseconds
    assert microseconds - shown <= max(microseconds // 10, 1_000)


@pytest.mark.parametrize(
    ("ago", "shown"),
    [(0.5, "now"), (-0.5, "now"), (1, "1s ago"), (-90, "in 1m30s"), (90_000, "25h ago"), (180_000, "2d2h ago")],
)
def test_a_moment_is_shown_with_its_distance(ago: float, shown: str) -> None:
    moment = NOW - timedelta(seconds=ago)
    assert with_age(moment, NOW).endswith(f"Z ({shown})")


def test_one_thing_is_counted_in_the_singular() -> None:
    assert [counted(count, "dead letter") for count in (0, 1, 2)] == [
        "0 dead letters",
        "1 dead letter",
        "2 dead letters",
    ]


def test_only_durations_are_spelled() -> None:
    assert setting_text("lease_us", 60 * SECOND) == "1m"
    assert setting_text("lease_us", "soon") == "soon"
    assert setting_text("priorities", 60) == 60
    assert [setting_name(field) for field in ("lease_us", "time_shard_us", "priorities")] == [
        "lease",
        "every",
        "priorities",
    ]
