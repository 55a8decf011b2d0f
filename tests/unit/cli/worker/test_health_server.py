"""The health server of a worker: while the system is short of threads, and when its answer cannot be computed."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import closing
from http.client import HTTPConnection, RemoteDisconnected

import pytest

from astyqueue.cli.errors import Failure
from astyqueue.cli.worker import health_server
from astyqueue.cli.worker.health_server import Health, HealthServer
from tests.unit.cli.conftest import DEADLINE


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


@pytest.mark.parametrize(
    ("number", "other"),
    [
        (errno.EADDRINUSE, "port"),
        (errno.EACCES, "port"),
        (errno.EADDRNOTAVAIL, "host"),
        (socket.EAI_NONAME, "host"),
    ],
)
def test_who_cannot_listen_is_told_what_to_change(monkeypatch: pytest.MonkeyPatch, number: int, other: str) -> None:
    def refuse(_: HealthServer) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(HealthServer, "server_bind", refuse)
    with pytest.raises(Failure, match=f"^cannot listen at 10.0.0.7:80 for --health: no; give another {other}$"):
        HealthServer(("10.0.0.7", 80), lambda: Health(live=True, ready=True, facts={}))


@pytest.mark.parametrize(
    ("error", "logged"), [(ZeroDivisionError("by nothing"), True), (ConnectionResetError(), False)]
)
def test_an_answer_that_cannot_be_computed_is_logged_and_a_client_that_went_away_is_not(
    caplog: pytest.LogCaptureFixture, error: Exception, *, logged: bool
) -> None:
    def health() -> Health:
        raise error

    with HealthServer(("127.0.0.1", 0), health) as server:
        server.start()
        with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=DEADLINE)) as client:
            client.request("GET", "/livez")
            with pytest.raises(RemoteDisconnected):
                client.getresponse()
        server.shutdown()
    found = [record.exc_info for record in caplog.records if record.message.startswith("unexpected_error")]
    assert [one[1] for one in found if one] == ([error] if logged else [])


def test_more_clients_at_once_than_are_answered_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "_AT_ONCE", 1)
    with HealthServer(("127.0.0.1", 0), lambda: Health(live=True, ready=True, facts={})) as server:
        server.start()
        address = ("127.0.0.1", server.server_port)
        with (
            socket.create_connection(address, DEADLINE) as first,
            socket.create_connection(address, DEADLINE) as second,
        ):
            assert second.recv(1) == b""
            first.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert first.recv(100).startswith(b"HTTP/1.0 200 OK")
        server.shutdown()
