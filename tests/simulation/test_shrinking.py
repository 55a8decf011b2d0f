"""Shrinking a failing world: what is left still fails, and is much smaller."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.simulation.__main__ import main
from tests.simulation.engine.shrinking import shrink
from tests.simulation.engine.simulation import simulate
from tests.simulation.mutants.mutants import PLANTED

pytestmark = pytest.mark.timeout(300)


@pytest.mark.full
def test_what_is_left_of_a_failing_world_is_much_smaller_and_still_fails() -> None:
    planted = next(planted for planted in PLANTED if planted.name == "no expectation on a replaced timer")
    whole = planted.caught(0, planted.within)
    assert whole is not None
    smallest = shrink(whole.seed, planted.play)
    assert smallest.judged.violations
    assert smallest.of == len(whole.parts)
    assert len(smallest.judged.parts) * 4 < len(whole.parts)
    assert planted.play(whole.seed, frozenset(smallest.judged.parts)) == smallest.judged
    assert f"{len(smallest.judged.parts)} of {smallest.of} parts" in str(smallest)


def test_a_world_in_which_nothing_is_wrong_is_not_shrunk() -> None:
    assert shrink(1).judged == simulate(1)


def test_a_part_draws_the_same_whatever_else_is_played() -> None:
    whole = simulate(1)
    assert simulate(1, only=frozenset(whole.parts)) == whole


def test_one_seed_is_played_again_from_the_command_line() -> None:
    told = CliRunner().invoke(main, ["--seed", "1"])
    assert told.exit_code == 0
    assert "nothing is wrong" in told.output


def test_many_seeds_are_played_from_the_command_line_and_end_in_a_table() -> None:
    told = CliRunner().invoke(main, ["--seeds", "2", "--first", "3", "--processes", "1"])
    assert told.exit_code == 0
    assert "2 seeds" in told.output
    assert "messages dropped" in told.output
