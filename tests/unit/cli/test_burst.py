"""When a worker with --burst ends, and that nothing it meets on the way ends the thread that looks."""

from __future__ import annotations

import pytest

from astyqueue.cli.commands.burst import WhenEmpty
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.queue.connection import connect
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Put
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every


def ends_of(watched: WhenEmpty, capsys: pytest.CaptureFixture[str]) -> None:
    """Let its thread come to its end; it prints nothing."""
    watched.watch().join(60)
    assert capsys.readouterr().err == ""


def test_it_ends_once_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        ends_of(WhenEmpty([connection.queue("emails")], lambda: ended.append(True)), capsys)
    assert ended == [True]


def test_a_worker_that_ended_before_is_not_ended_again(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        queue.close()
        ends_of(WhenEmpty([queue], lambda: ended.append(True)), capsys)
    assert ended == []


def test_a_row_that_cannot_be_read_is_not_empty(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        sent = queue.send("x")
        queue.receive()[0].release("1h")
        connection.store.commit(Batch(sent.id.row, (Put(HEADER, b"nonsense"),)), ())
        thread = WhenEmpty([queue], lambda: ended.append(True)).watch()
        connection.close()
        thread.join(60)
    assert (ended, capsys.readouterr().err) == ([], "")


def test_an_occurrence_that_is_due_is_waited_for() -> None:
    left: list[tuple[int, int]] = []
    machine = TimeMachine()
    with connect("memory://", clock=machine) as connection:
        queue = connection.queue("emails")
        Schedules(queue).add("digest", Every("1h"))
        thread = WhenEmpty([queue], lambda: left.append((queue.stats.fired, queue.counts().total))).watch()
        machine.when_waiting()
        queue.receive().ack()
        machine.advance("1s")
        thread.join(60)
    assert left == [(1, 0)]


def test_an_occurrence_that_nobody_fires_is_not_waited_for_for_ever() -> None:
    ended: list[bool] = []
    machine = TimeMachine()
    with connect("memory://", clock=machine) as connection:
        queue = connection.queue("emails")
        Schedules(queue).add("digest", Every("1h"))
        thread = WhenEmpty([queue], lambda: ended.append(True)).watch()
        machine.when_waiting().advance("10s")
        thread.join(60)
    assert ended == [True]


def test_where_nothing_is_fired_no_occurrence_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        Schedules(queue).add("digest", Every("1h"))
        queue.core.fire_nothing()
        ends_of(WhenEmpty([queue], lambda: ended.append(True)), capsys)
    assert ended == [True]
