"""`migrate`, `verify`, `doctor` and `explain`, as a person would type them, and the examination that `doctor` shows."""

from __future__ import annotations

import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue.findings import Severity, worst
from astyqueue.protocol.admin.settings import SETTINGS
from astyqueue.protocol.layout.rows import settings_row
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.health_check import examine
from astyqueue.store import Batch, Put
from astyqueue.testing import TimeMachine
from tests.unit.cli.conftest import Shell

CASSANDRA = "cassandra://nosuch.invalid/jobs?dc=west"


def newer(folder: Path) -> None:
    """Make the file look as if a newer astyqueue had made it."""
    with closing(sqlite3.connect(folder / "work.db")) as file:
        file.execute("PRAGMA user_version = 99")


@pytest.mark.stores("sqlite")
def test_a_file_is_ready_without_being_migrated(shell: Shell, connection: Connection) -> None:
    assert connection.queues() == ["emails"]
    assert shell("migrate").stdout.startswith("nothing to do: ")
    assert shell.json("migrate")[0]["done"].endswith("has format 2, the newest")
    assert shell("verify").stdout.endswith("\n1 check: all well\n")
    assert shell("migrate", "--print-cql").stdout == "-- this store needs no migration\n"


def test_a_store_in_memory_is_ready_too(shell: Shell) -> None:
    assert shell("migrate", "--url", "memory://").stdout == "nothing to do: opening a store in memory creates it\n"
    assert shell.json("verify", "--url", "memory://")[0]["severity"] == "note"


def test_the_help_of_verify_tells_the_exit_code_of_a_note(shell: Shell) -> None:
    assert "The exit code is 5 if anything worse than a note differs." in " ".join(
        shell("verify", "--help").stdout.split()
    )
    assert "note" in shell("verify", "--url", "memory://", code=0).stdout


def test_a_file_that_is_not_there_is_not_well(shell: Shell, folder: Path) -> None:
    for words, code in (("doctor", 10), ("verify", 5), ("migrate", 0)):
        told = shell(words, "--url", "sqlite:///typo.db", code=code).stdout
        assert f"{folder}/typo.db" in told
        assert "does not exist" in told
    assert not (folder / "typo.db").exists()


@pytest.mark.usefixtures("connection")
@pytest.mark.stores("sqlite")
def test_a_store_of_a_newer_format_has_an_exit_code_of_its_own(shell: Shell, folder: Path) -> None:
    newer(folder)
    result = shell("verify", code=5)
    assert "problem  file " in result.stdout
    assert "do:  upgrade this process" in result.stdout
    assert "upgrade this process" in shell.error("migrate", code=5)
    assert "upgrade this process" in shell.error("counts", code=5)


def test_what_migrate_would_run_is_printed_without_a_server(shell: Shell) -> None:
    text = shell("migrate", "--url", CASSANDRA, "--print-cql", "--replication", "west:3,dc2:2", "--no-durable").stdout
    assert text.startswith(
        "CREATE KEYSPACE IF NOT EXISTS \"jobs\" WITH replication = {'class': 'NetworkTopologyStrategy', 'west': '3', '"
    )
    assert "durable_writes = false;" in text
    assert 'USE "jobs";' in text
    assert 'CREATE TABLE IF NOT EXISTS "entries"' in text
    assert "VALUES ('home', 0, 'west', 'local_quorum/local_serial') IF NOT EXISTS;" in text
    assert text.rstrip().endswith("toTimestamp(now()));")


def test_printed_cql_that_is_run_again_leaves_a_home_that_was_moved(shell: Shell) -> None:
    text = shell("migrate", "--url", CASSANDRA, "--print-cql", "--replication", "west:3,dc2:2").stdout
    [home] = [statement for statement in text.split(";") if "'home'" in statement]
    assert home.endswith("VALUES ('home', 0, 'west', 'local_quorum/local_serial') IF NOT EXISTS")


def test_migrate_takes_a_home_only_where_copies_are_and_where_one_is_needed(shell: Shell) -> None:
    two = "cassandra://nosuch.invalid/jobs"
    copies = ("--print-cql", "--replication", "dc1:3,dc2:2")
    assert "'home'" not in shell("migrate", "--url", two, *copies).stdout
    assert "VALUES ('home', 0, 'dc2', " in shell("migrate", "--url", two, *copies, "--home", "dc2").stdout
    assert "name one of dc1, dc2" in shell.error("migrate", "--url", two, *copies, "--home", "dc3", code=2)
    assert "omit the home" in shell.error(
        "migrate", "--url", f"{two}?serial=serial&consistency=quorum", "--home", "dc1", code=2
    )
    assert (
        "'home', 0, '', 'quorum/serial'"
        in shell("migrate", "--url", f"{two}?serial=serial&consistency=quorum", *copies).stdout
    )
    assert "requires the new one" in shell.error("migrate", "--url", two, "--move-home", code=2)
    assert "no replication, home" in shell.error("migrate", "--url", "memory://", "--home", "dc1", code=2)


@pytest.mark.parametrize("words", [["migrate"], ["verify"], ["doctor"]])
def test_a_cluster_that_cannot_be_reached_is_an_error_of_one_line(shell: Shell, words: list[str]) -> None:
    assert "resolves to an address" in shell.error(*words, "--url", CASSANDRA, code=3)


@pytest.mark.parametrize("words", [["migrate"], ["verify"], ["doctor"]])
def test_a_store_must_be_named(shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.delenv("ASTYQUEUE_URL")
    assert "no store given" in shell.error(*words, code=2)


def test_a_replication_is_refused_by_a_store_without_one(shell: Shell) -> None:
    assert "has no replication" in shell.error("migrate", "--url", "memory://", "--replication", "3", code=2)
    assert "write dc1:3" in shell.error("migrate", "--url", CASSANDRA, "--replication", "three", code=2)


@pytest.mark.stores("sqlite")
def test_the_exit_code_of_doctor_is_that_of_the_worst_finding(
    shell: Shell, connection: Connection, folder: Path
) -> None:
    queue = connection.queue("emails")
    assert "problem" not in shell("doctor").stdout
    queue.send("no such address")
    queue.receive()[0].reject("no such address")
    result = shell("doctor", code=10)
    assert "warning  dead letters of queue emails: 1 (1 rejected), 1 of them within 1h\n" in result.stdout
    assert (
        "           do:  astyqueue dead list emails; then redrive what was fixed, and purge the rest\n" in result.stdout
    )
    assert result.stdout.endswith(" checks: 1 warning, 1 note\n")
    newer(folder)
    assert "problem  file " in shell("doctor", code=20).stdout


def test_a_terminal_shows_findings_in_colours(folder: Path) -> None:
    assert folder.exists()
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "astyqueue", "doctor", "--url", "memory://"], stdout=follower
    ) as process:
        process.wait(timeout=60)
        told = os.read(leader, 4096).decode()
    os.close(leader)
    os.close(follower)
    assert "\x1b[" in told
    assert "in memory" in told


@pytest.mark.every_store
def test_a_message_is_explained(shell: Shell, connection: Connection) -> None:
    sent = connection.queue("emails").send("later", delay="1h").id
    text = shell("explain", str(sent)).stdout
    assert text.startswith(f"{sent} is delayed: it was sent to be due ")
    assert text.splitlines()[-1].endswith("  due for the first time")
    [told] = shell.json("explain", str(sent))
    assert (told["standing"], told["spent"], told["allowed"]) == ("delayed", 0, 5)


def test_a_message_that_is_gone_is_explained_too(shell: Shell, connection: Connection) -> None:
    queue = connection.queue("emails")
    sent = queue.send("soon gone").id
    queue.receive()[0].ack()
    assert shell("explain", str(sent)).stdout.startswith(f"{sent} is gone: it was acked")
    assert "is not a message id" in shell.error("explain", "x", code=2)
    assert "no queue 'emials'" in shell.error("explain", str(sent).replace("emails", "emials"), code=1)


def test_every_queue_of_the_store_is_examined_after_the_store(tmp_path: Path, clock: TimeMachine) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with connect(url, clock=clock) as store:
        store.queue("emails")
        store.queue("default")
    subjects = [finding.subject for finding in examine(url, clock=clock)]
    assert subjects[0].startswith("file ")
    assert [subject for subject in subjects if subject.startswith("queue ")] == ["queue default", "queue emails"]


def test_settings_that_cannot_be_read_are_a_problem_of_their_queue_and_the_other_queues_are_examined(
    tmp_path: Path, clock: TimeMachine
) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with connect(url, clock=clock) as store:
        store.queue("emails")
        store.queue("orders")
        store.store.send(Batch(settings_row("emails"), (Put(SETTINGS, b"\x63", 1 << 62),)))
    found = examine(url, clock=clock)
    assert worst(found) is Severity.PROBLEM
    [problem] = [finding for finding in found if finding.subject == "queue emails"]
    assert problem.fact.startswith("row emails:settings: the settings cannot be read (format byte 63")
    assert any(finding.subject == "queue orders" for finding in found)
