"""Workers with processes of their own, and the module `jobs` that they run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from astyqueue.clock import SystemClock
from astyqueue.queue.connection import Connection, connect
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.places import ONE_ROW
from tests.unit.cli.test_worker import DEADLINE, Worker, write_jobs

Start = Callable[..., Worker]

JOBS = '''
import contextlib
import os
import re
import signal
from pathlib import Path

from astyqueue.tasks.app import App

app = App(os.environ.get("JOBS_URL"))
kept = []

if Path("broken").exists():
    os._exit(1)


@app.task(queue="emails")
def hold(gate: str) -> None:
    """Print that it began, and finish once the gate is opened."""
    print("begun", os.getpid(), flush=True)
    Path(gate).read_text()
    note("held")


@app.task(queue="emails")
def note(text: str) -> None:
    with Path("notes.txt").open("a") as notes:
        notes.write(text + "\\n")


@app.task(queue="emails")
def hold_the_interpreter() -> None:
    """Match what takes years, in a call that lets no other thread run."""
    print("begun", flush=True)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.task(queue="emails")
def grow() -> None:
    """Take 400 MB, and keep them."""
    for _ in range(100):
        kept.append(bytearray(os.urandom(1) * 4_000_000))
    note("grown")


@app.task(queue="emails")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.fixture
def worker() -> Iterator[Start]:
    """Starts workers; none outlives its test: processes drain when their supervisor is killed."""
    started: list[Worker] = []

    def start(*words: str) -> Worker:
        started.append(Worker(*words))
        return started[-1]

    yield start
    for one in started:
        for pid in pids(one):
            kill(pid)
        one.process.kill()
        one.ended()


@pytest.fixture(autouse=True)
def jobs(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module `jobs` in the current directory, whose app has the store at `url`."""
    return write_jobs(JOBS, folder, url, monkeypatch)


@pytest.fixture
def emails(jobs: Path, url: str) -> Iterator[Connection]:
    """The store of the jobs."""
    assert jobs.exists()
    with connect(url) as connection:
        connection.queue("emails", lease="5s", **ONE_ROW)
        yield connection


def pids(supervisor: Worker) -> list[int]:
    """The processes that it has started so far."""
    return [int(found) for found in re.findall(r"started child=\d+ pid=(\d+)", supervisor.output)]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def until(true: Callable[[], bool]) -> None:
    """Look every 20 ms, as no process says when this becomes true."""
    clock = SystemClock()
    pause, end = Wakeup(clock), clock.monotonic() + DEADLINE * SECOND
    while not true():
        assert clock.monotonic() < end
        pause.wait(clock.monotonic() + SECOND // 50)


def let_go(supervisor: Worker, gate: Path) -> None:
    """Open the gate for all tasks that wait at it, until the supervisor has ended."""

    def ended() -> bool:
        with contextlib.suppress(OSError):  # no task waits there now
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return supervisor.process.poll() is not None

    until(ended)


def until_ready(supervisor: Worker, count: int = 1) -> list[int]:
    """Wait until so many more processes are ready; all that were started."""
    for _ in range(count):
        supervisor.until(" ready worker=")
    return pids(supervisor)
