"""No schedule breaks a promise of the manager, and mistakes made on purpose are found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from tests.consumer_schedules.mistakes import MISTAKES
from tests.consumer_schedules.oracle import Broken
from tests.consumer_schedules.shares import LOADS, MESSAGES, Load, measured
from tests.consumer_schedules.world import play, play_part


def first_broken(seeds: Iterable[int]) -> int | None:
    """The first schedule in which a promise does not hold."""
    for seed in seeds:
        try:
            play(seed)
        except Broken:
            return seed
    return None


#: As many find each mistake that was made on purpose.
ENOUGH: Final = 5_000


def test_no_promise_is_broken() -> None:
    assert play_part(range(ENOUGH))[0] == []


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 1_000_000, 20_000))
def test_no_promise_is_broken_in_a_million(first: int) -> None:
    assert play_part(range(first, first + 20_000))[0] == []


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_equal_consumers_get_equal_shares_for_at_most_one_wakeup_a_message(load: Load) -> None:
    got = measured(load)
    assert got.delivered == MESSAGES
    assert got.wakeups_per_message <= 1.0
    assert got.max_to_min <= 1.05


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    with MISTAKES[mistake]():
        assert first_broken(range(ENOUGH)) is not None
