"""The health server of a worker while the system is short of threads."""

from __future__ import annotations

import socket
import threading

import pytest

from astyqueue.cli.worker.health_server import Health, HealthServer


def test_requests_that_no_thread_could_answer_keep_no_place_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[object] = []

    def refuse(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with HealthServer(("127.0.0.1", 0), lambda: Health(live=True, ready=True, facts={})) as server:
        monkeypatch.setattr(server, "shutdown_request", answered.append)  # instead of an answer
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(100):
            with socket.socket() as request, pytest.raises(RuntimeError):
                server.process_request(request, ("127.0.0.1", 1))
    assert answered == []
