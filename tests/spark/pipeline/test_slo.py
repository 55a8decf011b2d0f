"""Service levels as people write them."""

from __future__ import annotations

import pytest

from astyqueue.errors import BadInput
from astyqueue.spark.pipeline.slo import DEFAULT, Objectives


def test_a_level_is_for_all_queues_or_for_the_one_it_names() -> None:
    found = Objectives.read(["wait<=5s", "emails: end <= 1h30m", "run<=2"])
    assert found.of("emails")[:2] == ("end", 5_400_000_000)
    assert found.of("others") == ("run", 2_000_000, "run<=2")
    assert Objectives.read([]).of("emails") == DEFAULT


@pytest.mark.parametrize(
    "text", ["wait", "wait<5s", "wait>=5s", "speed<=5s", "wait<=", "wait<=soon", "a queue:wait<=5s", ""]
)
def test_an_invalid_service_level_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        Objectives.read([text])
