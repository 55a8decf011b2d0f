"""Instants that people hand in, and what is shown of those that nobody could hand in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue import ids
from astyqueue.clock import instant, microseconds
from astyqueue.durations import EARLIEST, LATEST, instant_of, parsed_past
from astyqueue.errors import BadInput
from astyqueue.units import SECOND


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
