"""Commands and workers as processes whose stdin, stdout or stderr is closed, is full, or is not read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import DEADLINE, run

#: The processes open the store on their own.
pytestmark = pytest.mark.stores("sqlite")

JOBS = '''
from pathlib import Path

from astyqueue.tasks.app import App

app = App()


@app.task(queue="emails")
def note(text: str, flush: bool) -> None:
    """Print more than a buffer holds, then write a line into a file."""
    print("x" * 10_000, flush=flush)
    with Path("notes.txt").open("a") as notes:
        notes.write(text + "\\n")
'''


@contextmanager
def unread() -> Iterator[int]:
    """A pipe for writing whose reader went away."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def send(connection: Connection, *, flush: bool) -> None:
    body = {"args": ["done", flush], "kwargs": {}}
    connection.queue("emails").send(body, headers={"task": "jobs.note"}, max_attempts=1)


@pytest.fixture
def emails(connection: Connection, folder: Path) -> Connection:
    """The store of the commands, with the app `jobs:app` in the current directory."""
    (folder / "jobs.py").write_text(JOBS)
    return connection


@pytest.mark.parametrize(
    ("words", "closed"),
    [(["counts", "emails"], ">&-"), (["verify"], ">&-"), (["queues", "list", "--json"], "<&- >&- 2>&-")],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
@pytest.mark.usefixtures("emails")
def test_a_command_does_its_work_with_closed_descriptors(words: list[str], closed: str) -> None:
    assert run(*words, closed=closed) == (0, "", "")


@pytest.mark.usefixtures("emails")
def test_stdin_that_is_closed_is_empty() -> None:
    assert run("send", "emails", "-", closed="<&-")[0] == 2


@pytest.mark.usefixtures("emails")
def test_an_error_is_not_printed_among_results_when_stderr_is_closed() -> None:
    assert run("peek", "unheard-of", closed="2>&-") == (1, "", "")
    assert run("--nope", closed="2>&-") == (2, "", "")


def test_warnings_and_errors_that_nobody_reads_change_no_exit_code(emails: Connection, folder: Path) -> None:
    folder.joinpath("astyqueue.toml").write_text("[counts]\njson = true\n")
    with unread() as pipe:
        assert run("counts", "emails", err=pipe)[0] == 0
        assert run("peek", "unheard-of", err=pipe)[0] == 1
        assert run("--nope", err=pipe)[0] == 2
    assert emails.queue("emails").counts().total == 0


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def buffering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether Python writes what is left for stdout as the process exits."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


@pytest.mark.usefixtures("emails", "buffering")
def test_a_send_whose_result_cannot_be_written_says_that_it_was_done(connection: Connection) -> None:
    with unread() as pipe:
        code, _, err = run("send", "emails", "1", out=pipe)
    [found] = connection.queue("emails").peek()
    assert (code, err) == (1, f"Error: this was done, but stdout could not be written (Broken pipe): {found.id}\n")


@pytest.mark.parametrize("words", [["counts", "emails"], ["--help"]], ids=" ".join)
@pytest.mark.usefixtures("emails", "buffering")
def test_a_command_fails_when_its_result_cannot_be_written(words: list[str]) -> None:
    with unread() as pipe:
        assert run(*words, out=pipe) == (1, "", "")
    with Path("/dev/full").open("w") as full:
        code, _, err = run(*words, out=full.fileno())
    assert (code, err) == (1, "Error: [Errno 28] No space left on device\n")


def test_a_worker_runs_tasks_that_print_with_closed_descriptors(emails: Connection, folder: Path) -> None:
    for flush in (True, False):
        send(emails, flush=flush)
    assert run("worker", "jobs:app", "--burst", closed="<&- >&- 2>&-") == (0, "", "")
    assert (folder / "notes.txt").read_text() == "done\n" * 2


def test_a_task_that_prints_does_not_fail_because_nobody_reads_it(emails: Connection, folder: Path) -> None:
    for flush in (True, False):
        send(emails, flush=flush)
    with unread() as pipe:
        code, _, err = run("worker", "jobs:app", "--burst", out=pipe)
        assert (code, "Traceback" in err, "BrokenPipe" in err) == (0, False, False)
        send(emails, flush=True)
        assert run("worker", "jobs:app", "--burst", out=pipe, err=pipe)[0] == 0
    assert (folder / "notes.txt").read_text() == "done\n" * 3


BLOCKED_PRINTS = """
import select
import sys
import threading

from astyqueue.cli.streams import exit_at_once

threading.Thread(target=lambda: print("x" * 1_000_000), daemon=True).start()
while select.select([], [sys.stdout], [], 0)[1]:
    pass
exit_at_once(7)
"""


def test_a_process_exits_at_once_also_while_a_thread_prints_into_a_pipe_that_is_full() -> None:
    with subprocess.Popen([sys.executable, "-c", BLOCKED_PRINTS], stdout=subprocess.PIPE) as process:
        assert process.wait(DEADLINE) == 7


ENDS_SOON = """
import atexit

from astyqueue.cli.streams import exit_soon

atexit.register(print, "written at the exit")
exit_soon(7)
"""


def test_a_process_that_no_thread_keeps_exits_as_usual_although_it_was_to_exit_soon() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_SOON], stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "written at the exit\n")
