"""An examination of a store with its queues, also where it can be read only in part."""

from __future__ import annotations

from pathlib import Path

from astyqueue.findings import Severity, worst
from astyqueue.protocol.admin.settings import SETTINGS
from astyqueue.protocol.layout.rows import settings_row
from astyqueue.queue.connection import connect
from astyqueue.queue.health_check import examine
from astyqueue.store import Batch, Put
from astyqueue.testing import TimeMachine


def test_every_queue_of_the_store_is_examined_after_the_store(tmp_path: Path, clock: TimeMachine) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with connect(url, clock=clock) as store:
        store.queue("emails")
        store.queue("default")
    subjects = [finding.subject for finding in examine(url, clock=clock)]
    assert subjects[0].startswith("file ")
    assert [subject for subject in subjects if subject.startswith("queue ")] == ["queue default", "queue emails"]


def test_settings_that_cannot_be_read_are_a_problem_of_their_queue_beside_what_can_be_said_of_the_others(
    tmp_path: Path, clock: TimeMachine
) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with connect(url, clock=clock) as store:
        store.queue("emails")
        store.queue("orders")
        store.store.send(Batch(settings_row("emails"), (Put(SETTINGS, b"\x63", 1 << 62),)))
    found = examine(url, clock=clock)
    assert worst(found) is Severity.PROBLEM
    [problem] = [finding for finding in found if finding.subject == "queue emails"]
    assert problem.fact.startswith("row emails:settings: the settings cannot be read (format byte 63")
    assert any(finding.subject == "queue orders" for finding in found)
