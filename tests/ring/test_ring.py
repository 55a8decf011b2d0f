"""A short chaos test of a ring of three nodes, with every kind of fault once; `make test-ring` is longer."""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path

import pytest

from astyqueue.testing.cassandra import CannotRunHere
from astyqueue.testing.cassandra.fixtures import lacking, tell
from astyqueue.units import SECOND
from tests.ring.fault_schedule import Kind, schedule
from tests.ring.report import report_of
from tests.ring.run import Plan, RunResult, run_plan

SHORT = Plan(messages=20_000, per_second=300, ahead=5_000, lease=5 * SECOND, faults=schedule(lasts=5, rest=3))


@pytest.fixture
def run_result(pytestconfig: pytest.Config, tmp_path: Path) -> RunResult:
    faulthandler.cancel_dump_traceback_later()  # it takes minutes, and is not stuck
    lines: list[str] = []
    reason = ""
    try:
        run_result = run_plan(SHORT, tmp_path, lines.append)
    except CannotRunHere as error:
        reason = str(error)
    if reason:
        lacking(pytestconfig, reason)
    tell(pytestconfig, f"chaos test of a ring: {lines[0]}")
    return run_result


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_message_is_lost_under_faults_and_a_fault_explains_every_duplicate(run_result: RunResult) -> None:
    report = report_of(run_result)
    sys.stdout.write(f"{report}\n")
    assert {injected.fault.kind for injected in run_result.faults} == set(Kind)
    assert report.result.sent >= SHORT.messages
    assert not report.result.violations
