"""The debug log has a line for each event that observers get."""

from __future__ import annotations

import contextlib
import logging

import pytest

from astyqueue import MessageQueue, connect
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.queue.builder import QueueBuilder
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, TimeMachine


def test_the_debug_log_has_a_line_for_each_event_and_never_a_body(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "astyqueue")
    with builder.build() as queue:
        sent = queue.send("a secret").id
        queue.receive()
        clock.advance("31s")
        queue.receive().ack()
    lines = {(record.name, record.getMessage().split(" ")[0]) for record in caplog.records}
    assert lines >= {
        ("astyqueue.requests", "request"),
        ("astyqueue.claim", "claimed"),
        ("astyqueue.claim", "lease_expired"),
        ("astyqueue.settle", "settled"),
    }
    assert "secret" not in caplog.text
    assert f"settled row={sent.row} outcome=acked messages={sent}" in caplog.text
    assert all(record.levelno == logging.DEBUG for record in caplog.records)


def test_one_logger_can_be_turned_on_alone_and_while_the_queue_is_open(
    queue: MessageQueue, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    queue.send("x")
    caplog.set_level(logging.DEBUG, "astyqueue.claim")
    clock.advance("11s")
    queue.receive()
    queue.send("y")
    queue.receive().ack()
    assert {record.name for record in caplog.records} == {"astyqueue.claim"}
    caplog.clear()
    caplog.set_level(logging.INFO, "astyqueue.claim")
    clock.advance("11s")
    queue.receive()
    queue.send("z")
    queue.receive()
    assert not caplog.records


def test_text_of_an_error_is_quoted_in_the_debug_log(clock: TimeMachine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "astyqueue.requests")
    store = Failing(
        MemoryStore(clock), OutcomeUnknown("two\nlines \x1b[31m"), at=9, of=(Read, Send, Commit), applied=True
    )
    with MessageQueue.builder().store(store).name("q").clock(clock).build() as queue:
        for _ in range(9):
            queue.send("x")
    [line] = [record.getMessage() for record in caplog.records if "outcome=unknown" in record.getMessage()]
    assert line.isprintable()
    assert r'error="OutcomeUnknown: two\nlines \u001b[31m"' in line


def test_an_error_without_a_text_has_its_line_in_the_debug_log(
    clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    class Untold(StoreUnavailable):
        def __str__(self) -> str:
            raise ValueError

    caplog.set_level(logging.DEBUG, "astyqueue.requests")
    store = Failing(MemoryStore(clock), Untold(), at=9, of=(Read, Send, Commit))
    with (
        MessageQueue.builder().store(store).name("q").clock(clock).build() as queue,
        contextlib.suppress(StoreUnavailable),
    ):
        for _ in range(9):
            queue.send("x")
    [line] = [record.getMessage() for record in caplog.records if "outcome=failed" in record.getMessage()]
    assert 'error="Untold: (its text is not available: its __str__ raised)"' in line


def test_a_connection_logs_the_requests_of_its_list_of_queues(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "astyqueue.requests")
    with connect("memory://") as connection:
        assert connection.queues() == []
    assert [record.getMessage().split()[2:4] for record in caplog.records] == [["kind=read", "rows=:queues"]]
