"""A ring of three under fire, short: every kind of fault once. `make test-ring` is the same with a million messages."""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path

import pytest

from astyqueue.testing.cassandra import CannotRunHere
from astyqueue.testing.cassandra.fixtures import lacking, tell
from astyqueue.units import SECOND
from tests.ring.fault_schedule import Kind, schedule
from tests.ring.report import judged
from tests.ring.run import Plan, Played, play

SHORT = Plan(messages=20_000, per_second=300, ahead=5_000, lease=5 * SECOND, faults=schedule(lasts=5, rest=3))


@pytest.fixture
def played(pytestconfig: pytest.Config, tmp_path: Path) -> Played:
    faulthandler.cancel_dump_traceback_later()  # it takes minutes, and is not stuck
    told: list[str] = []
    reason = ""
    try:
        played = play(SHORT, tmp_path, told.append)
    except CannotRunHere as error:
        reason = str(error)
    if reason:
        lacking(pytestconfig, reason)
    tell(pytestconfig, f"a ring under fire: {told[0]}")
    return played


@pytest.mark.full
@pytest.mark.timeout(900)
def test_nothing_is_lost_under_fire_and_a_fault_explains_every_double(played: Played) -> None:
    report = judged(played)
    sys.stdout.write(f"{report}\n")
    assert {befallen.fault.kind for befallen in played.faults} == set(Kind)
    assert report.verdict.sent >= SHORT.messages
    assert not report.verdict.violations
