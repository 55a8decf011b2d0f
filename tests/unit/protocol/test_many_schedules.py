"""Rows in which very many schedules ended: their tombstones lie between the schedules that are there."""

from __future__ import annotations

import pytest

from astyqueue.errors import SliceTooLong
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.schedule_column import trigger_name
from astyqueue.protocol.scheduling import schedule_commit
from astyqueue.protocol.scheduling.schedule_commit import found_in, list_schedules, schedules_in
from astyqueue.protocol.steps import run
from astyqueue.store import Slice
from tests.unit.protocol.checked_store import ROW
from tests.unit.protocol.schedule_table import Timetable
from tests.unit.protocol.test_bounded_reads import MOST, Cemetery

NAMES = [f"digest-{number}" for number in range(5)]


@pytest.fixture
def crowded() -> Cemetery:
    table = Timetable()
    for name in NAMES:
        table.make(name)
    cemetery = Cemetery(table.births)
    cemetery.graves |= {trigger_name(f"ended-{number}") for number in range(6 * MOST)}
    with pytest.raises(SliceTooLong):
        cemetery.read((Slice(ROW, Type.TRIGGER),))
    return cemetery


def test_all_schedules_are_found_where_more_have_ended_than_one_read_passes(crowded: Cemetery) -> None:
    assert [one.name for one in run(list_schedules([ROW]), crowded).schedules] == NAMES
    assert [one.name for one in run(schedules_in([ROW]), crowded)] == NAMES


def test_one_schedule_is_found_where_more_have_ended_than_one_read_passes(crowded: Cemetery) -> None:
    found = run(found_in(ROW, lambda one: one.name == NAMES[3]), crowded)
    assert found is not None
    assert found.name == NAMES[3]
    assert run(found_in(ROW, lambda _: False), crowded) is None


def test_schedules_that_fill_more_than_one_page_are_all_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_commit, "_PAGE", 2)
    table = Timetable()
    for name in NAMES:
        table.make(name)
    assert [one.name for one in run(list_schedules([ROW]), table.births).schedules] == NAMES
