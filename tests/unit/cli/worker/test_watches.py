"""What watches a worker process: its presence in the store, stalls, memory, source files, and probes over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from astyqueue.clock import SystemClock
from astyqueue.journal import Journal
from astyqueue.model.presence import WorkerState
from astyqueue.queue.connection import Connection, connect
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.cli.test_worker import DEADLINE, notes, send
from tests.unit.cli.worker.conftest import Start, pids, until, until_ready

#: What works in another process is to be seen in this one.
pytestmark = pytest.mark.stores("sqlite", "cassandra")


def answer(port: int, path: str) -> dict[str, Any]:
    """The facts that a worker answers with."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=DEADLINE)) as server:
        server.request("GET", path)
        return dict(json.loads(server.getresponse().read()))


def probe(port: int, path: str) -> tuple[int, str]:
    """The status and the state that a worker answers with; zero if nothing listens."""
    with_server = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        with_server.request("GET", path)
        answer = with_server.getresponse()
        return answer.status, str(json.loads(answer.read()).get("state"))
    except ConnectionError:
        return 0, ""
    finally:
        with_server.close()


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_killed_worker_is_listed_as_stale_and_then_no_longer(worker: Start, emails: Connection, url: str) -> None:
    send(emails, "hold", "gate")
    process = worker("jobs:app", "-Q", "emails", "-c", "2", "--heartbeat", "1s")
    process.until("begun")
    until(lambda: [one.busy for one in emails.workers()] == [1])
    [report] = emails.workers()
    assert (report.pid, report.slots, report.queues) == (process.process.pid, 2, ["emails"])
    assert [task.task for task in report.running] == ["jobs.hold"]
    process.signal(signal.SIGKILL)
    process.ends(-signal.SIGKILL)
    [left] = emails.workers()
    assert left.name == report.name
    assert left.stale(SystemClock().now() + 3 * SECOND)
    if url.startswith("sqlite"):  # on Cassandra the node's clock decides
        with connect(url, clock=TimeMachine(SystemClock().now() + 13 * SECOND)) as later:
            assert later.workers() == []


@pytest.mark.every_store
def test_commands_make_a_worker_quiet_log_its_stacks_and_drain(worker: Start, emails: Connection) -> None:
    process = worker("jobs:app", "-Q", "emails", "--heartbeat", "1s")
    until_ready(process)
    until(lambda: len(emails.workers()) == 1)
    [report] = emails.workers()
    emails.command(report.name, "stacks")
    process.until(" stacks state=running")
    emails.command(report.name, "quiet")
    until(lambda: emails.workers()[0].state is WorkerState.QUIET)
    emails.command(report.name, "resume")
    until(lambda: emails.workers()[0].state is WorkerState.RUNNING)
    emails.command(report.name, "drain")
    process.ends(0)
    assert "astyqueue:handle:" in process.output
    assert emails.workers() == []


def test_usr1_logs_the_stacks_and_usr2_makes_a_worker_quiet_also_through_a_supervisor(
    worker: Start, emails: Connection, jobs: Path
) -> None:
    supervisor = worker("jobs:app", "-Q", "emails", "-p", "1")
    until_ready(supervisor)
    supervisor.signal(signal.SIGUSR1)
    supervisor.until(" stacks state=running")
    supervisor.signal(signal.SIGUSR2)
    supervisor.until(" quiet")
    send(emails, "note", "later")
    os.kill(pids(supervisor)[0], signal.SIGUSR1)
    supervisor.until(" stacks state=quiet")
    supervisor.signal(signal.SIGTERM)
    supervisor.ends(0)
    assert notes(jobs) == []


def test_a_worker_whose_only_slot_is_frozen_logs_where_and_exits(worker: Start, emails: Connection, port: int) -> None:
    for _ in range(5):
        send(emails, "hold", "gate")
    words = ("-Q", "emails", "-c", "1", "--heartbeat", "1s", "--stall-after", "3s", "--on-stall", "exit")
    process = worker("jobs:app", *words, "--health", str(port))
    process.until("begun")
    assert probe(port, "/livez") == (200, "running")
    process.ends(6)
    assert re.search(
        r"ERROR astyqueue.worker stall for=.* queue=emails .* busy=\"1 of 1\" oldest=\"jobs.hold ", process.output
    )
    assert "Path(gate).read_text()" in process.output
    assert [found.spent for found in emails.queue("emails").peek(include="all")] == [0] * 5


def test_a_supervisor_replaces_a_process_that_has_stalled(worker: Start, emails: Connection, jobs: Path) -> None:
    for _ in range(3):
        send(emails, "hold", "gate")
    words = ("-Q", "emails", "-c", "1", "--heartbeat", "1s", "--stall-after", "3s", "--on-stall", "exit")
    supervisor = worker("jobs:app", *words, "-p", "1")
    supervisor.until("begun")
    supervisor.until("died child=1 code=6 again_in=1s")
    supervisor.until("begun")
    assert notes(jobs) == []


def test_probes_say_whether_a_worker_lives_and_is_ready(worker: Start, emails: Connection, port: int) -> None:
    send(emails, "hold", "gate")
    process = worker("jobs:app", "-Q", "emails", "--health", f"127.0.0.1:{port}")
    process.until("begun")
    until(lambda: probe(port, "/readyz") == (200, "running"))
    assert probe(port, "/elsewhere")[0] == 404
    process.signal(signal.SIGUSR2)
    process.until(" quiet")
    assert probe(port, "/readyz?verbose") == (503, "quiet")
    assert probe(port, "/livez") == (200, "quiet")
    process.signal(signal.SIGTERM)
    process.until(" drain_begun queues=")
    assert probe(port, "/readyz") == (503, "draining")


def test_clients_that_send_nothing_do_not_keep_probes_waiting(worker: Start, emails: Connection, port: int) -> None:
    assert emails
    process = worker("jobs:app", "-Q", "emails", "--health", str(port))
    until_ready(process)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(15)]
    assert probe(port, "/livez")[0] == 200
    for client in silent:
        client.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--health", "nowhere"], "invalid address 'nowhere'"),
        (["--health", "127.0.0.1:70000"], "invalid address"),
        (["--heartbeat", "1ms"], "for '--heartbeat': 1ms is too short: give at least 1s"),
        (["--max-rss", "much"], "for '--max-rss': the size is 'much'"),
    ],
)
def test_a_watch_that_cannot_be_is_refused(worker: Start, words: list[str], said: str) -> None:
    process = worker("jobs:app", *words)
    process.ends(2)
    assert said in process.output


def test_a_port_in_use_is_refused(worker: Start, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        process = worker("jobs:app", "--health", str(port))
        process.ends(2)
    assert (
        f"cannot listen at 127.0.0.1:{port} for --health: Address already in use; give another port" in process.output
    )


def test_a_process_that_is_too_large_drains_and_is_started_again(worker: Start, emails: Connection, jobs: Path) -> None:
    send(emails, "grow")
    supervisor = worker("jobs:app", "-Q", "emails", "-p", "1", "--max-rss", "300MB")
    supervisor.until(" max_rss_exceeded resident_bytes=")
    supervisor.until(" stopped")
    assert len(until_ready(supervisor)) == 2
    send(emails, "note", "after")
    supervisor.until(" done task=jobs.note")
    assert notes(jobs) == ["grown", "after"]


def test_a_worker_without_a_supervisor_that_is_too_large_ends_with_zero(worker: Start, emails: Connection) -> None:
    assert emails
    process = worker("jobs:app", "--max-rss", "1MB", "--burst")
    process.ends(0)
    assert [
        event for event in (" ready ", " max_rss_exceeded ", " drain_begun ", " stopped") if event not in process.output
    ] == []


def test_a_changed_source_file_restarts_the_process_and_a_broken_one_waits_for_the_next_change(
    worker: Start, emails: Connection, jobs: Path
) -> None:
    supervisor = worker("jobs:app", "-Q", "emails", "--reload")
    until_ready(supervisor)
    good = (jobs / "jobs.py").read_text()
    (jobs / "jobs.py").write_text(good + "\n1 / 0\n")
    supervisor.until(" reload file=")
    supervisor.until('again="when a source file changes"')
    (jobs / "jobs.py").write_text(
        good.replace("def note(text: str) -> None:\n", 'def note(text: str) -> None:\n    text += "!"\n')
    )
    until_ready(supervisor)
    send(emails, "note", "new")
    supervisor.until(" done task=jobs.note")
    assert notes(jobs) == ["new!"]
    supervisor.signal(signal.SIGTERM)
    supervisor.ends(0)


def test_a_supervisor_answers_probes_for_all_its_processes(worker: Start, emails: Connection, port: int) -> None:
    for _ in range(2):
        send(emails, "hold", "gate")
    supervisor = worker("jobs:app", "-Q", "emails", "-c", "1", "-p", "2", "--health", str(port))
    for _ in range(2):
        supervisor.until("begun")
    until(lambda: probe(port, "/readyz") == (200, "running"))
    os.kill(pids(supervisor)[0], signal.SIGUSR2)
    supervisor.until(" quiet")
    assert probe(port, "/readyz") == (200, "running")
    os.kill(pids(supervisor)[1], signal.SIGUSR2)
    until(lambda: probe(port, "/readyz") == (503, "running"))
    assert probe(port, "/livez") == (200, "running")
    supervisor.signal(signal.SIGTERM)
    supervisor.until("end_requested stage=drain")
    assert probe(port, "/readyz") == (503, "draining")


@pytest.mark.parametrize("supervised", [False, True])
def test_a_worker_shows_what_waits_in_its_spool_at_its_start_and_to_probes(
    *, supervised: bool, worker: Start, emails: Connection, jobs: Path, port: int
) -> None:
    assert emails
    with Journal.open(jobs / "spool" / "queue-orders" / "1") as journal:
        journal.append_many(["a", "b"])
    words = ("-Q", "emails", "--spool", "spool", "--health", str(port), *(("-p", "1") if supervised else ()))
    process = worker("jobs:app", *words)
    process.until(f" spool_backlog folder={jobs / 'spool'} messages=2 oldest=")
    until_ready(process)
    waiting = answer(port, "/livez")["spool"]
    assert isinstance(waiting, dict)
    assert (waiting["messages"], waiting["refused"], waiting["failing_since"]) == (2, 0, None)
    assert waiting["oldest"].endswith("Z")
    process.signal(signal.SIGTERM)
    process.ends(0)


def test_a_process_whose_interpreter_is_held_is_killed_and_replaced(
    worker: Start, emails: Connection, jobs: Path
) -> None:
    send(emails, "hold_the_interpreter", max_attempts=1)
    words = ("-Q", "emails", "-c", "1", "--stall-after", "2s", "--on-stall", "exit")
    supervisor = worker("jobs:app", *words, "-p", "1")
    supervisor.until("begun")
    supervisor.until("frozen child=1 silent=")
    supervisor.until("died child=1 code=137")
    until_ready(supervisor)
    send(emails, "note", "after")
    supervisor.until(" done task=jobs.note")
    assert notes(jobs) == ["after"]
