"""`astyqueue worker` as a process of its own: signals, exit codes, and that nothing is lost."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from astyqueue import ids
from astyqueue.clock import SystemClock
from astyqueue.model.views import Counts
from astyqueue.protocol.layout.columns import message_name
from astyqueue.protocol.layout.schedule_column import trigger_name
from astyqueue.queue.connection import Connection, connect
from astyqueue.store import Batch, Put
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW

#: What works in another process is to be seen in this one.
pytestmark = pytest.mark.stores("sqlite", "cassandra")

#: Seconds within which a process must do what is waited for; only a failing test takes this long.
DEADLINE = 60

JOBS = '''
import asyncio
import os
import sys
import threading
from pathlib import Path

from astyqueue.tasks.app import App

app = App(os.environ.get("JOBS_URL"))
no_app = 7


@app.task(queue="emails")
def hold(gate: str) -> None:
    """Say that it began, and finish once somebody opens the gate."""
    print("begun", flush=True)
    Path(gate).read_text()
    note("held")


@app.task(queue="emails")
def hold_what_it_printed(gate: str) -> None:
    """Print into the buffer of stdout, then as `hold`, whose line goes to stderr."""
    print("printed")
    print("begun", file=sys.stderr, flush=True)
    Path(gate).read_text()


@app.task(queue="emails")
async def hold_in_a_thread(gate: str) -> None:
    print("begun", flush=True)
    await asyncio.to_thread(Path(gate).read_text)


@app.task(queue="emails")
def leave_a_thread(gate: str) -> None:
    threading.Thread(target=Path(gate).read_text, daemon=False).start()


@app.task(queue="emails")
def note(text: str) -> None:
    with Path("notes.txt").open("a") as notes:
        notes.write(text + "\\n")


@app.task(queue="emails", timeout="100ms")
def slow() -> None:
    """Wait for what never comes."""
    Path("gate").read_text()


@app.task(queue="emails")
async def fail() -> None:
    raise ValueError("no such address")


@app.task
async def unused() -> None: ...
'''


class Worker:
    """A worker process, and the lines that it prints."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "astyqueue", "worker", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.told: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read, args=[pipe]) for pipe in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self._lines.put(line)

    def until(self, text: str) -> None:
        """Wait for a line with this text."""
        while text not in (line := self._lines.get(timeout=DEADLINE)):
            self.told.append(line)
        self.told.append(line)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, code: int) -> None:
        """Wait for the end; the exit code must be this one."""
        assert self.ended() == code, self.output

    def ended(self) -> int:
        """The exit code, waited for; `told` has all lines then."""
        code = self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)
        while not self._lines.empty():
            self.told.append(self._lines.get())
        return code

    @property
    def output(self) -> str:
        return "".join(self.told)


def write_jobs(text: str, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the module `jobs`, and the gate that its tasks wait at; the folder."""
    monkeypatch.delenv("ASTYQUEUE_URL")
    monkeypatch.setenv("JOBS_URL", url)
    (folder / "jobs.py").write_text(text)
    os.mkfifo(folder / "gate")
    return folder


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """Starts workers; none outlives its test."""
    started: list[Worker] = []

    def start(*words: str) -> Worker:
        started.append(Worker(*words))
        return started[-1]

    yield start
    for one in started:
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
        connection.queue("emails", **ONE_ROW)
        yield connection


def send(connection: Connection, task: str, *arguments: str, delay: str = "0s", max_attempts: int = 5) -> str:
    body = {"args": arguments, "kwargs": {}}
    sent = connection.queue("emails").send(
        body, headers={"task": f"jobs.{task}"}, delay=delay, max_attempts=max_attempts
    )
    return str(sent.id)


def counts(connection: Connection) -> Counts:
    return connection.queue("emails").counts()


def notes(folder: Path) -> list[str]:
    return (folder / "notes.txt").read_text().splitlines() if (folder / "notes.txt").exists() else []


@pytest.mark.every_store
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_term_and_hup_finish_what_runs_and_give_back_the_rest(
    worker: Callable[..., Worker], emails: Connection, jobs: Path, number: signal.Signals
) -> None:
    for _ in range(3):
        send(emails, "hold", "gate")
    process = worker("jobs:app", "-Q", "emails", "-c", "1")
    process.until("begun")
    process.signal(number)
    process.until("drain_begun")
    (jobs / "gate").write_text("open")
    process.ends(0)
    assert notes(jobs) == ["held"]
    assert [(found.standing, found.spent) for found in emails.queue("emails").peek(include="all")] == [
        ("waiting", 0)
    ] * 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_second_signal_gives_back_what_runs(
    worker: Callable[..., Worker], emails: Connection, jobs: Path, number: signal.Signals, code: int
) -> None:
    send(emails, "hold", "gate")
    process = worker("jobs:app")
    process.until("begun")
    process.signal(number)
    process.until("drain_begun")
    process.signal(number)
    process.ends(code)
    assert notes(jobs) == []
    assert [(found.standing, found.spent) for found in emails.queue("emails").peek(include="all")] == [("waiting", 0)]
    assert "Traceback" not in process.output


def test_what_tasks_printed_is_written_before_a_worker_exits_at_once(
    worker: Callable[..., Worker], emails: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    send(emails, "hold_what_it_printed", "gate")
    process = worker("jobs:app")
    process.until("begun")
    process.signal(signal.SIGTERM)
    process.until("drain_begun")
    process.signal(signal.SIGTERM)
    process.ends(143)
    assert "printed\n" in process.told


@pytest.mark.parametrize("task", ["hold", "hold_in_a_thread"])
def test_what_runs_longer_than_the_drain_may_take_is_released_and_keeps_no_worker_from_ending(
    worker: Callable[..., Worker], emails: Connection, task: str
) -> None:
    send(emails, task, "gate")
    process = worker("jobs:app", "--drain-timeout", "100ms")
    process.until("begun")
    process.signal(signal.SIGTERM)
    process.ends(0)
    assert [(found.standing, found.spent) for found in emails.queue("emails").peek(include="all")] == [("waiting", 0)]


@pytest.mark.parametrize("processes", [[], ["-p", "1"]], ids=["alone", "supervised"])
def test_a_second_signal_ends_a_worker_that_waits_for_a_thread_which_a_task_left(
    worker: Callable[..., Worker], emails: Connection, processes: list[str]
) -> None:
    send(emails, "leave_a_thread", "gate")
    process = worker("jobs:app", *processes)
    process.until(" done task=jobs.leave_a_thread")
    process.signal(signal.SIGTERM)
    process.until(" stopped")
    process.signal(signal.SIGTERM)
    process.ends(143)


@pytest.mark.every_store
def test_a_burst_ends_when_nothing_is_due(worker: Callable[..., Worker], emails: Connection, jobs: Path) -> None:
    for number in range(20):
        send(emails, "note", str(number))
    send(emails, "fail", max_attempts=1)
    send(emails, "note", "later", delay="1h")
    process = worker("jobs:app", "--burst")
    process.ends(0)
    assert sorted(notes(jobs), key=int) == [str(number) for number in range(20)]
    assert (counts(emails).dead, counts(emails).delayed, counts(emails).total) == (1, 1, 2)
    [letter] = emails.queue("emails").dead_letters()
    assert letter.reason == "ValueError: no such address"


def test_one_thread_runs_what_a_pattern_finds_and_a_burst_ends_when_that_is_done(
    worker: Callable[..., Worker], emails: Connection, jobs: Path
) -> None:
    for name in ("mail.one", "mail.two"):
        body = {"args": [name], "kwargs": {}}
        emails.queue(name, **ONE_ROW).send(body, headers={"task": "jobs.note"})
    send(emails, "note", "not from here")
    worker("jobs:app", "-Q", "mail.*:2", "-c", "1", "--burst").ends(0)
    assert sorted(notes(jobs)) == ["mail.one", "mail.two"]


def test_a_burst_over_empty_queues_logs_its_beginning_and_ends_at_once(worker: Callable[..., Worker]) -> None:
    process = worker("jobs:app", "--burst", "--log-format", "json")
    process.ends(0)
    assert [json.loads(line)["event"] for line in process.told] == ["ready", "drain_begun", "stopped"]


def test_no_more_messages_are_worked_on_than_asked_for(
    worker: Callable[..., Worker], emails: Connection, jobs: Path
) -> None:
    for number in range(20):
        send(emails, "note", str(number))
    worker("jobs:app", "--max-messages", "5").ends(0)
    assert len(notes(jobs)) == 5
    assert [found.spent for found in emails.queue("emails").peek(20)] == [0] * 15


def test_a_task_that_nobody_knows_is_parked(worker: Callable[..., Worker], emails: Connection) -> None:
    send(emails, "unheard_of")
    worker("jobs:app", "--burst").ends(0)
    assert counts(emails).parked == 1


def test_at_level_debug_the_log_has_requests_claims_and_settles(
    worker: Callable[..., Worker], emails: Connection
) -> None:
    id_ = send(emails, "note", "one")
    process = worker("jobs:app", "--burst", "--log-format", "json", "--log-level", "debug")
    process.ends(0)
    lines = [line for line in map(json.loads, process.told) if line["level"] == "debug"]
    told = {(line["logger"], line.get("event")): line for line in lines}
    assert told["astyqueue.claim", "claimed"]["messages"] == id_
    assert told["astyqueue.settle", "settled"]["outcome"] == "acked"
    assert told["astyqueue.requests", "request"]["took_ms"] >= 0


def test_log_lines_are_json_when_asked_for(worker: Callable[..., Worker], emails: Connection) -> None:
    id_ = send(emails, "note", "one")
    process = worker("jobs:app", "--burst", "--log-format", "json")
    process.ends(0)
    lines = [json.loads(line) for line in process.told]
    assert [line["event"] for line in lines] == ["ready", "done", "drain_begun", "stopped"]
    assert (lines[0]["queues"], lines[0]["threads"]) == ("emails,default", 8)
    assert {"jobs.fail", "jobs.note"} < set(lines[0]["tasks"].split(","))
    assert (lines[1]["task"], lines[1]["id"], lines[1]["attempt"]) == ("jobs.note", id_, 1)


#: Envelopes that ended the threads of a worker, or its dispatcher: fields of wrong types or out of bounds, a body that
#: is too deep.
UNREADABLE = (
    b'[%d,0,null,"x",null,null,null,1]',
    b"[%d,0,null,[],null,null,null,1]",
    b'[%d,0,null,{"task":["jobs.note"]},null,null,null,1]',
    b'[%d,0,5,{"task":"jobs.note"},null,null,null,1]',
    b'[%d,-6213564720000000000,null,{"task":"jobs.note"},null,null,null,1]',
    b'[%d,0,null,{"task":"jobs.note"},2534022719990000000000,null,null,1]',
    b'[%d,0,["k"],{"task":"jobs.note"},null,null,null,1,true,false]',
    b'[%d,0,"k",{"task":"jobs.note"},null,null,null,1,["reject"],false]',
)


@pytest.mark.stores("sqlite")
def test_messages_that_cannot_be_read_become_dead_letters_and_the_worker_goes_on(
    worker: Callable[..., Worker], emails: Connection, jobs: Path
) -> None:
    now = SystemClock().now() - SECOND
    wrong = [
        *(envelope % now for envelope in UNREADABLE),
        b"[%d,0,null,null,null,null,null,%b1%b]" % (now, b"[" * 250, b"]" * 250),
    ]
    puts = [Put(message_name(0, ids.at(now)), b"\x01" + envelope) for envelope in wrong]
    emails.store.commit(Batch("emails:0:0", (*puts, Put(message_name(0, ids.at(now)), b"\x02{}"))), ())
    emails.store.commit(Batch("emails:home:0", (Put(trigger_name("digest"), b"\x09"),)), ())
    for number in range(5):
        send(emails, "note", str(number))
    process = worker("jobs:app", "-Q", "emails", "-c", "2")
    for _ in range(5):
        process.until("done")
    send(emails, "note", "later")
    process.until("done")
    process.signal(signal.SIGTERM)
    process.ends(0)
    assert sorted(notes(jobs)) == ["0", "1", "2", "3", "4", "later"]
    assert counts(emails).dead == len(wrong) + 1
    assert {letter.kind for letter in emails.queue("emails").dead_letters()} == {"undecodable"}


def test_the_file_that_a_worker_has_options_from_is_a_line_of_its_log(
    worker: Callable[..., Worker], emails: Connection, folder: Path, jobs: Path
) -> None:
    folder.joinpath("astyqueue.toml").write_text('[worker]\nlog-format = "json"\n')
    send(emails, "note", "done")
    worker_ = worker("jobs:app", "--burst")
    worker_.ends(0)
    events = [json.loads(line) for line in worker_.told]
    assert [event["file"] for event in events if event["event"] == "options_read"] == [f"{folder}/astyqueue.toml"]
    assert notes(jobs) == ["done"]


def test_a_worker_whose_tasks_are_stuck_ends_with_a_code_of_its_own(
    worker: Callable[..., Worker], emails: Connection
) -> None:
    send(emails, "slow", max_attempts=1)
    process = worker("jobs:app", "--max-stuck", "1")
    process.ends(4)
    assert "Error: 1 of 8 threads are held by handlers that ran on past their timeout (jobs.slow)" in process.output
    assert counts(emails).dead == 1
