"""Tables: what a command takes again, such as an id, is whole in them, and free text is cut to one line."""

from __future__ import annotations

import sys

import pytest

from astyqueue.cli import main
from astyqueue.queue.connection import Connection
from tests.support.places import ONE_ROW
from tests.unit.cli.conftest import Shell

#: Thirty characters: the id of a message in it has more than sixty.
LONG = "billing.notifications.of.italy"


@pytest.fixture
def letter(connection: Connection) -> str:
    """The id of a dead letter of the long queue, which has a waiting message too."""
    queue = connection.queue(LONG, **ONE_ROW, history="all")
    queue.send("dies", key="k")
    [delivery] = queue.receive()
    delivery.reject("no such address " * 10)
    queue.send("waits", key="k")
    return str(delivery.message_id)


def first_column(shell: Shell, *words: str) -> list[str]:
    return [line.split()[0] for line in shell(*words).stdout.splitlines()[1:]]


@pytest.mark.usefixtures("letter")
def test_the_id_that_peek_shows_of_a_queue_with_a_long_name_is_one_that_get_takes(shell: Shell) -> None:
    [id_] = first_column(shell, "peek", LONG)
    assert shell.json("get", id_)[0]["body"] == "waits"


def test_every_table_has_the_whole_id(shell: Shell, letter: str) -> None:
    assert first_column(shell, "dead", "list", LONG) == [letter]
    assert len({id_ for id_ in first_column(shell, "find", LONG, "k") if shell("explain", id_)}) == 2
    assert all(letter in line.split() for line in shell("history", letter).stdout.splitlines()[1:])
    assert shell("dead", "redrive", LONG, *first_column(shell, "dead", "list", LONG)).stdout.startswith("put back 1 ")


def test_names_and_keys_are_whole(shell: Shell, connection: Connection) -> None:
    name, key = "q" * 80, "k" * 100
    connection.queue(name, **ONE_ROW).send(1, key=key)
    shell("schedules", "add", "emails", name, "--every", "1h")
    assert name in first_column(shell, "queues", "list")
    assert first_column(shell, "schedules", "list", "emails") == [name]
    assert key in shell("find", name, key).stdout


def test_a_long_name_of_a_task_widens_no_table(shell: Shell, connection: Connection) -> None:
    connection.queue("emails", **ONE_ROW).send(1, headers={"task": "t" * 8_000})
    [row] = shell("peek", "emails").stdout.splitlines()[1:]
    assert "t" * 199 + "…" in row
    assert len(row) < 400


@pytest.mark.usefixtures("letter")
def test_free_text_is_cut_so_that_each_row_stays_on_one_line(shell: Shell, connection: Connection) -> None:
    connection.queue("emails").send("x" * 100)
    assert shell("peek", "emails").stdout.splitlines()[1].endswith(' "' + "x" * 58 + "…")
    reason = ("no such address " * 10)[:59] + "…"
    assert shell("dead", "list", LONG).stdout.splitlines()[1].endswith(f"  {reason}")
    shell("schedules", "add", "emails", "digest", "--every", "1h")
    shell("schedules", "pause", "emails", "digest", "--why", "w" * 100)
    assert f"  {'w' * 59}…  " in shell("schedules", "list", "emails").stdout


def test_on_a_terminal_nothing_that_is_long_hides_the_id(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = connection.queue("emails").send(1, key="k" * 500, group="g" * 500)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(["peek", "emails"], standalone_mode=False)
    shown = capsys.readouterr().out.split()
    assert {str(sent.id), "k" * 500, "g" * 500} <= set(shown)
