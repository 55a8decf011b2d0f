"""Once and Every: a moment, and moments at even distances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue.clock import microseconds
from astyqueue.durations import Duration
from astyqueue.errors import BadInput
from astyqueue.triggers import Every, Once
from astyqueue.units import SECOND
from tests.unit.triggers.minute_reference import occurrences

START = datetime(2026, 5, 1, 9, tzinfo=UTC)
BEGIN = microseconds(START)
HOUR = 3_600 * SECOND
FOREVER = BEGIN + 10_000 * HOUR


def test_once_is_to_come_until_it_is_there() -> None:
    assert Once(START).after(BEGIN - 1) == BEGIN
    assert Once(START).after(BEGIN) is None


def test_a_delay_counts_from_the_anchor_and_only_once() -> None:
    anchored = Once(delay="10m").anchored(BEGIN)
    assert anchored == Once(START + timedelta(minutes=10))
    assert anchored.anchored(BEGIN + HOUR) == anchored


def test_once_takes_a_moment_or_a_delay() -> None:
    with pytest.raises(BadInput, match="one of the two"):
        Once()
    with pytest.raises(BadInput, match="one of the two"):
        Once(START, delay="10m")


@pytest.mark.parametrize(
    ("trigger", "given"),
    [
        (Once(delay="10m"), Once(at=START)),
        (Every("1h"), Every("1h", start=START)),
        (Every("1h", delay="5m"), Every("1h", start=START)),
    ],
)
def test_what_counts_from_now_on_has_to_be_told_when_that_is(trigger: Once | Every, given: Once | Every) -> None:
    option = "at=" if isinstance(given, Once) else "start="
    with pytest.raises(BadInput, match=rf"give {option}, or use trigger.anchored\(moment\)$"):
        trigger.after(BEGIN)
    for remedied in (given, trigger.anchored(BEGIN)):
        assert remedied.after(BEGIN - 1) is not None


def test_occurrences_are_counted_from_the_start_and_not_from_the_last_one() -> None:
    trigger = Every("1h", start=START)
    assert trigger.after(0) == BEGIN
    assert trigger.after(BEGIN) == BEGIN + HOUR
    assert trigger.after(BEGIN + 1) == BEGIN + HOUR
    assert trigger.after(BEGIN + 1_000 * HOUR + 17) == BEGIN + 1_001 * HOUR


def test_an_anchor_is_the_start_or_what_the_delay_counts_from() -> None:
    assert Every("1h").anchored(BEGIN) == Every("1h", start=START)
    assert Every("1h", delay="5m").anchored(BEGIN) == Every("1h", start=START + timedelta(minutes=5))
    assert Every("1h", start=START).anchored(BEGIN + 7) == Every("1h", start=START)


def test_a_count_is_spent_by_occurrences_that_pass_whether_or_not_anybody_fires_them() -> None:
    trigger = Every("1h", start=START, count=10)
    assert len(list(occurrences(trigger, 0, FOREVER))) == 10
    assert trigger.after(BEGIN + 8 * HOUR) == BEGIN + 9 * HOUR
    assert trigger.after(BEGIN + 9 * HOUR) is None


def test_an_occurrence_at_the_end_is_the_last() -> None:
    assert list(Every("1h", start=START, end=START + timedelta(hours=2)).upcoming(START)) == [
        START + timedelta(hours=1),
        START + timedelta(hours=2),
    ]


def test_elapsed_time_knows_no_change_of_clocks() -> None:
    night = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert list(islice(Every("24h", start=night).upcoming(night), 2)) == [
        night + timedelta(days=1),
        night + timedelta(days=2),
    ]


def test_jitter_is_the_same_in_every_process_and_release() -> None:
    trigger = Every("1h", start=START, jitter="10m", seed="digest")
    assert [
        occurrence - BEGIN - number * HOUR
        for number, occurrence in enumerate(occurrences(trigger, 0, BEGIN + 3 * HOUR))
    ] == [
        386594847,
        581340481,
        130045648,
    ]


def test_jitter_is_drawn_by_the_seed_and_the_occurrence() -> None:
    unseeded = Every("1h", start=START, jitter="1h")
    shares = {seed: list(occurrences(unseeded.anchored(0, seed=seed), 0, FOREVER)) for seed in ("one", "other")}
    assert shares["one"] != shares["other"]
    late = sorted(occurrence - BEGIN - number * HOUR for number, occurrence in enumerate(shares["one"]))
    assert 0 <= late[0] < HOUR // 100
    assert HOUR * 99 // 100 < late[-1] < HOUR
    assert abs(late[len(late) // 2] - HOUR // 2) < HOUR // 50


def test_a_seed_of_its_own_is_not_replaced() -> None:
    assert Every("1h", jitter="1m", seed="mine").anchored(0, seed="yours").seed == "mine"
    assert Every("1h").anchored(0, seed="unused") == Every("1h").anchored(0)


@given(
    interval=st.integers(1_000, 10 * HOUR),
    share=st.floats(0, 1),
    moments=st.lists(st.integers(BEGIN - HOUR, BEGIN + 1_000 * HOUR), min_size=2, max_size=2),
)
def test_with_any_jitter_occurrences_stay_in_order_and_none_is_left_out(
    interval: int, share: float, moments: list[int]
) -> None:
    trigger = Every(
        timedelta(microseconds=interval), start=START, jitter=timedelta(microseconds=int(interval * share)), seed="s"
    )
    early, late = sorted(moments)
    occurrence, following = trigger.after(early), trigger.after(late)
    assert occurrence is not None
    assert following is not None
    assert early < occurrence <= following
    assert trigger.after(occurrence - 1) == occurrence
    number = max(0, (early - BEGIN) // interval)
    numbered = [trigger.after(BEGIN + which * interval - 1) for which in (number, number + 1)]
    assert occurrence in numbered


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"interval": 0}, "the interval of Every is at least a millisecond"),
        ({"interval": "soon"}, "is not a duration"),
        ({"interval": "1h", "count": 0}, "count is 0: give the number of occurrences, at least one"),
        ({"interval": "1h", "count": True}, "count is True: give the number of occurrences"),
        ({"interval": "1h", "jitter": "61m"}, "jitter is at most the interval"),
        ({"interval": "1h", "start": START, "delay": 5}, "not both"),
        (
            {"interval": "1h", "start": START, "end": START - timedelta(hours=1)},
            "end is before start.*: give an end after the start",
        ),
        ({"interval": "1h", "start": START.replace(tzinfo=None)}, "give an aware datetime"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, Duration], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        Every(**asked)  # type: ignore[arg-type]  # wrong values are the point
