"""Simulations full of faults in which every promise holds; and each of them the same each time."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from astyqueue.clock import SystemClock
from tests.simulation.engine.fault_profile import Fault
from tests.simulation.engine.runner import play, seed_summary
from tests.simulation.engine.simulation import simulate

#: Simulations in which, taken together, every step is taken; `make test` plays the first of these.
SEEDS = (range(20, 44), range(44, 80))
STEPS = {
    "send",
    "send reject",
    "send keep",
    "send replace",
    "send debounce",
    "send repeatable",
    "send to group",
    "schedule",
    "fire",
    "receive",
} | {*("claim", "claim with settles", "ack", "release", "extend", "reject", "delete", "clear", "redrive", "purge")}


@pytest.mark.parametrize("seeds", [SEEDS[0], pytest.param(SEEDS[1], marks=pytest.mark.full)], ids=str)
def test_every_promise_holds_under_every_fault(seeds: range) -> None:
    summary = play(seeds, processes=1)
    assert [seed_summary.text for seed_summary in summary.failed] == []
    assert summary.fewest_faults >= 3
    assert summary.fewest_operations >= 200
    assert {fault for _, fault in summary.coverage} == set(Fault)
    assert {step for step, _ in summary.coverage} >= STEPS


def test_a_seed_is_the_same_simulation_each_time() -> None:
    before = random.getstate()
    assert simulate(7) == simulate(7)
    assert simulate(7).digest != simulate(8).digest
    assert random.getstate() == before


def test_a_simulation_reads_no_real_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        pytest.fail("a simulated process read the real clock")

    monkeypatch.setattr(SystemClock, "now", lambda _: fail())
    monkeypatch.setattr(SystemClock, "monotonic", lambda _: fail())
    assert simulate(7).violations == ()


def test_a_claim_of_a_run_that_was_replaced_under_its_key_is_lost_for_a_reason() -> None:
    assert simulate(487).violations == ()


def test_a_message_that_was_cleared_under_an_ack_of_unknown_outcome_may_be_sent_again() -> None:
    assert simulate(16_538).violations == ()


def test_a_simulation_that_lasts_for_days_is_repaired_before_deletions_are_forgotten() -> None:
    """A replica that was cut off and not repaired brought an acked message back after 35 hours."""
    assert simulate(100_176).violations == ()


def test_a_process_that_watches_all_rows_may_peek_at_a_tombstone_once_more() -> None:
    assert simulate(100_206).violations == ()


def test_a_unique_send_is_not_refused_while_its_delayed_commit_may_still_be_carried_out() -> None:
    assert simulate(105_699).violations == ()


def test_a_message_may_land_late_though_its_clock_was_set_right_before_the_answer() -> None:
    assert simulate(1_042).violations == ()


@pytest.mark.parametrize("hash_seed", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_a_seed_is_the_same_simulation_in_another_process(hash_seed: str) -> None:
    program = (
        "from tests.simulation.engine.simulation import simulate; print([simulate(seed).digest for seed in (3, 5)])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    text = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert text.strip() == str([simulate(seed).digest for seed in (3, 5)])


def test_a_summary_tells_what_was_covered() -> None:
    summary = play([1, 2], processes=1)
    assert summary.seeds == 2
    assert "2 seeds" in str(summary)
    assert seed_summary(1).operations == simulate(1).operations
