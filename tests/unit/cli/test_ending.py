"""When a worker with --burst ends, and that nothing it meets on the way ends the thread that looks."""

from __future__ import annotations

import pytest

from astyqueue.cli.ending import WhenEmpty
from astyqueue.protocol.columns import HEADER
from astyqueue.queue.connection import connect
from astyqueue.store import Batch, Put


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
