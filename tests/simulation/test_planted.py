"""Every planted mistake is noticed within its number of seeds: what the simulation does not see, it does not prove."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTED, Planted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_mistake_is_noticed(planted: Planted) -> None:
    assert planted.caught(0, planted.within) is not None
