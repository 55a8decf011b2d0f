"""Schedules that a release no longer declares and that its process cannot read: kept, and not forgotten."""

from __future__ import annotations

import pytest

from astyqueue.protocol.layout.schedule_column import trigger_name
from astyqueue.queue.admin.schedules import handle_of
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Reconciled
from astyqueue.store import Batch, Put, Slice
from tests.unit.schedules.test_reconcile import Fleet, fleet

__all__ = ["fleet"]


class StoredSchedule:
    """A schedule as it is stored, which a newer version may write as this one cannot read it."""

    def __init__(self, queue: MessageQueue, name: str) -> None:
        self._store = queue.store
        self._row, self._name = handle_of(queue.core, name).row, trigger_name(name)
        [columns] = self._store.read((Slice(self._row, self._name.type),))
        [self._readable] = [column.value for column in columns if column.name == self._name]

    def damage(self) -> None:
        self._write(b"\x63newer")

    def repair(self) -> None:
        self._write(self._readable)

    def _write(self, value: bytes) -> None:
        self._store.commit(Batch(self._row, (Put(self._name, value),)), ())


@pytest.mark.every_store
def test_an_undeclared_schedule_that_cannot_be_read_is_kept_and_removed_once_it_can_be(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredSchedule(fleet.start("digest", "report", release=1).open(), "report")
    stored.damage()
    fleet.start("digest", release=2)
    assert "schedule_left_alone schedule=report" in caplog.text
    stored.repair()
    assert set(fleet.schedules()) == {"digest", "report"}
    fleet.start("digest", release=3)
    assert fleet.schedules() == {"digest": "code"}


def test_an_operator_is_told_of_what_cannot_be_read(fleet: Fleet) -> None:
    stored = StoredSchedule(fleet.start("digest", "report").open(), "report")
    stored.damage()
    app = fleet.app("digest")
    unreadable = Reconciled(current=True, unreadable=["report"])
    assert app.reconcile_all()["default"] == unreadable
    assert app.reconcile_all(prune=True, dry_run=True)["default"] == unreadable
    assert app.reconcile_all(prune=True)["default"] == unreadable
    stored.repair()
    assert app.reconcile_all()["default"] == Reconciled(current=True, stale=["report"])
    assert app.reconcile_all(prune=True)["default"] == Reconciled(current=True, removed=["report"])


def test_a_declared_schedule_that_cannot_be_read_is_left_as_it_is(fleet: Fleet) -> None:
    stored = StoredSchedule(fleet.start("digest").open(), "digest")
    stored.damage()
    app = fleet.app("digest")
    assert app.reconcile_all()["default"] == Reconciled(current=True, unreadable=["digest"])
    stored.repair()
    assert app.reconcile_all()["default"] == Reconciled(current=True)
