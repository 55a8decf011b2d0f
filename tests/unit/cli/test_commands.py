"""Sending, looking, counting, changing and deleting from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from astyqueue import aio
from astyqueue.errors import WrongSchema
from astyqueue.journal import Journal
from astyqueue.queue.connection import Connection, connect
from astyqueue.spool import backlog_of
from astyqueue.triggers import Every
from tests.unit.cli.conftest import Shell


@pytest.mark.every_store
def test_what_is_sent_is_found_by_the_id_that_was_printed(shell: Shell, connection: Connection) -> None:
    id_ = shell("send", "emails", '{"to": "ada"}', "--key", "welcome:ada").stdout.strip()
    [found] = shell.json("get", id_)
    assert (found["id"], found["body"], found["key"], found["standing"]) == (
        id_,
        {"to": "ada"},
        "welcome:ada",
        "waiting",
    )
    assert connection.queue("emails").counts().waiting == 1


def test_a_message_is_sent_to_a_group(shell: Shell, connection: Connection) -> None:
    ids = [shell("send", "emails", body, "--group", "customer-7").stdout.strip() for body in ("1", "2")]
    assert [delivery.group for delivery in connection.queue("emails").receive(10)] == ["customer-7"]
    [found] = shell.json("get", ids[1])
    assert (found["group"], found["standing"]) == ("customer-7", "blocked")
    assert f"it waits behind {ids[0]} of its group 'customer-7'" in shell("explain", ids[1]).stdout
    [counted] = shell.json("counts", "emails")
    assert counted["blocked"] == 1


def test_sending_says_the_same_to_programs(shell: Shell, connection: Connection) -> None:
    [sent] = shell.json("send", "emails", "1")
    assert sent == {"id": str(connection.queue("emails").peek()[0].id), "new": True}


def test_a_message_with_a_unique_key_is_sent_once(shell: Shell, connection: Connection) -> None:
    connection.queue("emails")
    [first] = shell.json("send", "emails", "1", "--key", "ada", "--unique", "keep")
    assert shell.json("send", "emails", "2", "--key", "ada", "--unique", "keep") == [{"id": first["id"], "new": False}]
    assert f"is taken by message {first['id']}" in shell.error(
        "send", "emails", "3", "--key", "ada", "--unique", "reject", code=1
    )
    lines = ("send", "emails", "-", "--lines", "--key", "ada", "--unique")
    taken = "sent 0 messages to emails; not sent because the key was taken: "
    assert shell(*lines, "reject", stdin="4\n5\n", code=1).stdout == f"{taken}2\n"
    assert shell(*lines, "keep", stdin="4\n").stdout == f"{taken}1\n"


def test_a_leased_message_that_is_superseded_does_not_come_back(shell: Shell, connection: Connection) -> None:
    queue = connection.queue("emails")
    queue.send(1, key="ada", unique="supersede")
    delivery = queue.receive()[0]
    shell("send", "emails", "2", "--key", "ada", "--unique", "supersede")
    delivery.release()
    assert [each.body for each in queue.receive(10)] == [2]


def test_who_keeps_the_message_that_has_the_key_is_told_that_nothing_was_sent(
    shell: Shell, connection: Connection
) -> None:
    first = shell("send", "emails", "1", "--key", "ada", "--unique", "keep")
    again = shell("send", "emails", "2", "--key", "ada", "--unique", "keep")
    assert (first.stderr, again.stderr) == ("", "astyqueue: nothing was sent: this message has the key 'ada'\n")
    assert first.stdout == again.stdout == f"{connection.queue('emails').peek()[0].id}\n"


def test_of_a_part_it_is_told_that_there_is_more(shell: Shell, connection: Connection) -> None:
    queue = connection.queue("emails")
    queue.send_many([1, 2, 3])
    more = "astyqueue: there are more than these 2; --limit shows more\n"
    told = shell("peek", "emails", "-n", "2")
    assert (len(told.stdout.splitlines()), told.stderr) == (3, more)
    assert (len(shell.json("peek", "emails", "-n", "2")), shell("peek", "emails", "-n", "3").stderr) == (2, "")
    for delivery in queue.receive(3):
        delivery.reject("no")
    assert shell("dead", "list", "emails", "--limit", "2").stderr == more
    assert shell("dead", "list", "emails", "--limit", "3").stderr == ""
    assert shell("history", "emails", "--limit", "2").stderr == more
    assert len(shell.json("history", "emails", "--limit", "2")) == 2
    assert shell("history", "emails", "--limit", "3").stderr == ""


@pytest.mark.parametrize(
    "words", [["peek", "emails", "-n"], ["history", "emails", "-n"], ["history", "emails", "--last"]]
)
def test_more_than_there_can_be_is_all(shell: Shell, connection: Connection, words: list[str]) -> None:
    queue = connection.queue("emails")
    queue.configure(history="all")
    queue.send(1)
    assert len(shell.json(*words, str(10**30))) == len(list(queue.history(limit=10**30))) == 1
    assert shell("dead", "list", "emails", "--limit", str(10**30)).stdout == "queue emails has no dead letters\n"


def test_bodies_are_distinguished_by_their_types_and_calls_by_their_tasks(shell: Shell, connection: Connection) -> None:
    for body in (1, "1", None, "null", ""):
        connection.queue("emails").send(body)
    shell("send", "emails", "[1]", "--task", "shop.welcome")
    shown = [line.split()[-1] for line in shell("peek", "emails").stdout.splitlines()[1:]]
    assert shown[:5] == ["1", '"1"', "null", '"null"', '""']
    assert "shop.welcome" in shell("peek", "emails").stdout


def test_a_queue_is_browsed_in_order_from_where_one_says(shell: Shell, connection: Connection) -> None:
    queue = connection.queue("emails")
    first, second = queue.send("first", key="a key").id, queue.send({"to": "ada"}).id
    lines = shell("browse", "emails").stdout.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        f'waiting {first} key="a key" body="first"',
        f'waiting {second} body={{"to": "ada"}}',
    ]
    assert [one["body"] for one in shell.json("browse", "emails", "--after", str(first))] == [{"to": "ada"}]
    assert shell("browse", "emails", "--since", "2020-01-01T00:00:00Z", "--after", str(first), code=2).stderr.endswith(
        "Error: browse takes a moment (since=) or a message (after=), not both\n"
    )


@pytest.mark.usefixtures("connection")
def test_a_queue_without_messages_is_browsed_to_a_line_that_says_so(shell: Shell) -> None:
    assert shell("browse", "emails").stdout == "queue emails has no messages\n"
    assert shell("browse", "emails", "--since", "1h").stdout == "queue emails has no messages there\n"
    assert shell.json("browse", "emails") == []


@pytest.mark.stores("sqlite")
def test_a_pipe_without_letters_for_a_text_gets_them_written_out(
    shell: Shell, connection: Connection, url: str
) -> None:
    text = "\u00fc \u6771 \U0001f9e8"
    id_ = str(connection.queue("emails").send(text).id)
    command = [sys.executable, "-m", "astyqueue", "get", id_, "--url", url]
    done = [
        subprocess.run(
            [*command, *form], env={**os.environ, "PYTHONIOENCODING": "koi8-r"}, check=True, capture_output=True
        ).stdout
        for form in ([], ["--json"])
    ]
    assert b'"\\xfc \\u6771 \\U0001f9e8"' in done[0]
    assert json.loads(done[1])["body"] == text
    assert shell("get", id_).exit_code == 0


@pytest.mark.every_store
def test_messages_are_found_by_their_key(shell: Shell, connection: Connection) -> None:
    connection.queue("emails").send("later", key="ada", delay="1h")
    connection.queue("emails").send("now", key="ada")
    assert [found["body"] for found in shell.json("find", "emails", "ada")] == ["now", "later"]
    assert shell("find", "emails", "bob").stdout == "queue emails has no message with this key\n"


def test_a_search_that_finds_nothing_is_done_and_an_id_that_is_not_there_an_error(
    shell: Shell, connection: Connection
) -> None:
    queue = connection.queue("emails")
    id_ = queue.send("gone").id
    queue.delete(id_)
    assert shell("find", "emails", "bob", code=0).stdout
    assert shell.json("find", "emails", "bob") == []
    assert f"there is no message {id_}" in shell.error("get", str(id_), code=1)


def test_a_queue_is_made_by_a_send_only_when_asked_to(shell: Shell, connection: Connection) -> None:
    assert connection.queues() == ["emails"]
    unknown = "Error: this store has no queue 'audit' (--create creates it); there are: emails"
    assert shell.error("send", "audit", "1", code=1) == unknown
    shell("send", "audit", "1", "--create")
    assert connection.queues() == ["audit", "emails"]


def test_a_message_that_is_refused_makes_no_queue(shell: Shell, connection: Connection) -> None:
    shell.usage_error("send", "audit", "1", "--create", "--at", "2026-11-21T09:00:00")
    assert connection.queues() == ["emails"]


def test_a_body_comes_from_stdin(shell: Shell, connection: Connection) -> None:
    shell("send", "emails", "-", stdin="[1,\n 2]")
    assert connection.queue("emails").peek()[0].body == [1, 2]


@pytest.mark.every_store
def test_each_line_of_stdin_is_a_message(shell: Shell, connection: Connection) -> None:
    assert shell("send", "emails", "-", "--lines", stdin='1\n\n"two"\n').stdout == "sent 2 messages to emails\n"
    assert [found.body for found in connection.queue("emails").peek()] == [1, "two"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("{bad", "Error: line 2502: the body is not JSON ("),
        ('"' + "x" * 300_000 + '"', "Error: line 2502: "),
        ("3\n{worse", "Error: line 2503: the body is not JSON ("),
    ],
)
def test_a_wrong_line_sends_none_and_is_named(shell: Shell, connection: Connection, wrong: str, told: str) -> None:
    lines = "".join(f"{number}\n" for number in range(2500)) + f"\n{wrong}\n1\n"
    error = shell.error("send", "emails", "-", "--lines", stdin=lines, code=2)
    assert error.startswith(told)
    assert error.endswith("Nothing was sent")
    assert connection.queue("emails").counts().total == 0


def test_several_values_without_lines_are_refused_with_the_option_that_sends_each(
    shell: Shell, connection: Connection
) -> None:
    told = shell.error("send", "emails", "-", stdin='{"to": "ada"}\n{"to": "bob"}\n', code=2)
    assert told == (
        "Error: stdin has several JSON values, the second in line 2: add --lines if each line is a message, "
        "or make a list of them for one message"
    )
    for no_lines in ("1 2\n", "{bad\n1\n", "1" * 5_000):
        assert "the body is not JSON" in shell.error("send", "emails", "-", stdin=no_lines, code=2)
    assert connection.queue("emails").counts().total == 0


def test_a_line_without_end_is_refused_before_it_fills_the_memory(shell: Shell, connection: Connection) -> None:
    told = shell.error("send", "emails", "-", "--lines", stdin="1\n" + "x" * (13 * 1024 * 1024), code=2)
    assert told == "Error: line 2 is longer than 12582912 characters, longer than any body. Nothing was sent"
    assert connection.queue("emails").counts().total == 0


def test_arguments_of_a_task_are_checked_line_by_line(shell: Shell, connection: Connection) -> None:
    told = shell.error("send", "emails", "-", "--lines", "--task", "welcome", stdin='["ada"]\n7\n', code=2)
    assert told.startswith("Error: line 2: invalid task arguments: give a JSON list")
    assert connection.queue("emails").counts().total == 0


def test_lines_are_sent_from_one_on(shell: Shell, connection: Connection) -> None:
    told = shell("send", "emails", "-", "--lines", "--from-line", "3", stdin="{bad\n2\n3\n").stdout
    assert told == "sent 1 message to emails\n"
    assert [found.body for found in connection.queue("emails").peek()] == [3]
    assert "--from-line needs --lines" in shell.error("send", "emails", "1", "--from-line", "3", code=2)


@pytest.mark.every_store
def test_peek_shows_a_table_of_what_is_due(shell: Shell, connection: Connection) -> None:
    queue = connection.queue("emails")
    sent = queue.send({"to": "ada"}, key="k")
    queue.send("later", delay="1h")
    titles, row = shell("peek", "emails").stdout.splitlines()
    assert titles.split() == ["id", "standing", "due", "attempts", "key", "group", "task", "body"]
    assert row.startswith(f"{sent.id}  waiting  ")
    assert row.endswith('k    -      -     {"to": "ada"}')


def test_peek_shows_what_is_asked_for(shell: Shell, connection: Connection) -> None:
    connection.queue("emails").send("later", delay="1h")
    assert shell("peek", "emails").stdout == "queue emails has no messages that are due\n"
    assert "(in 59m59s)" in shell("peek", "emails", "--include", "future").stdout
    assert [found["body"] for found in shell.json("peek", "emails", "--include", "all")] == ["later"]


@pytest.mark.every_store
def test_counts_are_of_all_queues_unless_some_are_named(shell: Shell, connection: Connection) -> None:
    connection.queue("emails").send_many([1, 2])
    connection.queue("default").send(3)
    assert [(counts["queue"], counts["waiting"]) for counts in shell.json("counts")] == [("default", 1), ("emails", 2)]
    assert [counts["total"] for counts in shell.json("counts", "emails")] == [2]
    assert shell("counts").stdout.splitlines()[2].split() == ["emails", "2", *["0"] * 7, "2"]


@pytest.mark.parametrize("words", [["peek"], ["counts"], ["queues", "show"], ["dead", "list"], ["clear"], ["drop"]])
@pytest.mark.usefixtures("connection")
def test_looking_at_a_queue_that_is_not_there_makes_none(shell: Shell, words: list[str]) -> None:
    assert shell.error(*words, "emials", code=1) == "Error: this store has no queue 'emials'; there are: emails"
    assert [queue["name"] for queue in shell.json("queues", "list")] == ["emails"]


@pytest.mark.every_store
def test_deleting_tells_what_was_not_there(shell: Shell, connection: Connection) -> None:
    id_ = str(connection.queue("emails").send(1).id)
    assert shell("delete", id_).stdout == f"deleted {id_}\n"
    assert shell.error("delete", id_, code=1) == f"Error: no such messages, or already gone: {id_}"
    assert "is not a message id" in shell.error("delete", "x", code=2)


@pytest.mark.parametrize("command", ["clear", "drop"])
@pytest.mark.every_store
def test_what_destroys_must_be_meant(shell: Shell, connection: Connection, command: str) -> None:
    connection.queue("emails").send_many([1, 2])
    assert "2 messages" in shell.error(command, "emails", code=2)
    assert connection.queue("emails").counts().total == 2
    shell(command, "emails", "--yes")
    assert connection.queues() == (["emails"] if command == "clear" else [])
    assert connection.queue("emails").counts().total == 0


def test_a_store_must_be_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTYQUEUE_URL")
    assert "no store given" in shell.error("counts", code=2)


def test_a_store_that_cannot_be_reached_has_an_exit_code_of_its_own(shell: Shell, tmp_path: Path) -> None:
    assert "create it" in shell.error("counts", "--url", f"sqlite:///{tmp_path}/missing/work.db", code=3)


def test_an_unknown_kind_of_store_is_bad_input(shell: Shell) -> None:
    assert "unknown kind of store 'amqp'" in shell.error("counts", "--url", "amqp://", code=2)


@pytest.mark.parametrize("words", [["-v", "counts"], ["counts", "-v"]])
def test_a_traceback_is_shown_only_when_asked_for(shell: Shell, words: list[str]) -> None:
    assert "Traceback" in shell(*words, "--url", "amqp://", code=2).stderr
    assert "Traceback" not in shell("counts", "--url", "amqp://", code=2).stderr


def test_a_directory_that_was_removed_keeps_nobody_from_a_store_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(f"sqlite:///{folder}/mail.db") as store:
        store.queue("emails")
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Shell()("counts", "--url", f"sqlite:///{folder}/mail.db").stderr == ""
    told = Shell().error("counts", "--url", "sqlite:///mail.db", code=3)
    assert told.startswith("Error: mail.db: the current directory was removed")
    assert Shell().error("worker", "shop:app", code=2).startswith("Error: shop cannot be imported: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["queues", "list"], "Error: [Errno 28] No space left on device"),
        (["send", "emails", "1", "--create"], "Error: this was done, but stdout could not be written"),
        (["send", "emails", "1", "--create", "--json"], "No space left on device): emails:"),
    ],
)
def test_output_that_cannot_be_written_is_reported_in_one_line(folder: Path, words: list[str], told: str) -> None:
    with connect(f"sqlite:///{folder}/mail.db") as store, Path("/dev/full").open("w") as full:
        store.queue("emails")
        command = [sys.executable, "-m", "astyqueue", *words, "--url", f"sqlite:///{folder}/mail.db"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert told in line


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "astyqueue", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: astyqueue ")


LOOKING = [
    "counts",
    "counts emails",
    "peek emails",
    "get emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21",
    "find emails ada",
    "explain emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21",
    "history emails",
    "queues list",
    "queues show emails",
    "queues set emails lease=5m",
    "dead list emails",
    "dead show emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21",
    "dead redrive emails",
    "dead purge emails --yes",
    "schedules list emails",
    "schedules show emails digest",
    "schedules next emails digest",
    "schedules add emails digest --every 5m",
    "delete emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21",
    "clear emails --yes",
    "drop emails --yes",
    "send emails 1",
]


@pytest.mark.parametrize("typed", LOOKING)
def test_a_misspelt_file_is_named_and_not_made(folder: Path, typed: str) -> None:
    told = Shell().error(*typed.split(), "--url", "sqlite:///typo.db", code=5)
    assert told.startswith(
        f"Error: there is no file {folder}/typo.db: correct the URL, "
        "or create the store first ('astyqueue send QUEUE BODY --create'"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("typed", "code"), [("doctor", 10), ("verify", 5), ("migrate", 0)])
def test_who_looks_after_a_store_makes_no_file_either(folder: Path, typed: str, code: int) -> None:
    Shell()(typed, "--url", "sqlite:///typo.db", code=code)
    assert list(folder.iterdir()) == []


def test_sending_makes_the_file_when_asked_to(folder: Path) -> None:
    Shell()("send", "emails", "1", "--create", "--url", "sqlite:///new.db")
    assert folder.joinpath("new.db").exists()


def test_a_program_that_only_looks_makes_no_file(folder: Path) -> None:
    with pytest.raises(WrongSchema, match=f"there is no file {folder}/typo.db"):
        connect("sqlite:///typo.db", create=False)

    async def look() -> None:
        with pytest.raises(WrongSchema, match="there is no file"):
            await aio.connect("sqlite:///typo.db", create=False)

    asyncio.run(look())
    assert list(folder.iterdir()) == []
    connect("sqlite:///typo.db").close()
    connect("sqlite:///typo.db", create=False).close()


def test_a_moment_is_written_in_one_form_in_all_json(shell: Shell, connection: Connection, folder: Path) -> None:
    """Programs compare them as text, across commands."""
    queue = connection.queue("emails")
    queue.configure(history="all")
    sent = str(queue.send("hello", delay="1h").id)
    queue.send(None, trigger=Every("1h"), key="hourly")
    [peeked] = shell.json("peek", "emails", "--include", "future", "-n", "1")
    [got] = shell.json("get", sent)
    [explained] = shell.json("explain", sent)
    [event, *_] = shell.json("history", sent)
    [schedule] = shell.json("schedules", "list", "emails")
    with Journal.open(place := folder / "spool" / "queue-emails" / "1") as journal:
        journal.append("waits")
    (place / "failing.json").write_text('{"since_us": 1, "error": "the network is down"}')
    [spooled], backlog = shell.json("spool", "status", "spool"), backlog_of(folder / "spool").as_json()
    assert {peeked["due"], got["due"], explained["until"], event["due"]} == {got["due"]}
    moments = [got["sent"], got["due"], explained["now"], event["at"], schedule["next"], schedule["created"]]
    moments += [one[name] for one in (spooled, backlog) for name in ("oldest", "failing_since")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", moment) for moment in moments), moments
