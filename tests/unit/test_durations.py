"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from astyqueue.durations import LONGEST, Duration, as_microseconds, seconds
from astyqueue.errors import BadInput
from astyqueue.units import SECOND


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (90, 90 * SECOND),
        (0.5, SECOND // 2),
        (0.1, SECOND // 10),
        (1e-7, 0),
        (timedelta(minutes=1, microseconds=1), 60 * SECOND + 1),
        ("10m", 600 * SECOND),
        ("1h30m", 5_400 * SECOND),
        ("1h 30m", 5_400 * SECOND),
        (" 2d ", 172_800 * SECOND),
        ("1w", 604_800 * SECOND),
        ("500ms", SECOND // 2),
        ("1m500ms", 60 * SECOND + SECOND // 2),
        ("1.5h", 5_400 * SECOND),
        ("0.1s", SECOND // 10),
        ("45", 45 * SECOND),
        ("0s", 0),
        ("36525d", LONGEST),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_text(written: Duration, expected: int) -> None:
    assert as_microseconds(written) == expected


def test_seconds_are_the_same_in_seconds() -> None:
    assert seconds("1m500ms") == 60.5


@pytest.mark.parametrize(
    "written",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        1e300,
        10**400,
        "36525d1s",
        True,
        False,
        None,
        [],
        b"10m",
        "",
        " ",
        "m",
        "ten minutes",
        "-5s",
        "+5s",
        "1e3",
        "nan",
        "30m1h",
        "5m5m",
        "10M",
        "10 m",
        "1.h",
        ".5s",
        "1h30",
        "3months",
        "٣s",
        "9" * 5_000,
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(written: Duration) -> None:
    with pytest.raises(BadInput, match=r'is not a duration: give seconds .*, a timedelta, or text such as "10m"'):
        as_microseconds(written)


def test_the_error_shows_what_was_written_and_not_more_than_one_reads() -> None:
    with pytest.raises(BadInput) as raised:
        as_microseconds("9" * 5_000)
    assert str(raised.value).startswith("'99999")
    assert len(str(raised.value)) < 300
