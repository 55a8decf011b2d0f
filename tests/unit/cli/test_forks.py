"""Tasks that end their process or fork it: only the worker itself logs and settles outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import run

#: The worker is a process of its own.
pytestmark = pytest.mark.stores("sqlite")

JOBS = '''
import os
import select
import signal
import sys
from pathlib import Path

from astyqueue.tasks.app import App

app = App()


def note(text: object) -> None:
    with Path("notes.txt").open("a") as notes:
        notes.write(f"{text}\\n")


@app.task(queue="emails")
def leave(code: int) -> None:
    sys.exit(code)


@app.task(queue="emails")
def crash() -> None:
    os._exit(9)


@app.task(queue="emails")
def fork(way: str) -> None:
    forked(way)


@app.task(queue="emails", batch=(1, "1h"))
def fork_in_batch(calls: list[object]) -> None:
    forked("return")


def forked(way: str) -> None:
    """Fork, and note how the child ended, if it does so within ten seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        leave_by(way)
        return
    os.close(writer)
    if not select.select([reader], [], [], 10)[0]:
        os.kill(child, signal.SIGKILL)
    note(f"{way} {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


def leave_by(way: str) -> None:
    if way == "exit":
        sys.exit(3)
    if way == "error":
        raise ValueError("in the child")
    if way == "terminated":
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
'''


def send(connection: Connection, task: str, *arguments: object) -> None:
    body = {"args": arguments, "kwargs": {}}
    connection.queue("emails").send(body, headers={"task": f"jobs.{task}"}, max_attempts=1)


@pytest.fixture
def emails(connection: Connection, folder: Path) -> Connection:
    """The store of the commands, with the app `jobs:app` in the current directory."""
    (folder / "jobs.py").write_text(JOBS)
    return connection


def test_a_forked_child_that_leaves_its_task_ends_and_decides_no_outcome(emails: Connection, folder: Path) -> None:
    ways = ["return", "exit", "error", "terminated"]
    for way in ways:
        send(emails, "fork", way)
    code, _, err = run("worker", "jobs:app", "--burst", "-c", "1")
    assert (folder / "notes.txt").read_text().splitlines() == ["return 0", "exit 3", "error 1", "terminated -15"]
    assert (code, err.count(" done "), "Traceback" in err) == (0, len(ways), False)
    [told] = [line for line in err.splitlines() if "in the child" in line]
    assert " ERROR astyqueue.worker forked_child_failed " in told
    assert emails.queue("emails").counts().total == 0


def test_a_forked_child_that_leaves_a_batch_ends_and_decides_no_outcome(emails: Connection, folder: Path) -> None:
    send(emails, "fork_in_batch", "argument")
    code, _, err = run("worker", "jobs:app", "--burst", "-c", "1")
    assert (folder / "notes.txt").read_text().splitlines() == ["return 0"]
    assert (code, err.count(" done ")) == (0, 1)
    assert emails.queue("emails").counts().total == 0


@pytest.mark.parametrize("code", [0, 3])
def test_sys_exit_in_a_task_fails_its_attempt_and_the_worker_goes_on(emails: Connection, code: int) -> None:
    send(emails, "leave", code)
    assert run("worker", "jobs:app", "--burst")[0] == 0
    [letter] = emails.queue("emails").dead_letters()
    assert letter.reason == f"SystemExit: {code}"


def test_a_task_that_ends_its_process_leaves_the_message_to_the_next_worker(emails: Connection) -> None:
    send(emails, "crash")
    assert run("worker", "jobs:app", "--burst")[0] == 9
    [found] = emails.queue("emails").peek(include="all")
    assert (found.standing, found.spent) == ("in_flight", 0)
