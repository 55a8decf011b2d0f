"""Schedules that have the name of a declared one, and that people, messages or other programs made: they are kept."""

from __future__ import annotations

import pytest

from astyqueue import Message
from astyqueue.errors import KeyTaken
from astyqueue.schedules import Declared, Reconciled, Release, Schedules, reconcile
from astyqueue.triggers import Every
from tests.unit.schedules.test_reconcile import Fleet, carried_out, fleet

__all__ = ["fleet"]


def test_what_people_made_is_left_alone_though_code_declares_its_name(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    app = fleet.app("digest", "report", release=1)
    made = Schedules(app.open()).add("digest", Every("7h"), "theirs")
    assert app.reconcile_all(dry_run=True)["default"] == Reconciled(current=True, saved=["report"], others=["digest"])
    assert app.reconcile_all()["default"] == Reconciled(current=True, saved=["report"], others=["digest"])
    assert fleet.schedules() == {"digest": "people", "report": "code"}
    assert Schedules(app.open()).get("digest").stored == made.stored
    assert "schedule_of_others queue=default program=shop schedule=digest origin=people" in caplog.text
    assert "or delete this one: astyqueue schedules delete QUEUE NAME" in caplog.text
    fleet.start("report", release=2)
    assert fleet.schedules() == {"digest": "people", "report": "code"}


def test_a_recurring_message_keeps_its_schedule_and_its_key_though_code_declares_its_name(fleet: Fleet) -> None:
    queue = fleet.app().open()
    queue.send("theirs", trigger=Every("1h"), key="digest", unique="reject")
    app = fleet.start("digest")
    assert fleet.schedules() == {"digest": "message"}
    with pytest.raises(KeyTaken):
        queue.send("again", key="digest", unique="reject")
    assert queue.stop("digest")
    assert app.reconcile_all()["default"] == Reconciled(current=True, saved=["digest"])


def test_a_schedule_that_another_program_declares_too_is_not_removed(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.start("digest", program="shop", release=1)
    fleet.start("digest", program="bank", release=1)
    app = fleet.app("refund", program="shop", release=2)
    assert app.reconcile_all()["default"] == Reconciled(current=True, saved=["refund"], others=["digest"])
    assert set(fleet.schedules()) == {"digest", "refund"}
    assert "schedule_of_others queue=default program=shop schedule=digest origin=code" in caplog.text
    caplog.clear()
    assert app.reconcile_all()["default"] == Reconciled(current=True, others=["digest"])
    assert "schedule_of_others queue=default program=shop schedule=digest origin=code" in caplog.text


def test_a_schedule_that_another_program_declares_too_is_not_to_be_pruned(fleet: Fleet) -> None:
    fleet.start("digest", program="shop")
    fleet.start("digest", program="bank")
    app = fleet.app("refund", program="shop")
    assert app.reconcile_all()["default"] == Reconciled(current=True, saved=["refund"], others=["digest"])
    fleet.start("report", program="bank", release=1)
    assert set(fleet.schedules()) == {"refund", "report"}


def test_a_program_that_overwrites_the_schedule_of_another_says_so(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.start("digest", program="shop")
    fleet.start("digest", program="bank")
    assert "overwritten" not in caplog.text
    fleet.start("digest", every="5m", program="bank")
    assert "schedules_overwritten queue=default program=bank schedules=digest" in caplog.text


def test_a_program_that_was_renamed_and_pruned_once_removes_what_it_drops_and_fires_each_occurrence_once(
    fleet: Fleet,
) -> None:
    fleet.start("digest", "report", program="app", release=1)
    renamed = fleet.start("digest", "report", program="billing", release=2)
    assert renamed.reconcile_all(prune=True)["default"] == Reconciled(current=True)
    fleet.minutes(1)
    fleet.start("daily", program="billing", release=3)
    assert fleet.schedules() == {"daily": "code"}
    assert fleet.minutes(3) == [["daily"]] * 3


@pytest.mark.parametrize("release", [3, None])
def test_what_a_renamed_program_dropped_before_it_was_pruned_is_named_at_each_start_until_then(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, release: int | None
) -> None:
    fleet.start("digest", "report", program="app")
    fleet.start("digest", "report", program="billing")
    for _ in range(2):
        caplog.clear()
        app = fleet.start("daily", program="billing", release=release)
        assert caplog.text.count("schedule_of_others queue=default program=billing schedule=") == 2
        assert "astyqueue schedules reconcile APP --prune" in caplog.text
    removed = Reconciled(current=True, removed=["digest", "report"])
    assert app.reconcile_all(prune=True, dry_run=True)["default"] == removed
    assert app.reconcile_all(prune=True)["default"] == removed
    assert app.reconcile_all(prune=True)["default"] == Reconciled(current=True)
    assert fleet.schedules() == {"daily": "code"}


def test_a_program_that_starts_again_takes_back_what_another_one_was_pruned_with(fleet: Fleet) -> None:
    fleet.start("digest", program="shop", release=1)
    bank = fleet.start("digest", program="bank", release=1)
    bank.reconcile_all(prune=True)
    fleet.start("digest", program="shop", release=1)
    dropping = fleet.app("refund", program="bank", release=2)
    assert dropping.reconcile_all()["default"] == Reconciled(current=True, saved=["refund"], others=["digest"])


def test_a_schedule_is_not_removed_that_another_program_declares_while_this_one_removes(fleet: Fleet) -> None:
    queue = fleet.start("digest", "report", release=1).open()
    steps = reconcile(queue.core, Release("shop", {"refund": Declared(Every("1m"), Message(None))}, (2,)))

    def declare_once_one_is_removed() -> None:
        if "digest" not in fleet.schedules():
            fleet.start("report", program="bank")

    done = carried_out(steps, queue.store, after_commits=declare_once_one_is_removed)
    assert done == Reconciled(current=True, saved=["refund"], removed=["digest"], others=["report"])
    assert set(fleet.schedules()) == {"refund", "report"}
