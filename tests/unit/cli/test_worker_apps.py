"""The app of `astyqueue worker`: how it is found, what else may name its store and spool, and what it brings along."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from astyqueue.queue.connection import Connection
from astyqueue.spool import SpoolFolder
from tests.unit.cli.test_worker import JOBS, Worker, counts, emails, jobs, notes, send, worker

__all__ = ["emails", "jobs", "worker"]

#: What works in another process is to be seen in this one.
pytestmark = pytest.mark.stores("sqlite", "cassandra")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nowhere:app"], 2, "Error: no module 'nowhere' in "),
        (["broken:app"], 2, "Error: broken cannot be imported: ZeroDivisionError: division by zero; -v shows where"),
        (["leaves:app"], 2, "Error: leaves exits when it is imported: call what exits under if __name__ == "),
        (["leaves:app", "-v"], 2, "    raise SystemExit(0)"),
        (["./jobs.py:app"], 2, "Error: './jobs.py' is not the name of a module: name an app as pkg.mod:app"),
        (["jobs.py"], 2, "Error: 'jobs.py' is not the name of a module: name an app as pkg.mod:app, such as jobs:app"),
        ([":app"], 2, "Error: '' is not the name of a module: name an app as pkg.mod:app, such as shop.tasks:app"),
        (["jobs:ap"], 2, "Error: jobs:ap does not exist; did you mean jobs:app?"),
        (["jobs:no_app"], 2, "Error: jobs:no_app is of type int; did you mean jobs:app?"),
        (["jobs:app", "-Q", "emials"], 2, "Error: this app has no queue 'emials', it has emails, default"),
        (["jobs:app", "-Q", "emails:x"], 2, "emails:3,default"),
        (["jobs:app", "-Q", "emails:0"], 2, "Error: weight is 0: give a whole number from 1 to 1000"),
        (["jobs:app", "--drain-timeout", "soon"], 2, "for '--drain-timeout': 'soon' is not a duration"),
        (["jobs:app", "--url", "amqp://"], 2, "Error: unknown kind of store 'amqp'"),
        (["jobs:app", "--url", "sqlite:////no/such/place/work.db"], 3, "create it"),
    ],
)
def test_a_worker_that_cannot_begin_says_why(
    worker: Callable[..., Worker], jobs: Path, words: list[str], code: int, told: str
) -> None:
    (jobs / "broken.py").write_text("1 / 0\n")
    (jobs / "leaves.py").write_text("def main():\n    raise SystemExit(0)\n\n\nmain()\n")
    process = worker(*words)
    process.ends(code)
    assert told in process.output
    assert ("Traceback" in process.output) == ("-v" in words)


def test_an_app_for_asyncio_is_worked_on_as_any_other(
    worker: Callable[..., Worker], emails: Connection, jobs: Path
) -> None:
    (jobs / "jobs.py").write_text(
        JOBS.replace("app = App(", "app = aio.App(").replace("\nimport", "\nfrom astyqueue import aio\nimport", 1)
    )
    for number in range(5):
        send(emails, "note", str(number))
    send(emails, "fail", max_attempts=1)
    worker("jobs", "--coroutines", "2", "--child-processes", "1", "--burst").ends(0)
    assert sorted(notes(jobs)) == ["0", "1", "2", "3", "4"]
    assert (counts(emails).dead, counts(emails).total) == (1, 1)


def test_a_flag_beats_the_app_which_beats_the_environment(
    worker: Callable[..., Worker], jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTYQUEUE_URL", "sqlite:///environment.db")
    worker("jobs:app", "--burst").ends(0)
    assert not (jobs / "environment.db").exists()
    worker("jobs:app", "--burst", "--url", "sqlite:///flag.db").ends(0)
    assert (jobs / "flag.db").exists()
    monkeypatch.setenv("JOBS_URL", "")
    worker("jobs:app", "--burst").ends(0)
    assert (jobs / "environment.db").exists()


SENDING = (
    JOBS
    + """

@app.task(queue="emails")
def begin() -> None:
    for number in range(3):
        unserved.send(number)


@app.task(queue="numbers")
def unserved(number: int) -> None: ...
"""
)


@pytest.mark.every_store
@pytest.mark.parametrize("given", ["flag", "environment", "file"])
def test_a_worker_sends_into_a_spool_and_forwards_what_is_in_it_at_its_end(
    given: str, worker: Callable[..., Worker], emails: Connection, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jobs / "jobs.py").write_text(SENDING)
    send(emails, "begin")
    if given == "environment":
        monkeypatch.setenv("ASTYQUEUE_SPOOL", str(jobs / "spool"))
    if given == "file":
        jobs.joinpath("astyqueue.toml").write_text('[worker]\nspool = "spool"\n')
    process = worker("jobs:app", "-Q", "emails", "--burst", *(["--spool", "spool"] if given == "flag" else []))
    process.ends(0)
    sent = sorted(str(found.body) for found in emails.queue("numbers").peek())  # of several rows: in no order
    assert sent == [str({"args": [number], "kwargs": {}}) for number in range(3)]
    [state] = SpoolFolder(jobs / "spool", "numbers").states()
    assert (state.messages, state.in_use) == (0, False)


HANGING = JOBS.replace(
    'app = App(os.environ.get("JOBS_URL"))',
    """
from astyqueue.protocol.steps import Read
from astyqueue.spool import SpoolOptions
from astyqueue.stores import lazy_store
from astyqueue.testing.faults import Faulty


class Hanging(Faulty):
    def perform(self, request):
        if not isinstance(request, Read) and request.batch.row.startswith("numbers:"):
            threading.Event().wait()
        return super().perform(request)


opened = lazy_store.open_store
lazy_store.open_store = lambda *place, **options: Hanging(opened(*place, **options))
app = App(os.environ["JOBS_URL"], spool=SpoolOptions.of("spool", drain="10m"))


@app.task(queue="emails")
def send_and_hold(gate: str) -> None:
    unserved.send(1)
    hold(gate)


@app.task(queue="numbers")
def unserved(number: int) -> None: ...
""",
)


def test_a_second_signal_does_not_wait_for_a_store_that_takes_nothing_from_the_spool(
    worker: Callable[..., Worker], emails: Connection, jobs: Path
) -> None:
    (jobs / "jobs.py").write_text(HANGING)
    emails.queue("numbers")
    send(emails, "send_and_hold", "gate")
    process = worker("jobs:app", "-Q", "emails")
    process.until("begun")
    process.signal(signal.SIGTERM)
    process.until("drain_begun")
    process.signal(signal.SIGTERM)
    process.ends(143)
    assert [(found.standing, found.spent) for found in emails.queue("emails").peek(include="all")] == [("waiting", 0)]
    [state] = SpoolFolder(jobs / "spool", "numbers").states()
    assert (state.messages, state.in_use) == (1, False)


WITH_MIDDLEWARE = """
import os

from astyqueue import App, Hook


class Tell(Hook):
    def after_settle(self, delivery, outcome):
        print("hook", outcome)


def trace(delivery, call_next):
    print("trace", delivery.attempt)
    return call_next(delivery)


app = App(os.environ["JOBS_URL"], middleware=[trace], hooks=[Tell()])


@app.task(queue="emails")
def note(text: str) -> None:
    print("note", text)
"""


def test_the_middleware_of_the_app_is_around_its_tasks_and_its_hooks_hear_of_their_ends(
    worker: Callable[..., Worker], emails: Connection, jobs: Path
) -> None:
    (jobs / "jobs.py").write_text(WITH_MIDDLEWARE)
    send(emails, "note", "hello")
    process = worker("jobs:app", "--max-messages", "1")
    process.ends(0)
    printed = [line.strip() for line in process.told if line.startswith(("trace", "note", "hook"))]
    assert printed == ["trace 1", "note hello", "hook acked"]


def test_a_worker_on_a_store_in_memory_is_told_that_nobody_else_reaches_it(
    worker: Callable[..., Worker], emails: Connection
) -> None:
    assert emails
    alone = worker("jobs:app", "--url", "memory://", "--burst")
    alone.ends(0)
    assert alone.output.count(" WARNING astyqueue.worker store_in_memory store=memory:// hint=") == 1
    assert "give a store of several processes, such as sqlite:///work.db" in alone.output
    two = worker("jobs:app", "--url", "memory://mine", "--burst", "-p", "2")
    two.ends(0)
    assert {number for number in "12" if f"worker[{number}] store_in_memory " in two.output} == {"1", "2"}
    reached = worker("jobs:app", "--burst")
    reached.ends(0)
    assert "store_in_memory" not in reached.output
