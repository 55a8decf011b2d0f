"""Commands on a journal: what a person sees of its records, sizes and damage, and what they can remove."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.queue.connection import Connection
from astyqueue.queue.queue import MessageQueue
from astyqueue.testing import TimeMachine
from tests.unit.cli.conftest import Shell


@pytest.fixture
def orders(folder: Path, clock: TimeMachine) -> Path:
    """A journal of twenty records, an hour between the tenth and the eleventh."""
    with Journal.open(folder / "orders", page_size=512, clock=clock) as journal:
        for number in range(1, 21):
            journal.append({"order": number})
            if number == 10:
                clock.advance("1h")
    return folder / "orders"


def sequences(shell: Shell, *words: str) -> list[int]:
    return [line["sequence"] for line in shell.json("journal", "tail", *words)]


def test_tail_shows_the_last_records(shell: Shell, orders: Path) -> None:
    lines = shell("journal", "tail", str(orders)).stdout.splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("20  ")
    assert lines[-1].endswith('  {"order": 20}')
    assert sequences(shell, str(orders), "--last", "3") == [18, 19, 20]
    assert sequences(shell, str(orders), "-n", "99") == list(range(1, 21))


def test_tail_shows_as_many_of_the_last_records_where_sequences_are_missing(shell: Shell, orders: Path) -> None:
    with ReadOnlyJournal.open(orders) as journal:
        page = journal.stat().pages - 1
        tenth = next(iter(journal.read(after=9))).arrived
    file = orders / f"journal-{page}.page"
    data = bytearray(file.read_bytes())
    data[128:] = bytes(len(data) - 128)
    file.write_bytes(data)
    before = sequences(shell, str(orders), "-n", "99")
    assert before[-1] == 20
    assert len(before) < 20
    for count in (1, 5, 8):
        assert sequences(shell, str(orders), "-n", str(count)) == before[-count:]
    until = (tenth + timedelta(minutes=1)).isoformat()
    assert sequences(shell, str(orders), "-n", "3", "--until", until) == [one for one in before if one <= 10][-3:]


def test_tail_begins_behind_a_record_or_at_a_moment(shell: Shell, orders: Path) -> None:
    with ReadOnlyJournal.open(orders) as journal:
        later = next(iter(journal.read(after=10))).arrived
    assert sequences(shell, str(orders), "--after", "18") == [19, 20]
    assert sequences(shell, str(orders), "--since", later.isoformat()) == list(range(11, 21))
    assert sequences(shell, str(orders), "--after", "8", "--until", later.isoformat()) == [9, 10]
    assert "exclude each other" in shell.error("journal", "tail", str(orders), "--after", "1", "-n", "2", code=2)


def test_values_that_are_no_json_are_text_without_control_characters(shell: Shell, folder: Path) -> None:
    with Journal.open(folder, codec=BYTES) as journal:
        journal.append_many([b"\x1b[2J", b"\xff\xfe", b'"text"', b"", b"[1]"])
    assert [line.split("  ")[2] for line in shell("journal", "tail", ".").stdout.splitlines()] == [
        '"\\u001b[2J"',
        '"\\\\xff\\\\xfe"',
        '"text"',
        '""',
        "[1]",
    ]
    assert [line["value"] for line in shell.json("journal", "tail", ".")] == ["\x1b[2J", "\\xff\\xfe", "text", "", [1]]


def test_numbers_that_json_does_not_have_are_text_so_that_each_line_is_json(shell: Shell, folder: Path) -> None:
    def refuse(number: str) -> None:
        raise AssertionError(number)

    values = [b"NaN", b"[-Infinity]", b"1e400", b"1.5", b"-2e3"]
    with Journal.open(folder, codec=BYTES) as journal:
        journal.append_many(values)
    lines = shell("journal", "tail", ".", "--json").stdout.splitlines()
    found = [json.loads(line, parse_constant=refuse)["value"] for line in lines]
    assert found == ["NaN", "[-Infinity]", "1e400", 1.5, -2000.0]
    assert shell("journal", "tail", ".").stdout.splitlines()[0].endswith('  "NaN"')


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("words", [("tail", "orders"), ("replay", "orders", "emails")], ids=["tail", "replay"])
def test_a_moment_that_cannot_be_read_is_an_error_that_names_the_option(
    shell: Shell, orders: Path, words: tuple[str, ...], option: str
) -> None:
    assert orders.exists()
    assert f"Invalid value for '{option}': " in shell.usage_error("journal", *words, option, "soon")


def test_tail_follows_over_pages_until_it_is_interrupted(folder: Path) -> None:
    with Journal.open(folder / "live", page_size=512) as journal:
        journal.append(0)
        journal.sync()
        command = [sys.executable, "-m", "astyqueue", "journal", "tail", "live", "-f", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            assert process.stdout is not None
            seen = [json.loads(process.stdout.readline())["value"]]
            journal.append_many(range(1, 51))
            journal.sync()
            seen += [json.loads(process.stdout.readline())["value"] for _ in range(50)]
            process.terminate()
    assert seen == list(range(51))


def test_a_journal_is_there_before_its_first_record(shell: Shell, folder: Path) -> None:
    with Journal.open(folder / "new"):
        assert sequences(shell, str(folder / "new")) == []
        assert "last sequence  0" in shell("journal", "stat", str(folder / "new")).stdout


def test_stat_says_how_much_there_is_and_where_cursors_are(shell: Shell, orders: Path) -> None:
    with ReadOnlyJournal.open(orders) as journal:
        shipping = journal.cursor("shipping")
        shipping.commit(next(iter(journal.read(after=6))))
    [found] = shell.json("journal", "stat", str(orders))
    assert (found["first_sequence"], found["last_sequence"], found["cursors"]) == (1, 20, {"shipping": 7})
    assert found["pages"] == len(list(orders.glob("*.page"))) > 1
    assert found["bytes"] == sum(page.stat().st_size for page in orders.glob("*.page"))
    assert "cursors        shipping at 7" in shell("journal", "stat", str(orders)).stdout.splitlines()


def test_a_page_is_drawn_from_its_bytes(shell: Shell, orders: Path) -> None:
    shell("journal", "stat", str(orders), "--svg", "page.svg", "--page", "1")
    texts = [text.text for text in ET.fromstring(Path("page.svg").read_text()).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own file
    assert '{"order":1}' in texts
    assert any(text and text.startswith("journal-1.page: ") for text in texts)
    assert "has no readable page 99" in shell.error(
        "journal", "stat", str(orders), "--svg", "x", "--page", "99", code=1
    )


def test_a_page_without_a_file_to_draw_it_into_is_an_error_of_usage(shell: Shell, orders: Path) -> None:
    told = shell.usage_error("journal", "stat", str(orders), "--page", "1")
    assert told == "Error: --page needs --svg: name a file to draw the page into"


def test_a_page_is_drawn_into_no_pipe_and_no_link(shell: Shell, orders: Path, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("precious")
    for name in ("pipe", "link"):
        told = shell.error("journal", "stat", str(orders), "--svg", name, code=2)
        assert told == f"Error: {name} is a link, a pipe or a device, which a drawing does not replace: name a file"
    assert ((folder / "pipe").is_fifo(), (folder / "link").is_symlink()) == (True, True)


def test_a_drawn_page_shows_hostile_payloads_as_text(shell: Shell, folder: Path) -> None:
    with Journal.open(folder / "nasty", codec=BYTES) as journal:
        journal.append_many([b"<script>", b"\x1b]0;x\x07", b"\x00\xff", b"\xe2\x80\xae"])
    shell("journal", "stat", "nasty", "--svg", "page.svg")
    text = Path("page.svg").read_text()
    ET.fromstring(text)  # noqa: S314 - our own file
    assert "<script>" not in text
    assert all(line.isprintable() for line in text.splitlines())


def test_verify_finds_a_flipped_bit_and_exits_with_20(shell: Shell, orders: Path) -> None:
    assert "20 records" in shell("journal", "verify", str(orders)).stdout
    page = orders / "journal-1.page"
    data = bytearray(page.read_bytes())
    data[200] ^= 1
    page.write_bytes(data)
    [finding] = [
        line for line in shell("journal", "verify", str(orders), "--json", code=20).stdout.splitlines() if line
    ]
    assert json.loads(finding)["subject"] == "page 1"


def test_verify_finds_a_cursor_that_cannot_be_read(shell: Shell, orders: Path) -> None:
    with ReadOnlyJournal.open(orders) as journal:
        journal.cursor("shipping").commit(next(iter(journal.read(after=6))))
    (orders / "journal.shipping.cursor").write_bytes(b"?" * 60)
    [finding] = shell("journal", "verify", str(orders), "--json", code=10).stdout.splitlines()
    assert json.loads(finding)["subject"] == "cursor shipping"


def test_reclaim_removes_what_cursors_have_passed_once_it_is_confirmed(shell: Shell, orders: Path) -> None:
    assert "--retain" in shell.error("journal", "reclaim", str(orders), "--yes", code=2)
    with ReadOnlyJournal.open(orders) as journal:
        cursor = journal.cursor("shipping")
        for record in journal.read():
            cursor.commit(record)
    pages = len(list(orders.glob("*.page")))
    assert "add --yes" in shell.error("journal", "reclaim", str(orders), code=2)
    assert len(list(orders.glob("*.page"))) == pages
    assert shell.json("journal", "reclaim", str(orders), "--yes") == [{"removed_pages": pages, "records": 0}]
    assert shell("journal", "reclaim", str(orders), "--yes").stdout == "removed 0 pages, 0 records left\n"
    assert sequences(shell, str(orders)) == []
    with Journal.open(orders) as journal:
        assert journal.append("next").sequence == 21
    assert sequences(shell, str(orders)) == [21]


def test_reclaim_says_how_many_records_are_left_and_why(shell: Shell, orders: Path) -> None:
    text = shell("journal", "reclaim", str(orders), "--retain", "4000w", "--yes").stdout
    assert text.startswith("removed 0 pages, 20 records left: a page stays while one of its records is younger")


def test_reclaim_leaves_a_journal_that_a_program_writes(shell: Shell, folder: Path) -> None:
    with Journal.open(folder / "live") as journal:
        journal.append(1)
        error = shell.error("journal", "reclaim", "live", "--retain", "7d", "--yes", code=1)
    assert "live" in error


def test_a_journal_that_is_not_there_is_an_error_that_lists_those_that_are(shell: Shell, orders: Path) -> None:
    assert shell.error("journal", "tail", str(orders), "--prefix", "other", code=1).endswith(
        "has no journal 'other'; there are: journal; name one with --prefix"
    )
    assert shell.error("journal", "stat", ".", code=1).endswith("has no journal 'journal'; it has none")


def test_a_value_that_is_nested_too_deeply_to_be_read_is_shown_as_text(shell: Shell, folder: Path) -> None:
    with Journal.open(folder / "deep", codec=BYTES) as journal:
        journal.append_many([b"[" * 100_000, b"1"])
    [deep, one] = shell.json("journal", "tail", "deep")
    assert (deep["value"], one["value"]) == ("[" * 100_000, 1)


def test_replay_sends_a_message_for_each_record_and_only_what_is_missing_when_it_is_repeated(
    shell: Shell, orders: Path, connection: Connection
) -> None:
    words = ("journal", "replay", str(orders), "emails")
    assert shell(*words, "--dry-run").stdout == "read 20 records, would send 20 messages to emails\n"
    assert shell(*words, "--where", "order=7").stdout == "read 20 records, sent 1 message to emails, skipped 19\n"
    expected = "read 20 records, would send 19 messages to emails, 1 were sent before\n"
    assert shell(*words, "--dry-run").stdout == expected
    assert shell(*words).stdout == "read 20 records, sent 19 messages to emails, 1 were sent before\n"
    assert shell.json(*words)[0]["there"] == 20
    bodies = [json.dumps(found.body) for found in connection.queue("emails").peek(30, include="all")]
    assert sorted(bodies) == sorted(json.dumps({"order": number}) for number in range(1, 21))
    assert shell.json(*words, "--again", "--where", "order=3", "--where", "nothing=3")[0]["skipped"] == 20
    assert "write NAME=VALUE" in shell.error(*words, "--where", "order", code=2)
    assert "no queue 'others'" in shell.error("journal", "replay", str(orders), "others", code=1)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ('tags=["a","b"]', 1),
        ('tags=["b","a"]', 0),
        ('name=["é"]', 1),
        ('name=["\\u00e9"]', 1),
        ("price=1.50", 1),
        ("price=1.5", 1),
        ("weight=2", 1),
        ("weight=2.0", 1),
        ("one=1e0", 1),
        ('to={"b":1,"a":[]}', 1),
        ("done=true", 1),
        ("done=1", 0),
        ("one=1", 1),
        ("one=true", 0),
        ("text=007", 1),
        ("text=7", 0),
        ('text="007"', 1),
        ("text=" + "[" * 100_000, 0),
        ("none=null", 1),
    ],
)
@pytest.mark.usefixtures("connection")
def test_a_field_has_a_value_however_its_json_is_written(shell: Shell, folder: Path, where: str, count: int) -> None:
    fields = {
        "tags": ["a", "b"],
        "name": ["é"],
        "price": 1.5,
        "weight": 2.0,
        "to": {"a": [], "b": 1},
        "done": True,
        "one": 1,
    }
    with Journal.open(folder / "orders") as journal:
        journal.append({**fields, "text": "007", "none": None})
    [found] = shell.json("journal", "replay", "orders", "emails", "--where", where, "--dry-run")
    assert found["read"] - found["skipped"] == count


def test_an_interrupted_replay_says_so(
    shell: Shell, orders: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = MessageQueue.run

    def interrupted(queue: MessageQueue, steps: Any) -> Any:  # noqa: ANN401 - whatever the command asks for
        os.kill(os.getpid(), signal.SIGINT)
        return go_on(queue, steps)

    monkeypatch.setattr(MessageQueue, "run", interrupted)
    result = shell("journal", "replay", str(orders), "emails", code=130)
    assert result.stdout.endswith(" to emails, then was interrupted\n")
    assert connection.queues() == ["emails"]


@pytest.mark.stores("sqlite")
def test_replay_follows_what_another_process_appends(orders: Path, connection: Connection) -> None:
    with connection.queue("emails") as queue:
        words = [sys.executable, "-m", "astyqueue", "journal", "replay", str(orders), "emails", "--follow"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert len(queue.receive(20, wait="30s")) > 0
            with Journal.open(orders) as journal:
                journal.append({"order": "later"})
            while not any(found.body == {"order": "later"} for found in queue.peek(30, include="all")):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=30)
    assert printed == "read 21 records, sent 21 messages to emails\n"
