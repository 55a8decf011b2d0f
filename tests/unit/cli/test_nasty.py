"""Whatever senders and handlers write, each command that shows it prints only printable text.

This holds on a terminal, in a pipe and as JSON. The commands are those that click knows, so a new one is tested as
well: it either shows something, or is listed in `CHANGES`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import pytest

from astyqueue import MessageQueue, ids
from astyqueue.cli import main
from astyqueue.cli.config import Deliberate
from astyqueue.clock import SystemClock
from astyqueue.journal import BYTES, Journal
from astyqueue.model.envelope import FORMAT, MessageId
from astyqueue.model.presence import Presence, RunningTask, WorkerState
from astyqueue.model.views import DeadLetter, Found
from astyqueue.printable import printable
from astyqueue.protocol.coordination.presence import report
from astyqueue.protocol.layout.rows import WORKERS
from astyqueue.queue.connection import Connection, connect
from astyqueue.store import Batch, Name, Put
from tests.support.nasty import HALVES, TEXTS, Fate, Nasty, fill, nasty_messages, schedule
from tests.support.places import ONE_ROW, Place
from tests.unit.cli.conftest import Shell
from tests.unit.cli.reference import commands

pytestmark = pytest.mark.stores("memory", "sqlite")

QUEUE: Final = "emails"
#: What changes something, or runs on and on; and what is shown by Spark, which tests of its own look at.
CHANGES: Final = {
    *("worker", "send", "delete", "clear", "drop", "rescan", "migrate", "queues set", "dead redrive", "dead purge"),
    *(f"schedules {name}" for name in ("add", "pause", "resume", "run", "backfill", "delete", "reconcile")),
    *(f"workers {name}" for name in ("drain", "quiet", "resume", "stacks")),
    *("spark enqueue", "spark redrive", "pipeline run", "pipeline stream", "pipeline report", "journal reclaim"),
}
#: Of `doctor`, which finds dead letters.
FINDINGS: Final = {10, 20}
#: How we ourselves style a table or a finding on a terminal; the nasty texts have others.
STYLES: Final = re.compile(r"\x1b\[(0|1|2|32|33|36|1;31)m")
#: Options that all have, and one with which a command does not end.
_OURS: Final = frozenset({"json", "as_json", "verbose", "url", "help", "follow"})
#: The fields of a report as they are stored.
STORED: Final = (
    *("name", "host", "pid", "version", "started", "state", "queues", "queue_count", "slots", "busy", "running"),
    "every",
)
#: More than there is.
ALL: Final = "2000"


@dataclass
class Store:
    """A store that was filled with what is nasty."""

    url: str
    nasty: dict[MessageId, Nasty]
    found: list[Found]
    dead: list[DeadLetter]
    schedules: list[str]
    journal: Path
    spool: Path
    step: int

    def arguments(self, path: str, name: str) -> list[str]:
        """All that an argument of a command can be here; of each `step` messages one."""
        there, sent = [str(one.id) for one in self.found], [str(id_) for id_ in self.nasty]
        known = {
            "dead show id": [str(letter.id) for letter in self.dead][:: self.step],
            "get id": there[:: self.step],
            "id": [*sent, *there][:: self.step],
            "what": [QUEUE, *sent[:: self.step]],
            "key": sorted({one.key for one in self.found if one.key is not None})[:: self.step],
            "schedules name": self.schedules,
            "folder": [str(self.journal)],
            "journal replay folder": [str(self.spool / "queue-another" / "1")],
            "folders": [str(self.spool)],
        }
        return (
            known.get(f"{path} {name}") or known.get(f"{path.partition(' ')[0]} {name}") or known.get(name) or [QUEUE]
        )


@pytest.fixture
def store(place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Iterator[Store]:
    """A store of commands in which all that is nasty was sent, scheduled, failed and buried, and a journal of it.

    Lists show all of it; commands on one message look at one in some.
    """
    monkeypatch.setenv("ASTYQUEUE_URL", place.url)
    with Journal.open(folder / "journal", codec=BYTES) as journal:
        written = [text.encode(errors="surrogatepass") for text in TEXTS]
        journal.append_many([*written, *(json.dumps({text: [text]}).encode() for text in TEXTS), b"\xff\x00"])
    with connect(place.url) as connection:
        queue = connection.queue(QUEUE, **ONE_ROW, history="all")
        connection.queue("another")
        nasty = fill(queue)
        schedules = schedule(queue)
        report_workers(connection)
        dead = queue.dead_letters(2_000)
        found = [*queue.peek(2_000, include="all"), *(queue.get(letter.id) for letter in dead)]
        step = 1 if place.kind == "memory" and pytestconfig.getoption("--all-stores") else 10
        with MessageQueue.builder().store(connection.store).name("another").spool(folder / "spool").build() as spooling:
            spooling.send_many(list(TEXTS))
        yield Store(place.url, nasty, found, dead, schedules, folder / "journal", folder / "spool", step)


def report_workers(connection: Connection) -> None:
    """Reports of workers, with each text as a worker stores it, and as only another program would."""
    now = SystemClock().now()
    for number, text in enumerate(TEXTS.values()):
        running = [RunningTask(text, text, text, now)]
        one = Presence(f"{number}:ours", text, 1, "1", now, WorkerState.STALLED, [text], 1, 8, 1, running)
        connection.queue(QUEUE).run(report(one))
        foreign = {**{name: getattr(one, name) for name in STORED}, "name": text, "version": text}
        value = FORMAT + json.dumps(foreign).encode()
        connection.store.send(Batch(WORKERS, (Put(Name(0, 0, ids.of_text(text), 0), value, ttl=600),)))


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Printed:
    """What a command printed."""

    code: int
    out: str
    err: str
    words: Sequence[str]

    def check(self) -> None:
        """See that it ended well, and that nothing but lines came out."""
        assert self.code == 0 or (self.words[0] == "doctor" and self.code in FINDINGS), (
            self.words,
            self.code,
            self.err,
        )
        assert "Traceback" not in self.err
        for text in (STYLES.sub("", self.out), self.err):
            lines = text.split("\n")
            assert lines == [printable(line) for line in lines], self.words


def run(*words: str, terminal: bool) -> Printed:
    """Run a command in this process, as a script or on a terminal."""
    buffers = [io.BytesIO(), io.BytesIO()]
    streams = [(Terminal if terminal else io.TextIOWrapper)(buffer, encoding="utf-8") for buffer in buffers]
    code: object = 0
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            main(list(words), prog_name="astyqueue")
        except SystemExit as end:
            code = end.code
    for stream in streams:
        stream.flush()
    out, err = (written.getvalue().decode() for written in buffers)
    return Printed(int(str(code or 0)), out, err, words)


def looks() -> list[tuple[str, click.Command]]:
    """Every command that shows something, as it is typed behind `astyqueue`."""
    found = [(typed.removeprefix("astyqueue "), command) for typed, command in commands(main)]
    assert {path for path, _ in found} >= CHANGES
    return [(path, command) for path, command in found if path not in CHANGES]


def options(command: click.Command) -> Iterator[list[str]]:
    """The options with which a command shows other things: none, each flag, each choice; and always with no limit."""
    own = [
        one
        for one in command.params
        if isinstance(one, click.Option) and one.name not in _OURS and not isinstance(one, Deliberate)
    ]
    names = {one.name for one in own}
    most = next(([f"--{name}", ALL] for name in ("limit", "last") if name in names), [])
    yield most
    yield from ([*most, one.opts[-1]] for one in own if one.is_flag)
    yield from (
        [*most, one.opts[-1], choice]
        for one in own
        if isinstance(one.type, click.Choice)
        for choice in one.type.choices
    )


def typed(store: Store) -> Iterator[list[str]]:
    """Everything that can be looked at."""
    for path, command in looks():
        names = [str(one.name) for one in command.params if isinstance(one, click.Argument)]
        for given in itertools.product(*(store.arguments(path, name) for name in names)):
            some = options(command) if given in ((), (QUEUE,)) else itertools.islice(options(command), 1)
            yield from ([*path.split(), *each, "--", *given] for each in some)


def test_there_are_two_hundred_and_all_of_them_can_be_sent(store: Store) -> None:
    assert len(nasty_messages()) >= 200
    assert {fate for fate in Fate if any(one.fate is fate for one in store.nasty.values())} == set(Fate)
    assert len(store.dead) > 60
    assert len(store.found) > 150


def test_text_is_printable_on_a_terminal_and_in_a_pipe(store: Store) -> None:
    for words in typed(store):
        for terminal in (True, False):
            run(*words, terminal=terminal).check()


def test_json_is_one_object_a_line_and_ascii_on_a_terminal(store: Store) -> None:
    for words in typed(store):
        for terminal in (True, False):
            printed = run(*words[: words.index("--")], "--json", *words[words.index("--") :], terminal=terminal)
            printed.check()
            assert all(isinstance(json.loads(line), dict) for line in printed.out.splitlines()), words
            assert printed.out.isascii() or not terminal


def told(*words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(*words, "--json", terminal=False).out.split("\n") if line]


def test_json_says_what_was_sent_and_why_it_died(store: Store) -> None:
    for one in store.found:
        nasty = store.nasty.get(one.id)
        [got] = told("get", str(one.id))
        if nasty is None:  # a schedule sent it
            continue
        sent = nasty.message
        assert (got["body"], got["key"], got["headers"]) == (sent.body, sent.key, dict(sent.headers or {})), nasty.name
    letters = {letter["id"]: letter for letter in told("dead", "list", "--limit", ALL, QUEUE)}
    for id_, nasty in store.nasty.items():
        if nasty.fate is Fate.REJECTED and nasty.reason != HALVES:
            assert letters[str(id_)]["reason"] == nasty.reason[:1024] or len(nasty.reason.encode()) > 1024, nasty.name
    assert {schedule["name"] for schedule in told("schedules", "list", QUEUE)} == set(store.schedules)


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize(
    "words",
    [
        ["peek", QUEUE, "--include", "all", "-n", ALL],
        ["browse", QUEUE],
        ["history", QUEUE, "--trace"],
        ["dead", "list", QUEUE],
        ["doctor"],
    ],
)
def test_on_a_real_terminal(store: Store, words: list[str]) -> None:
    ours, theirs = pty.openpty()
    read: list[bytes] = []

    def listen() -> None:
        with contextlib.suppress(OSError):  # how a terminal shows that no process writes to it any more
            while part := os.read(ours, 65_536):
                read.append(part)

    listener = threading.Thread(target=listen)
    listener.start()
    with subprocess.Popen(
        [sys.executable, "-m", "astyqueue", *words, "--url", store.url], stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        code = process.wait(60)
    listener.join(60)
    os.close(ours)
    Printed(code, b"".join(read).decode().replace("\r\n", "\n"), "", words).check()


JOBS = """
from astyqueue.tasks.app import App

app = App()


@app.task(queue="jobs", name="fail")
def fail(text: str) -> None:
    raise ValueError(text)
"""


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_worker_logs_one_line_an_event_whatever_it_is_about(place: Place, folder: Path, form: str) -> None:
    folder.joinpath("jobs.py").write_text(JOBS)
    with connect(place.url) as connection:
        queue = connection.queue("jobs", max_attempts=1)
        for text in TEXTS.values():
            queue.send({"args": [text], "kwargs": {}}, headers={"task": "fail"})
            queue.send({text: text}, headers={"task": "fail"}, key=text[:100] or None)
            queue.send(text, headers={"task": text})
    words = [
        sys.executable,
        "-m",
        "astyqueue",
        "worker",
        "jobs",
        "--burst",
        "--log-level",
        "debug",
        "--log-format",
        form,
    ]
    done = subprocess.run(
        words, env={**os.environ, "ASTYQUEUE_URL": place.url}, capture_output=True, check=True, text=True
    )
    lines = done.stderr.split("\n")
    assert lines == [printable(line) for line in lines]
    if form == "json":
        assert {json.loads(line)["level"] for line in lines if line} == {"info", "error", "warning", "debug"}
    else:
        events = [
            re.match(r"\d{4}-\d\d-\d\dT\S+Z (DEBUG|INFO|WARNING|ERROR) astyqueue\S* ", line)
            for line in lines
            if line[:4].strip()
        ]
        assert {event and event[1] for event in events} == {"INFO", "ERROR", "WARNING", "DEBUG"}


@pytest.mark.usefixtures("connection")
def test_an_error_writes_what_it_quotes_as_output_does(shell: Shell) -> None:
    assert (
        shell.error("peek", "\x1b[2J\n", code=1) == r"Error: this store has no queue '\u001b[2J\n'; there are: emails"
    )
    assert r"invalid header '\u009b'" in shell.error("send", "emails", "1", "--header", "\x9b", code=2)
    assert r"'\u001b'" in shell("peek", "emails", "--limit", "\x1b", code=2).stderr
