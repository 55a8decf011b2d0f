"""Every mutant is detected soon after its first seed.

`make test` checks one in six, always the same ones, and `make test-full` all. `python -m
tests.simulation.mutants.measure` counts the seeds from five starting points.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.mutants import MUTANTS

#: Seeds after the first of each.
SOON = 40
#: `make test` checks one of so many mutants.
ONE_IN: Final = 6


def chosen() -> list[object]:
    """The mutants; those that are left to the full run are marked."""
    return [
        pytest.param(mutant, marks=[pytest.mark.full] if number % ONE_IN else [])
        for number, mutant in enumerate(MUTANTS)
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", chosen(), ids=lambda mutant: mutant.name)
def test_a_mutant_is_detected(mutant: Mutant) -> None:
    assert mutant.detected(mutant.first, SOON) is not None
