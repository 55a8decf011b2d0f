"""What signals, and the requests of a supervisor that stand for them, do to a worker."""

from __future__ import annotations

import signal

import pytest

from astyqueue.cli.worker.process_pipes import Stage
from astyqueue.cli.worker.signals import Signals
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.queue.connection import connect
from tests.unit.dispatch.test_threads_missing import Limit


def test_a_signal_for_which_no_thread_can_be_started_neither_ends_a_worker_nor_hides_later_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with connect("memory://") as connection:
        dispatcher = Dispatcher.builder().queue(connection.queue("emails")).handler(print).build().start()
        signals = Signals(dispatcher, "30s")
        Limit("signal", monkeypatch)
        signals._on_signal(signal.SIGUSR1, None)  # noqa: SLF001 - as the interpreter calls it
        signals._on_request(Stage.NONE, signal.SIGUSR2)  # noqa: SLF001 - as the thread that reads the pipe calls it
        assert dispatcher.running
        signals._on_request(Stage.DRAIN, signal.SIGTERM)  # noqa: SLF001 - as above
        dispatcher.drain(None)
    ignored = [line for line in caplog.messages if line.startswith("signal_ignored")]
    assert [line.split()[1] for line in ignored] == ["signal=SIGUSR1", "signal=SIGUSR2"]
