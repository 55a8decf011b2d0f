"""Messages that were parked because their worker did not know the task: after all others, and yet in the end."""

from __future__ import annotations

import pytest

from astyqueue.findings import Severity
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Release
from astyqueue.units import SECOND
from tests.unit.protocol.stage import LEASE, ROW, Stage
from tests.unit.protocol.test_health import examined

MINUTE = 60


@pytest.fixture
def stage() -> Stage:
    return Stage(levels=2)


def parked(stage: Stage, count: int) -> set[MessageId]:
    """Messages that were parked, and are due again."""
    sent = [stage.send(f"unknown {number}", priority=1) for number in range(count)]
    while claims := stage.claim(200):
        for taken in claims:
            stage.settle(taken, Release(stage.clock.now() + MINUTE * SECOND, 0, State.PARKED))
    stage.clock.advance(MINUTE)
    return set(sent)


def take(stage: Stage, snapshot: RowSnapshot, want: int) -> list[MessageId]:
    """What one claim of a worker brings; all of it is done."""
    claims = stage.run(claim(stage.bob, snapshot, ClaimRequest(want, LEASE, 5))).claims
    for taken in claims:
        stage.settle(taken, ACK)
    return [MessageId(ROW, held.entry.priority, held.entry.id) for taken in claims for held in taken.held]


@pytest.mark.parametrize("want", [1, 4, 20, 200])
def test_however_many_are_parked_nine_tenths_of_what_is_taken_are_fresh(stage: Stage, want: int) -> None:
    unknown, snapshot = parked(stage, 1_000), RowSnapshot(ROW, 2)
    fresh = set(stage.send_many(400))
    taken: list[MessageId] = []
    while not fresh.issubset(taken):
        taken += take(stage, snapshot, want)
    assert len(unknown.intersection(taken)) <= len(fresh) // 9 + want


@pytest.mark.parametrize("want", [1, 4, 20])
def test_however_much_is_fresh_what_was_parked_comes_to_its_worker(stage: Stage, want: int) -> None:
    unknown, snapshot = parked(stage, 5), RowSnapshot(ROW, 2)
    taken: list[MessageId] = []
    while not unknown.issubset(taken):
        stage.send_many(want)
        taken += take(stage, snapshot, want)
    assert len(taken) <= 60 * want


def test_where_nothing_is_fresh_all_that_was_parked_is_taken(stage: Stage) -> None:
    unknown = parked(stage, 50)
    assert set(take(stage, RowSnapshot(ROW, 2), 200)) == unknown


def test_a_few_that_are_parked_are_a_note(stage: Stage) -> None:
    parked(stage, 3)
    found = examined(stage)["parked messages of queue mail"]
    assert found.severity is Severity.NOTE
    assert found.fact.startswith(
        "3 messages of tasks that the workers which had them do not know, the oldest due 2026-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(("count", "minutes"), [(1_001, 1), (1, 61)])
def test_many_that_are_parked_or_old_ones_are_a_warning(stage: Stage, count: int, minutes: int) -> None:
    parked(stage, count)
    stage.clock.advance(f"{minutes}m")
    assert examined(stage)["parked messages of queue mail"].severity is Severity.WARNING
