"""Dead letters from the command line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from astyqueue.cli import main
from astyqueue.cli.output import progress_bar
from astyqueue.model.views import RedriveReport
from astyqueue.queue.connection import Connection
from astyqueue.queue.queue import MessageQueue
from tests.unit.cli.conftest import Shell

Buried = Callable[..., list[str]]


@pytest.mark.every_store
def test_dead_letters_are_listed_with_their_reasons(shell: Shell, buried: Buried) -> None:
    [id_] = buried("no such address")
    titles, row = shell("dead", "list", "emails").stdout.splitlines()
    assert titles.split() == ["id", "died", "kind", "attempts", "task", "reason"]
    assert row.startswith(id_)
    assert row.endswith("rejected  1         welcome  no such address")


def test_one_is_shown_with_its_body(shell: Shell, buried: Buried) -> None:
    [id_] = buried("no such address")
    [letter] = shell.json("dead", "show", id_)
    assert (letter["body"], letter["reason"]) == ({"why": "no such address"}, "no such address")
    assert "body      {" in shell("dead", "show", id_).stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--task", "welcome"], ["one", "two"]),
        (["--reason", "TWO"], ["two"]),
        (["--kind", "failed"], []),
        (["--since", "1h"], ["one", "two", "three"]),
        (["--until", "1h"], []),
        (["--since", "2126-01-01T00:00:00Z"], []),
        (["-n", "1"], ["one"]),
    ],
)
def test_those_that_fit_are_meant(shell: Shell, buried: Buried, options: list[str], expected: list[str]) -> None:
    buried("one", "two")
    buried("three", task="goodbye")
    assert [letter["reason"] for letter in shell.json("dead", "list", "emails", *options)] == expected


@pytest.mark.parametrize(
    "options", [["--reason", ""], ["--task", ""], ["--key", ""], ["--since", "1h", "--until", "2h"]]
)
def test_a_filter_that_says_nothing_purges_nothing(
    shell: Shell, buried: Buried, connection: Connection, options: list[str]
) -> None:
    buried("one", "two")
    shell.error("dead", "purge", "emails", "--yes", *options, code=2)
    assert connection.queue("emails").counts().dead == 2


def test_purging_what_is_not_there_asks_for_nothing(shell: Shell, buried: Buried) -> None:
    buried("one")
    assert shell("dead", "purge", "emails", "--reason", "two").stdout == "queue emails has no such dead letters\n"


@pytest.fixture
def taken(connection: Connection) -> str:
    """The id of a dead letter whose unique key another message has by now."""
    queue = connection.queue("emails")
    queue.send(1, key="ada", unique="reject")
    [delivery] = queue.receive()
    delivery.reject("no")
    queue.send(2, key="ada", unique="reject")
    return str(delivery.message_id)


@pytest.mark.usefixtures("taken")
def test_purge_counts_letters_whose_unique_key_is_taken_too(shell: Shell) -> None:
    assert "This would delete 1 dead letter of" in shell.error("dead", "purge", "emails", code=2)
    assert shell("dead", "purge", "emails", "--yes").stdout == "deleted 1 dead letter of queue emails\n"


def test_redrive_says_why_letters_are_left_and_what_force_can_do(shell: Shell, taken: str) -> None:
    left = "put back 0 dead letters of queue emails, left 1"
    both = "that would die again at once (--force puts them back) or whose unique key another message has"
    for ids in ([], [taken]):
        assert shell("dead", "redrive", "emails", *ids).stdout == f"{left} {both}\n"
    assert shell("dead", "redrive", "emails", "--force").stdout == f"{left} whose unique key another message has\n"


@pytest.mark.every_store
def test_redrive_puts_back_those_that_fit(shell: Shell, buried: Buried, connection: Connection) -> None:
    buried("one", "two")
    assert (
        shell("dead", "redrive", "emails", "--reason", "two", "--dry-run").stdout
        == "would put back 1 dead letter of queue emails\n"
    )
    assert connection.queue("emails").counts().dead == 2
    assert shell("dead", "redrive", "emails", "--reason", "two").stdout == "put back 1 dead letter of queue emails\n"
    counts = connection.queue("emails").counts()
    assert (counts.waiting, counts.dead) == (1, 1)


@pytest.mark.parametrize("by_id", [False, True])
def test_an_interrupted_redrive_says_how_far_it_came(
    shell: Shell, buried: Buried, monkeypatch: pytest.MonkeyPatch, *, by_id: bool
) -> None:
    ids = buried("one", "two", "three")
    redrive = MessageQueue.redrive

    def interrupted(queue: MessageQueue, *ids: str, **options: Any) -> RedriveReport:  # noqa: ANN401 - whatever the command asks for
        def press(_: RedriveReport) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        return redrive(queue, *ids, **options | {"progress": press})

    monkeypatch.setattr(MessageQueue, "redrive", interrupted)
    result = shell("dead", "redrive", "emails", *(ids if by_id else ()), "--rate", "10", code=130)
    assert result.stdout == "put back 1 dead letter of queue emails, then was interrupted\n"


@pytest.mark.parametrize(("by_id", "calls"), [(False, 2), (True, 1)])
def test_letters_are_counted_for_a_bar_only_if_a_redrive_goes_through_all_of_them(
    buried: Buried, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, by_id: bool, calls: int
) -> None:
    ids = buried("one", "two")
    redrive, called = MessageQueue.redrive, list[Any]()

    def noted(queue: MessageQueue, *ids: str, **options: Any) -> RedriveReport:  # noqa: ANN401 - whatever the command asks for
        called.append(ids)
        return redrive(queue, *ids, **options)

    monkeypatch.setattr(MessageQueue, "redrive", noted)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(["dead", "redrive", "emails", *(ids[:1] if by_id else [])], standalone_mode=False)
    assert len(called) == calls
    assert capsys.readouterr().out == f"put back {'1 dead letter' if by_id else '2 dead letters'} of queue emails\n"


def test_purge_must_be_meant(shell: Shell, buried: Buried, connection: Connection) -> None:
    buried("one", "two")
    assert "This would delete 2 dead letters" in shell.error("dead", "purge", "emails", code=2)
    assert connection.queue("emails").counts().dead == 2
    assert (
        shell("dead", "purge", "emails", "--reason", "one", "--yes").stdout == "deleted 1 dead letter of queue emails\n"
    )
    assert connection.queue("emails").counts().dead == 1


@pytest.mark.usefixtures("connection")
def test_no_dead_letters_is_said(shell: Shell) -> None:
    assert shell("dead", "list", "emails").stdout == "queue emails has no dead letters\n"
    assert shell("dead", "list", "emails", "--kind", "failed").stdout == "queue emails has no such dead letters\n"


def test_the_bar_of_a_redrive_counts_letters(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as update:
        update("putting back", 2, 3)
    shown = capsys.readouterr().err
    assert "putting back" in shown
    assert "2/3" in shown
