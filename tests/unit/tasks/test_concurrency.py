"""How a worker's threads are shared out among its queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue.errors import BadInput
from astyqueue.tasks.app import shares


@pytest.mark.parametrize(
    ("weights", "threads", "expected"),
    [
        ({"emails": 3, "default": 1}, 16, {"emails": 12, "default": 4}),
        ({"emails": 1}, 8, {"emails": 8}),
        ({"emails": 100, "default": 1}, 2, {"emails": 1, "default": 1}),
        ({"a": 1, "b": 1, "c": 1}, 4, {"a": 2, "b": 1, "c": 1}),
    ],
)
def test_threads_follow_the_weights(weights: dict[str, int], threads: int, expected: dict[str, int]) -> None:
    assert shares(weights, threads) == expected


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 100))
def test_every_thread_is_given_and_nobody_goes_without(weights: dict[str, int], spare: int) -> None:
    given_out = shares(weights, len(weights) + spare)
    assert sum(given_out.values()) == len(weights) + spare
    assert min(given_out.values()) >= 1
    assert all(
        given_out[one] >= given_out[other] for one in weights for other in weights if weights[one] > weights[other]
    )


def test_fewer_threads_than_queues_are_refused() -> None:
    with pytest.raises(
        BadInput, match=r"concurrency 1 is less than the number of queues, 2 \(a, b\).*to 2 or more \(-c\)"
    ):
        shares({"a": 1, "b": 1}, 1)


def test_a_weight_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="a:0"):
        shares({"a": 0, "b": 1}, 8)
