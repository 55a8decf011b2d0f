"""Schedules that have the name of a declared one, and that people, messages or other programs made: they are kept."""

from __future__ import annotations

import pytest

from astyqueue.errors import KeyTaken
from astyqueue.schedules import Reconciled, Schedules
from astyqueue.triggers import Every
from tests.unit.schedules.test_reconcile import Fleet, fleet

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
    assert app.reconcile_all()["default"] == Reconciled(current=True)


def test_a_schedule_that_another_program_declares_too_is_not_to_be_pruned(fleet: Fleet) -> None:
    fleet.start("digest", program="shop")
    fleet.start("digest", program="bank")
    app = fleet.app("refund", program="shop")
    assert app.reconcile_all()["default"] == Reconciled(current=True, saved=["refund"])
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
