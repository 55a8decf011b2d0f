"""Settings as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue.clock import SECOND
from astyqueue.durations import LONGEST, as_microseconds
from astyqueue.model.wording import spelled, spelled_duration, spelled_name


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
    assert spelled_duration(microseconds) == written


@given(some.integers(0, LONGEST))
def test_a_spelled_duration_reads_back_as_the_same(microseconds: int) -> None:
    assert as_microseconds(spelled_duration(microseconds)) == microseconds


def test_only_durations_are_spelled() -> None:
    assert spelled("lease_us", 60 * SECOND) == "1m"
    assert spelled("lease_us", "soon") == "soon"
    assert spelled("priorities", 60) == 60
    assert [spelled_name(field) for field in ("lease_us", "time_shard_us", "priorities")] == ["lease", "every", "priorities"]
