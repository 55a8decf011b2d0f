"""Commands on a spool: what a person sees of it, and how what a dead process left gets to the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import BadInput
from astyqueue.queue.connection import Connection
from astyqueue.spool import Spool
from astyqueue.stores import open_store
from tests.unit.cli.conftest import Shell
from tests.unit.spool.conftest import Gate


@pytest.fixture
def store(connection: Connection) -> Gate:
    return Gate(connection.store)


@pytest.fixture
def away(store: Gate, folder: Path) -> Iterator[MessageQueue]:
    """A queue with a spool of three messages, whose process lives while the store is away."""
    with MessageQueue.builder().store(store).name("emails").spool(folder / "spool").build() as queue:
        store.is_away = True
        queue.send_many(["a", "b", "c"])
        yield queue


def test_status_shows_what_waits_and_whether_a_process_has_it(shell: Shell, away: MessageQueue) -> None:
    [shown] = shell.json("spool", "status", "spool")
    assert (shown["queue"], shown["number"], shown["messages"], shown["refused"]) == ("emails", 1, 3, 0)
    assert shown["in_use"]
    assert shown["oldest"].endswith("Z")
    assert not away.spool.drain("1s")
    [shown] = shell.json("spool", "status", "spool")
    assert shown["last_error"] == "StoreUnavailable: the network is down"
    assert shown["failing_since"].endswith("Z")
    away.close()
    head, line = shell("spool", "status", "spool").stdout.splitlines()
    assert head.split() == ["queue", "journal", "messages", "oldest", "refused", "bytes", "in", "use", "last", "error"]
    assert line.split()[:3] == ["emails", "1", "3"]
    assert line.split("  ")[-1] == "StoreUnavailable: the network is down"
    assert line.split()[-6] == "no"


def test_drain_forwards_what_a_dead_process_left(shell: Shell, away: MessageQueue, connection: Connection) -> None:
    away.close()
    assert shell("spool", "drain", "spool").stdout == "emails: forwarded 3 messages, left 0\n"
    assert sorted(str(found.body) for found in connection.queue("emails").peek()) == ["a", "b", "c"]
    assert shell.json("spool", "status", "spool")[0]["messages"] == 0
    [again] = shell.json("spool", "drain", "spool")
    assert (again["forwarded"], again["left"], again["in_use"], again["refused"]) == (0, 0, 0, 0)


@pytest.mark.usefixtures("away")
def test_the_folder_may_come_from_the_environment(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTYQUEUE_SPOOL", str(folder / "spool"))
    assert [found["messages"] for found in shell.json("spool", "status")] == [3]
    assert "3 of living processes" in shell("spool", "drain").stdout


@pytest.mark.usefixtures("away")
def test_drain_leaves_the_journal_of_a_living_process(shell: Shell) -> None:
    assert shell("spool", "drain", "spool").stdout == "emails: forwarded 0 messages, left 0, 3 of living processes\n"


def test_drain_does_not_count_what_a_living_process_forwarded_meanwhile(
    shell: Shell, store: Gate, away: MessageQueue, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageQueue.builder().store(store).name("emails").spool(folder / "spool", drain=0).build() as dead:
        dead.send_many(["d", "e"])
    drain = Spool.drain

    def drain_once_the_other_did(spool: Spool, timeout: timedelta) -> bool:
        store.is_away = False
        assert drain(away.spool, "20s")
        return drain(spool, timeout)

    monkeypatch.setattr(Spool, "drain", drain_once_the_other_did)
    assert shell("spool", "drain", "spool").stdout == "emails: forwarded 2 messages, left 0\n"


def test_drain_counts_what_it_cannot_read_in_all_journals_and_fails(
    shell: Shell, store: Gate, away: MessageQueue, folder: Path
) -> None:
    with MessageQueue.builder().store(store).name("emails").spool(folder / "spool", drain=0).build() as dead:
        dead.send_many(["damaged", "d"])
    away.close()
    for page in (folder / "spool" / "queue-emails").glob("*/journal-1.page"):
        page.write_bytes(page.read_bytes().replace(b'"b"', b'"B"').replace(b'"damaged"', b'"dAmaged"'))
    result = shell("spool", "drain", "spool", code=1)
    assert result.stdout == "emails: forwarded 3 messages, left 0, 2 unreadable\n"
    assert shell("spool", "drain", "spool").stdout == "emails: forwarded 0 messages, left 0\n"


def test_drain_names_a_journal_that_it_cannot_open_and_fails(shell: Shell, away: MessageQueue, folder: Path) -> None:
    away.close()
    place = folder / "spool" / "queue-emails" / "7"
    (place / "journal.lock").mkdir(parents=True)
    (place / "journal-1.page").touch()
    told = "could not open spool/queue-emails/7 (stderr says why)"
    assert shell("spool", "drain", "spool", code=1).stdout == f"emails: forwarded 3 messages, left 0, {told}\n"
    [drained] = map(json.loads, shell("spool", "drain", "spool", "--json", code=1).stdout.splitlines())
    assert (drained["forwarded"], drained["left"], drained["error"]) == (0, 0, told)


def test_drain_creates_no_queue_in_another_store(shell: Shell, away: MessageQueue) -> None:
    away.close()
    error = shell.error("spool", "drain", "spool", "--url", "memory://another", code=1)
    assert "this store has no queue 'emails'" in error
    assert shell.json("spool", "status", "spool")[0]["messages"] == 3


@pytest.mark.usefixtures("away")
def test_a_timeout_that_cannot_be_read_is_an_error_that_names_the_option(shell: Shell) -> None:
    assert "Invalid value for '--timeout': " in shell.usage_error("spool", "drain", "spool", "--timeout", "soon")


def test_a_folder_that_is_no_spool_is_refused(shell: Shell, folder: Path) -> None:
    (folder / "other").mkdir()
    assert "folder other is not a spool" in shell.error("spool", "status", "other", code=1)


def test_a_queue_that_is_gone_keeps_no_other_from_being_drained(
    shell: Shell, away: MessageQueue, connection: Connection, folder: Path
) -> None:
    away.close()
    with MessageQueue.builder().store(connection.store).name("a").spool(folder / "spool").build() as gone:
        gone.spool.drain("10s")
    connection.queue("a").drop()
    result = shell("spool", "drain", "spool", code=1)
    assert result.stdout == "emails: forwarded 3 messages, left 0\n"
    assert "this store has no queue 'a'; there are: emails" in result.stderr


def test_what_the_store_refuses_while_it_is_drained_was_not_forwarded(
    shell: Shell, away: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    away.close()

    def refusing(*arguments: object, **options: object) -> Gate:
        store = Gate(open_store(*arguments, **options))  # type: ignore[arg-type]  # as given
        store.refuses = lambda value: BadInput("no") if b'"b"' in value else None
        return store

    monkeypatch.setattr("astyqueue.queue.connection.open_store", refusing)
    assert shell("spool", "drain", "spool").stdout == "emails: forwarded 2 messages, left 0, 1 set aside\n"
