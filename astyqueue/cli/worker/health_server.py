"""`worker --health`: answers over HTTP whether a worker lives and whether it is ready.

`/livez` is 200 unless the worker has stalled or its presence thread hangs: an orchestrator restarts it then. `/readyz`
is 200 while it claims and the store answers. Both have the state as JSON, also with 503.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.cli.errors import ExitCode, Failure
from astyqueue.dispatch.presence.worker_presence import WorkerPresence
from astyqueue.dispatch.worker_log import log_unexpected_error
from astyqueue.journal_errors import JournalError
from astyqueue.spool import backlog_of

#: Requests that are answered at once; more are refused, so that slow clients do not take threads without limit.
_AT_ONCE: Final = 16
#: Seconds that a client has to send its request.
_PATIENCE: Final = 5


class Health(NamedTuple):
    """Whether a worker lives, whether it is ready, and what else an answer shows."""

    live: bool
    ready: bool
    facts: Mapping[str, object]


def health_of(presence: WorkerPresence) -> Health:
    """The health of one process."""
    return Health(presence.live, presence.ready, {"state": presence.state.value})


def with_backlog(health: Health, folder: Path | None) -> Health:
    """The same with what waits in the spool of this folder, if there is one; None where the folder cannot be read."""
    if folder is None:
        return health
    shown: Mapping[str, object] | None = None
    with contextlib.suppress(JournalError, OSError):
        shown = backlog_of(folder).as_json()
    return health._replace(facts={**health.facts, "spool": shown})


class HealthServer(ThreadingHTTPServer):
    """Answers in threads of its own until the process ends."""

    daemon_threads = True
    request_queue_size = _AT_ONCE

    def __init__(self, address: tuple[str, int], health: Callable[[], Health]) -> None:
        """Listen at this address."""
        self.health = health
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, _Request)
        except OSError as error:
            other = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
            why = f"{error.strerror or error}; give another {other}"
            message = f"cannot listen at {address[0]}:{address[1]} for --health: {why}"
            raise Failure(message, ExitCode.BAD_INPUT) from error

    def start(self) -> None:
        """Answer from now on."""
        threading.Thread(target=self.serve_forever, name="astyqueue:health", daemon=True).start()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer in a new thread, or close the connection if too many requests are being answered."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started, which would release its place
            self._free.release()
            raise

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - its signature
        """Log the error of an answer, except that of a client that went away."""
        if (error := sys.exception()) is not None and not isinstance(error, OSError):
            log_unexpected_error(error)


class _Request(BaseHTTPRequestHandler):
    """One request."""

    server: HealthServer
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Answer with the state."""
        health, path = self.server.health(), self.path.partition("?")[0]
        answers = {"/livez": health.live, "/readyz": health.ready}
        if path not in answers:
            self._answer(HTTPStatus.NOT_FOUND, {"paths": sorted(answers)})
            return
        status = HTTPStatus.OK if answers[path] else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, {**health.facts, "live": health.live, "ready": health.ready})

    do_HEAD = do_GET  # noqa: N815 - as above

    def _answer(self, status: HTTPStatus, facts: dict[str, object]) -> None:
        body = json.dumps(facts).encode() + b"\n"
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: probes come every few seconds."""
