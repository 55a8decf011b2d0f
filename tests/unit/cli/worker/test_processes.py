"""`astyqueue worker -p`: processes that die, are drained, stopped and killed, and what is left in the store."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from astyqueue.queue.connection import Connection
from tests.unit.cli.test_worker import notes, send
from tests.unit.cli.worker.conftest import Start, let_go, pids, until_ready

#: What works in another process is to be seen in this one.
pytestmark = pytest.mark.stores("sqlite", "cassandra")


@pytest.mark.every_store
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_term_and_hup_drain_all_processes_and_nothing_is_lost(
    worker: Start, emails: Connection, jobs: Path, number: signal.Signals
) -> None:
    for _ in range(4):
        send(emails, "hold", "gate")
    supervisor = worker("jobs:app", "-Q", "emails", "-c", "1", "-p", "2")
    for _ in range(2):
        supervisor.until("begun")
    supervisor.signal(number)
    for _ in range(2):
        supervisor.until(" drain_begun queues=")
    let_go(supervisor, jobs / "gate")
    supervisor.ends(0)
    assert notes(jobs) == ["held", "held"]
    assert [(found.standing, found.spent) for found in emails.queue("emails").peek(include="all")] == [
        ("waiting", 0)
    ] * 2
    assert {"astyqueue.worker[1]", "astyqueue.worker[2]"} <= set(supervisor.output.split())


@pytest.mark.parametrize("processes", [[], ["-p", "1"]], ids=["alone", "supervised"])
def test_a_worker_that_was_started_to_ignore_hup_ignores_it_as_with_nohup(
    worker: Start, emails: Connection, jobs: Path, processes: list[str]
) -> None:
    send(emails, "hold", "gate")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = worker("jobs:app", "-Q", "emails", "-c", "1", *processes)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.until("begun")
    process.signal(signal.SIGHUP)
    process.signal(signal.SIGTERM)  # the second signal would stop what runs
    process.until(" drain_begun queues=")
    (jobs / "gate").write_text("open")
    process.ends(0)
    assert notes(jobs) == ["held"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_all_processes(
    worker: Start, emails: Connection, number: signal.Signals, code: int
) -> None:
    for _ in range(2):
        send(emails, "hold", "gate")
    supervisor = worker("jobs:app", "-Q", "emails", "-c", "1", "-p", "2")
    for _ in range(2):
        supervisor.until("begun")
    supervisor.signal(number)
    for _ in range(2):
        supervisor.until(" drain_begun queues=")
    supervisor.signal(number)
    supervisor.ends(code)
    assert [found.spent for found in emails.queue("emails").peek(include="all")] == [0, 0]


def test_a_signal_to_the_supervisor_and_to_each_process_counts_once(
    worker: Start, emails: Connection, jobs: Path
) -> None:
    send(emails, "hold", "gate")
    supervisor = worker("jobs:app", "-Q", "emails", "-c", "1", "-p", "1")
    supervisor.until("begun")
    [pid] = pids(supervisor)
    supervisor.signal(signal.SIGTERM)
    os.kill(pid, signal.SIGTERM)
    supervisor.until(" drain_begun queues=")
    (jobs / "gate").write_text("open")
    supervisor.ends(0)
    assert notes(jobs) == ["held"]


def test_a_process_that_is_killed_is_started_again_and_its_work_is_done(
    worker: Start, emails: Connection, jobs: Path
) -> None:
    send(emails, "die", max_attempts=1)
    supervisor = worker("jobs:app", "-Q", "emails", "-p", "1")
    supervisor.until("died child=1 code=137 again_in=1s")
    assert len(until_ready(supervisor)) == 2
    send(emails, "note", "done")
    supervisor.until(" done task=jobs.note")
    supervisor.signal(signal.SIGTERM)
    supervisor.ends(0)
    assert notes(jobs) == ["done"]


def test_processes_drain_when_the_supervisor_is_killed(worker: Start, emails: Connection, jobs: Path) -> None:
    send(emails, "hold", "gate")
    supervisor = worker("jobs:app", "-Q", "emails", "-p", "1")
    supervisor.until("begun")
    supervisor.signal(signal.SIGKILL)
    supervisor.until(" drain_begun queues=")
    (jobs / "gate").write_text("open")
    supervisor.until(" stopped")
    supervisor.ends(-signal.SIGKILL)
    assert notes(jobs) == ["held"]
    assert emails.queue("emails").counts().total == 0


def test_an_app_that_cannot_be_found_ends_all_at_once_with_the_same_code(worker: Start) -> None:
    supervisor = worker("nowhere:app", "-p", "2")
    supervisor.ends(2)
    assert "gives_up" in supervisor.output
    assert "no module 'nowhere'" in supervisor.output


@pytest.mark.full
def test_processes_that_die_at_once_again_and_again_are_given_up(worker: Start, emails: Connection, jobs: Path) -> None:
    assert emails
    (jobs / "broken").touch()
    supervisor = worker("jobs:app", "-p", "1")
    supervisor.ends(7)
    assert re.findall("again_in=(.*)", supervisor.output) == ["1s", "2s", "4s", "8s"]


def test_a_burst_is_over_when_each_process_has_ended(worker: Start, emails: Connection, jobs: Path) -> None:
    for number in range(20):
        send(emails, "note", str(number))
    worker("jobs:app", "-p", "2", "--burst").ends(0)
    assert sorted(notes(jobs), key=int) == [str(number) for number in range(20)]


def test_a_process_is_started_again_after_its_messages(worker: Start, emails: Connection, jobs: Path) -> None:
    for number in range(3):
        send(emails, "note", str(number))
    supervisor = worker("jobs:app", "-Q", "emails", "-p", "1", "--max-messages", "3")
    supervisor.until(" stopped")
    assert len(until_ready(supervisor)) == 2
    send(emails, "note", "later")
    supervisor.until(" done task=jobs.note")
    supervisor.signal(signal.SIGTERM)
    supervisor.ends(0)
    assert sorted(notes(jobs)) == ["0", "1", "2", "later"]


def test_log_lines_in_json_name_the_process(worker: Start, emails: Connection) -> None:
    send(emails, "note", "one")
    supervisor = worker("jobs:app", "-p", "1", "--burst", "--log-format", "json")
    supervisor.ends(0)
    lines = [json.loads(line) for line in supervisor.told]
    assert {(line["event"], line.get("child")) for line in lines} >= {("done", 1), ("started", 1), ("all_ended", None)}
