"""Schedules that a release no longer declares and that its process cannot read: kept, and not forgotten."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pytest

from astyqueue import Message, ids
from astyqueue.errors import Undecodable
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.layout.schedule_column import trigger_name
from astyqueue.queue.admin.schedules import handle_of
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Declared, Reconciled, Release, reconcile
from astyqueue.store import Batch, Name, Put, Slice
from astyqueue.triggers import Every, Triggers
from tests.unit.schedules.test_reconcile import Fleet, carried_out, fleet

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


@pytest.mark.parametrize(
    "record",
    [b"\x63newer", FORMAT + b'["1.x:ab",0,[],[],[]]', FORMAT + b'["",0,[],"digest",[]]'],
    ids=["newer", "order", "names"],
)
def test_a_program_starts_though_the_record_of_what_it_declares_cannot_be_read_and_an_operator_is_told(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, record: bytes
) -> None:
    queue = fleet.start("digest").open()
    queue.store.commit(Batch("default:declared", (Put(Name(0, 0, ids.of_text("shop"), 0), record),)), ())
    app = fleet.app("digest", "report")
    assert app.reconcile(app.open()) == Reconciled(current=False)
    assert "schedules_unchanged queue=default program=shop" in caplog.text
    assert "which schedules are declared cannot be read" in caplog.text
    assert fleet.schedules() == {"digest": "code"}
    assert fleet.minutes(1) == [["digest"]]
    for dry_run in (True, False):
        with pytest.raises(Undecodable, match="The schedules that this program declares stay as they are"):
            app.reconcile_all(prune=True, dry_run=dry_run)


def test_a_start_that_is_overtaken_by_a_release_that_it_cannot_read_changes_nothing_more(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    app = fleet.start("digest", release=1)
    queue = app.open()
    newer = Batch("default:declared", (Put(Name(0, 0, ids.of_text("shop"), 0), b"\x63newer"),))
    declared = {name: Declared(Every("1m"), Message(None)) for name in ("audit", "report")}
    steps = reconcile(queue.core, Release("shop", declared, (2,)))
    commits = itertools.count(1)

    def overtake() -> None:
        if next(commits) == 1:
            queue.store.commit(newer, ())

    assert carried_out(steps, queue.store, after_commits=overtake) == Reconciled(current=False)
    assert fleet.schedules() == {"digest": "code"}
    assert "schedules_unchanged" not in caplog.text  # it may have changed some


def test_a_rename_continues_a_schedule_whose_trigger_its_own_process_has_not_registered(fleet: Fleet) -> None:
    def each_minute(moment: datetime) -> datetime:
        return moment.replace(second=0, microsecond=0) + timedelta(minutes=1)

    queue, trigger = fleet.app().open(), Triggers().register("each minute")(each_minute)()
    declared = Declared(trigger, Message(None, headers={"task": "t"}))
    queue.run(reconcile(queue.core, Release("shop", {"old": declared}, (1,))))
    renamed = queue.run(reconcile(queue.core, Release("shop", {"new": declared}, (2,))))
    assert renamed == Reconciled(current=True, saved=["new"], removed=["old"])
    assert fleet.schedules() == {"new": "code"}
