"""Shrinking a failing simulation: what is left still fails, and is much smaller."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.simulation.__main__ import main
from tests.simulation.engine.shrinking import shrink
from tests.simulation.engine.simulation import simulate
from tests.simulation.mutants.mutants import MUTANTS

pytestmark = pytest.mark.timeout(300)


@pytest.mark.full
@pytest.mark.timeout(900)  # hypothesis itself ends each of its searches after 300 s
def test_what_is_left_of_a_failing_simulation_is_much_smaller_and_still_fails() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "no expectation on a replaced timer")
    whole = mutant.detected(0, mutant.within)
    assert whole is not None
    smallest = shrink(whole.seed, mutant.play)
    assert smallest.result.violations
    assert smallest.of == len(whole.parts)
    assert len(smallest.result.parts) * 4 < len(whole.parts)
    assert mutant.play(whole.seed, frozenset(smallest.result.parts)) == smallest.result
    assert f"{len(smallest.result.parts)} of {smallest.of} parts" in str(smallest)


def test_a_simulation_in_which_nothing_is_wrong_is_not_shrunk() -> None:
    assert shrink(1).result == simulate(1)


def test_a_part_draws_the_same_whatever_else_is_played() -> None:
    whole = simulate(1)
    assert simulate(1, only=frozenset(whole.parts)) == whole


def test_one_seed_is_played_again_from_the_command_line() -> None:
    output = CliRunner().invoke(main, ["--seed", "1"])
    assert output.exit_code == 0
    assert "nothing is wrong" in output.output


def test_many_seeds_are_played_from_the_command_line_and_end_in_a_table() -> None:
    output = CliRunner().invoke(main, ["--seeds", "2", "--first", "3", "--processes", "1"])
    assert output.exit_code == 0
    assert "2 seeds" in output.output
    assert "messages dropped" in output.output
