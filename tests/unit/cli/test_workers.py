"""Who works on a store: `astyqueue workers`, what `doctor` finds out from their reports, and `queues permits`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from astyqueue.clock import SystemClock
from astyqueue.model.presence import Presence, RunningTask, WorkerState
from astyqueue.protocol.coordination.presence import read_commands, report
from astyqueue.protocol.layout.rows import WORKERS
from astyqueue.protocol.steps import run
from astyqueue.queue.connection import Connection, connect
from astyqueue.store import Batch, Name, Put
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.cli.conftest import Shell

NOW = SystemClock().now()
ANN = Presence(
    "web-1:812:9f2c01", "web-1", 812, "1.2", NOW - 3600 * SECOND, WorkerState.RUNNING, ["emails"], 1, 8, 1,
    [RunningTask("emails", "mail.send", "emails:0:0/0/x", NOW - 90 * SECOND)],
)  # fmt: skip
BOB = dataclasses.replace(ANN, name="web-2:7:aaaaaa", host="web-2", pid=7, queues=["other"], busy=0, running=[])

Workers = Callable[..., None]


@pytest.fixture
def reports(connection: Connection, url: str) -> Workers:
    """Stores reports, as workers do."""

    def write(*presences: Presence, ago: int = 0) -> None:
        """`ago`: seconds since they were written."""
        with connect_at(url, -ago) as past:
            for one in presences:
                run(report(one), past.store)

    assert connection.queues()
    return write


def connect_at(url: str, seconds: int) -> Connection:
    """The same store at another moment."""
    return connect(url, clock=TimeMachine(SystemClock().now() + seconds * SECOND))


@pytest.mark.usefixtures("connection")
def test_without_workers_it_says_so(shell: Shell) -> None:
    assert shell("workers").stdout == "no worker has reported lately\n"
    assert shell("workers", "--json").stdout == ""


@pytest.mark.every_store
def test_workers_are_listed_with_what_they_run(shell: Shell, connection: Connection) -> None:
    for one in (BOB, ANN):
        run(report(one), connection.store)
    titles, first, second = shell("workers").stdout.splitlines()
    assert titles.split() == ["name", "state", "seen", "up", "busy", "oldest", "task", "queues", "version"]
    assert first.startswith("web-1:812:9f2c01  running  ")
    assert re.search(r"  1/8   mail\.send for \d+m\d*s?  emails  1\.2$", first)
    assert second.startswith("web-2:7:aaaaaa    running  ")
    listed = shell.json("workers")
    assert [one["name"] for one in listed] == [ANN.name, BOB.name]
    assert [one["stale"] for one in listed] == [False, False]
    assert listed[0]["running"][0] == {**listed[0]["running"][0], "task": "mail.send", "id": "emails:0:0/0/x"}
    assert shell("workers", "list").stdout.splitlines()[0].split() == titles.split()


def test_limits_and_queues_that_it_stands_by_in_are_marked(shell: Shell, connection: Connection) -> None:
    limited = dataclasses.replace(ANN, queues=["emails", "sms", "fax"], limits={"emails": 5, "sms": 2}, standby=["sms"])
    run(report(limited), connection.store)
    assert "  emails (at most 5),sms (at most 2, standby),fax  " in shell("workers").stdout
    assert shell.json("workers")[0]["limits"] == {"emails": 5, "sms": 2}


@pytest.mark.stores("sqlite")
def test_stale_ones_are_marked_and_come_last(shell: Shell, reports: Workers) -> None:
    reports(ANN, ago=60)
    reports(BOB)
    assert [one.split()[:2] for one in shell("workers").stdout.splitlines()[1:]] == [
        [BOB.name, "running"],
        [ANN.name, "stale"],
    ]


@pytest.mark.stores("sqlite")
def test_those_that_reported_long_ago_are_gone(shell: Shell, reports: Workers) -> None:
    reports(ANN, ago=200)
    assert shell("workers").stdout == "no worker has reported lately\n"


def test_what_cannot_be_read_is_left_out_and_nothing_moves_the_cursor(shell: Shell, connection: Connection) -> None:
    run(report(ANN), connection.store)
    wrong = (b"", b"\x02{}", b"\x01[1]", b"\x01{}", b'\x01{"name":7}', b"\x01" + b"[" * 500)
    puts = tuple(Put(Name(0, 0, bytes([1, *[number] * 15]), 0), value) for number, value in enumerate(wrong))
    connection.store.send(Batch(WORKERS, puts))
    evil = dataclasses.replace(ANN, name="x\x1b[2J", queues=["\u202eq"])
    run(report(evil), connection.store)
    shown = shell("workers").stdout
    assert len(shown.splitlines()) == 3
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_commands_go_to_the_workers_that_are_named_in_full_or_in_part(shell: Shell, connection: Connection) -> None:
    for one in (ANN, BOB):
        run(report(one), connection.store)
    said = shell("workers", "drain", "web-1").stdout
    assert said == "web-1:812:9f2c01 was asked to claim no more, finish what runs, and end; it does within 15s\n"
    assert shell.json("workers", "stacks", ANN.name, "web-2") == [
        {"worker": ANN.name, "command": "stacks"},
        {"worker": BOB.name, "command": "stacks"},
    ]
    assert [one.command for one in run(read_commands(ANN.name), connection.store)] == ["drain", "stacks"]
    assert [one.command for one in run(read_commands(BOB.name), connection.store)] == ["stacks"]
    assert "2 workers have names that begin with 'web'" in shell.error("workers", "quiet", "web", code=2)
    assert "there is no worker 'db'; there are: web-1" in shell.error("workers", "quiet", "db", code=1)


def test_an_empty_name_means_no_worker(shell: Shell, connection: Connection) -> None:
    """It mostly comes from a variable that is not set, and every name begins with it."""
    run(report(ANN), connection.store)
    assert "the name of a worker is empty" in shell.error("workers", "drain", "", code=2)
    assert run(read_commands(ANN.name), connection.store) == []


@pytest.mark.stores("sqlite")
def test_who_commands_a_worker_that_does_not_report_is_told_so(shell: Shell, reports: Workers) -> None:
    reports(ANN, ago=60)
    said = shell("workers", "quiet", "web-1").stdout
    assert "does within" not in said
    assert re.search(r"; it has not reported for 1m\d*s?, and does so only if it reports again within 10m\n$", said)


@pytest.mark.stores("sqlite")
def test_a_quiet_worker_does_not_serve_its_queues(shell: Shell, url: str, reports: Workers) -> None:
    with connect_at(url, -600) as past:
        past.queue("emails").send("waits")
    reports(dataclasses.replace(ANN, state=WorkerState.QUIET))
    told = shell("doctor", code=10).stdout
    assert "workers of queue emails: no worker serves this queue (1 is quiet), and work is due since" in told
    assert f"do:  astyqueue workers resume {ANN.name}, or start a worker with -Q emails\n" in told


@pytest.mark.stores("sqlite")
def test_doctor_says_that_work_is_due_and_no_worker_serves_the_queue(shell: Shell, url: str, reports: Workers) -> None:
    with connect_at(url, -600) as past:
        past.queue("emails").send("waits")
    reports(BOB)
    assert (
        "workers of queue emails: no worker serves this queue, and work is due since" in shell("doctor", code=10).stdout
    )
    reports(ANN)
    assert "workers of queue emails: 1 worker with 8 slots" in shell("doctor", code=10).stdout
    assert "no worker serves this queue" not in shell("doctor", code=10).stdout


@pytest.mark.stores("sqlite")
def test_doctor_lists_workers_that_have_stalled_or_vanished_or_are_quiet(shell: Shell, reports: Workers) -> None:
    reports(dataclasses.replace(ANN, state=WorkerState.STALLED))
    assert f"worker {ANN.name}: has stalled: work is due" in shell("doctor", code=20).stdout
    reports(ANN)
    reports(BOB, ago=100)
    assert f"worker {BOB.name}: has not reported since" in shell("doctor", code=10).stdout
    reports(dataclasses.replace(BOB, state=WorkerState.QUIET))
    assert f"do:  astyqueue workers resume {BOB.name}" in shell("doctor").stdout


def test_a_limit_of_processes_is_set_and_who_claims_and_who_stands_by_is_shown(
    shell: Shell, connection: Connection
) -> None:
    active, other = connection.queue("emails"), connection.queue("emails")
    assert shell("queues", "permits", "emails").stdout == "any number of processes may claim: it has no limit\n"
    shell("queues", "set", "emails", "max-active-processes=1")
    assert shell("queues", "permits", "emails").stdout == "no process claims now\n"
    for queue in (active, other):
        queue.core.settings_sync.settings = connection.queue("emails").settings
        assert not queue.receive(wait="600ms")  # a stand-by is listed when it looks a second time
    found = shell.json("queues", "permits", "emails")
    names = [queue.core.process.name for queue in (active, other)]
    assert [(one["process"], one["state"]) for one in found] == list(zip(names, ["active", "standby"], strict=True))
    lines = shell("queues", "permits", "emails").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["process", *names]
    shell("queues", "set", "emails", "max-active-processes=0")
    assert shell.json("queues", "permits", "emails") == []
    assert "at most 100" in shell.error("queues", "set", "emails", "max-active-processes=101", code=2)
