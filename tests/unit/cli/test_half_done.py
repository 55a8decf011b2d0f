"""Commands that cannot do all they were asked for say how far they came, and a slip does not do half."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from datetime import datetime

import pytest

from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.connection import Connection
from astyqueue.schedules import Schedules
from astyqueue.stores import open_store
from astyqueue.testing.faults import Faulty
from tests.unit.cli.conftest import Shell

Buried = Callable[..., list[str]]


class Ends(Faulty):
    """A store that carries out one commit that deletes or puts many, and instead of the second does what `end` says."""

    end: Callable[[], None]
    begun = False

    def perform(self, request: Request) -> object:
        large = isinstance(request, Commit) and (bool(request.batch.deletes) or len(request.batch.puts) > 20)
        if large and self.begun:
            self.end()
        self.begun |= large
        return super().perform(request)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has the stores of commands do this instead of their second commit that deletes."""

    def arrange(end: Callable[[], None]) -> None:
        def wrapped(*arguments: object, **options: object) -> Ends:
            store = Ends(open_store(*arguments, **options))  # type: ignore[arg-type]  # as given
            store.end = end
            return store

        monkeypatch.setattr("astyqueue.queue.connection.open_store", wrapped)

    return arrange


def fails() -> None:
    message = "the network is down"
    raise StoreUnavailable(message)


def pressed() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dead", "purge", "emails", "--yes"], "100 dead letters of queue emails had been deleted before"),
        (["dead", "redrive", "emails"], "100 dead letters of queue emails had been put back before"),
        (["clear", "emails", "--yes"], "100 messages of queue emails had been deleted before"),
        (["drop", "emails", "--yes"], "100 messages of queue emails had been deleted before"),
    ],
)
def test_an_error_half_way_says_how_far_the_command_came(
    shell: Shell, buried: Buried, ends: Callable[[Callable[[], None]], None], words: list[str], said: str
) -> None:
    buried(*map(str, range(101)))
    ends(fails)
    error = shell.error(*words, code=3)
    assert error.startswith("Error: the network is down. ")
    assert said.split(maxsplit=1)[1] in error
    assert said in error or words[0] != "dead"


@pytest.mark.parametrize(
    "words", [["dead", "purge", "emails", "--yes"], ["clear", "emails", "--yes"], ["drop", "emails", "--yes"]]
)
def test_an_interrupted_deletion_says_how_far_it_came(
    shell: Shell, buried: Buried, ends: Callable[[Callable[[], None]], None], words: list[str]
) -> None:
    buried(*map(str, range(101)))
    ends(pressed)
    lines = shell(*words, code=130).stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(" of queue emails had been deleted before")
    assert lines[1] == "Interrupted."


def test_a_backfill_that_fails_half_way_says_where_to_go_on(
    shell: Shell, connection: Connection, ends: Callable[[Callable[[], None]], None]
) -> None:
    """Another one sends a message for each occurrence of its range, also for those that were sent."""
    shell("schedules", "add", "emails", "tick", "--cron", "* * * * *")
    words = ["schedules", "backfill", "emails", "tick", "--until", "2026-01-01T23:59:00Z", "--since"]
    ends(fails)
    error = shell.error(*words, "2026-01-01T00:00:00Z", code=3)
    found = re.fullmatch(r"Error: the network is down. (\d+) messages, .* before: go on from (\S+)", error)
    assert found is not None
    assert connection.queue("emails").counts().total == int(found[1])
    until = datetime.fromisoformat("2026-01-01T23:59:00Z")
    Schedules(connection.queue("emails")).backfill("tick", datetime.fromisoformat(found[2]), until)
    assert connection.queue("emails").counts().total == 1440


def test_nothing_is_deleted_if_one_of_the_queues_is_not_there(shell: Shell, connection: Connection) -> None:
    id_ = str(connection.queue("emails").send(1).id)
    assert "no queue 'emials'" in shell.error("delete", id_, id_.replace("emails", "emials"), code=1)
    assert connection.queue("emails").counts().total == 1


def test_an_id_that_is_given_twice_is_deleted_once_and_no_error(shell: Shell, connection: Connection) -> None:
    id_ = str(connection.queue("emails").send(1).id)
    assert shell("delete", id_, id_).stdout == f"deleted {id_}\n"
