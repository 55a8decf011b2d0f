"""Every planted mistake is noticed soon after its first seed: what the simulation does not see, it does not prove.

`make test` plants one in three, always the same ones, and `make test-full` all. How many seeds it takes from anywhere
is told by `python -m tests.simulation.mutants.measure`.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import pytest

from tests.simulation.mutants.mutant import Planted
from tests.simulation.mutants.mutants import PLANTED

#: Seeds after the first of each.
SOON = 40
#: Of so many mistakes `make test` plants one.
ONE_IN: Final = 3


def chosen() -> list[object]:
    """The mistakes, with those marked that are left to the full run."""
    return [
        pytest.param(planted, marks=[pytest.mark.full] if crc32(planted.name.encode()) % ONE_IN else [])
        for planted in PLANTED
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", chosen(), ids=lambda planted: planted.name)
def test_a_planted_mistake_is_noticed(planted: Planted) -> None:
    assert planted.caught(planted.first, SOON) is not None
