"""Settings as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue.durations import LONGEST, as_microseconds
from astyqueue.model.settings_text import duration_setting_text, setting_name, setting_text
from astyqueue.units import SECOND


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


def test_only_durations_are_spelled() -> None:
    assert setting_text("lease_us", 60 * SECOND) == "1m"
    assert setting_text("lease_us", "soon") == "soon"
    assert setting_text("priorities", 60) == 60
    assert [setting_name(field) for field in ("lease_us", "time_shard_us", "priorities")] == [
        "lease",
        "every",
        "priorities",
    ]
