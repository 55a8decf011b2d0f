"""`astyqueue send` with one message: what it makes of its options, and what it refuses."""

from __future__ import annotations

import pytest

from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import Shell


@pytest.mark.parametrize(
    ("arguments", "body"),
    [('["ada"]', {"args": ["ada"], "kwargs": {}}), ('{"address": "ada"}', {"args": [], "kwargs": {"address": "ada"}})],
)
def test_a_task_is_called_by_its_name(shell: Shell, connection: Connection, arguments: str, body: object) -> None:
    shell("send", "emails", arguments, "--task", "shop.welcome", "--header", "trace=1")
    [found] = connection.queue("emails").peek()
    assert (found.body, dict(found.headers)) == (body, {"trace": "1", "task": "shop.welcome"})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{TOPSECRET}"], "the body is not JSON (Expecting property name enclosed in double quotes: line 1 column 2"),
        (["{card:", "TOPSECRET}"], "there is more behind QUEUE and BODY (1 word): put BODY into quotes"),
        (['{"a": {"card": "SECRET", "card": 2}}'], "two values for 'card', of which one would be lost"),
        (["-5"], "write -- before QUEUE, as in 'send -- emails -5'"),
    ],
)
def test_a_body_that_cannot_be_read_is_not_repeated(
    shell: Shell, connection: Connection, words: list[str], told: str
) -> None:
    result = shell("send", "emails", *words, code=2)
    assert told in result.stderr
    assert "SECRET" not in result.output
    assert connection.queue("emails").counts().total == 0


def test_a_body_from_stdin_that_is_not_utf_8_is_refused_in_one_line(shell: Shell, connection: Connection) -> None:
    told = shell.error("send", "emails", "-", stdin=b'"\xe9"', code=2)
    assert told.startswith("Error: stdin must be UTF-8: 'utf-8' codec can't decode byte 0xe9 in position 1")
    assert connection.queue("emails").counts().total == 0


def test_a_negative_number_is_sent_behind_two_dashes(shell: Shell, connection: Connection) -> None:
    shell("send", "--", "emails", "-5")
    shell("send", "emails", "--", "-5.5")
    assert [found.body for found in connection.queue("emails").peek()] == [-5, -5.5]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["hello"], "the body is not JSON"),
        (["3", "--task", "welcome"], "invalid task arguments: give a JSON list"),
        (["1", "--priority", "7"], "has one priority, 0"),
        (["1", "--header", "trace"], "invalid header 'trace': write NAME=TEXT"),
        (["1", "--header", "=1"], "invalid header '=1': write NAME=TEXT"),
        (["1", "--header", "a=1", "--header", "b=1", "--header", "a=2"], "header 'a' is given twice"),
        (["1", "--lines"], "give - as BODY"),
        (["[1]", "--task", ""], "--task is empty"),
        (["1", "--delay", "5m", "--at", "2030-01-01T00:00:00Z"], "a delay or a moment (at=), not both"),
        (["1", "--unique", "reject"], "without a key"),
        (["1", "--key", ""], "key ''"),
        (["1", "--lease", "100d"], "lease is 100d: it must be from 100ms to 12h, or 0 for at most once"),
    ],
)
def test_what_cannot_be_sent_is_reported_in_one_line(
    shell: Shell, connection: Connection, options: list[str], told: str
) -> None:
    assert told in shell.error("send", "emails", *options, code=2)
    assert connection.queue("emails").counts().total == 0
