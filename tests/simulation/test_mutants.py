"""Every planted mistake is noticed soon after its first seed: what the simulation does not see, it does not prove.

How many seeds it takes from anywhere is told by `python -m tests.simulation.mutants.measure`.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants.mutant import Planted
from tests.simulation.mutants.mutants import PLANTED

#: Seeds after the first of each.
SOON = 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_mistake_is_noticed(planted: Planted) -> None:
    assert planted.caught(planted.first, SOON) is not None
