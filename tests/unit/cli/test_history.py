"""The history as people and programs get it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import Shell

Buried = Callable[..., list[str]]


@pytest.mark.every_store
def test_a_message_s_history_is_reported_in_order(shell: Shell, connection: Connection) -> None:
    shell("queues", "set", "emails", "history=all", "history_kept=2d")
    queue = connection.queue("emails")
    sent = queue.send("hello", key="ada", headers={"task": "welcome"})
    with queue.receive() as [delivery]:
        delivery.fail("mailbox 17 is full")
    told = shell.json("history", str(sent.id))
    assert [event["kind"] for event in told] == ["sent", "claimed", "failed", "retried"]
    assert {event["task"] for event in told} == {"welcome"}
    assert told[2]["failure"] == "mailbox <number> is full"
    assert [event["kind"] for event in shell.json("history", "emails", "--key", "ada", "--kind", "failed")] == [
        "failed"
    ]
    assert "mailbox 17 is full" in shell("history", "emails").stdout


def test_the_last_events_are_reported(shell: Shell, buried: Buried) -> None:
    ids = buried("one", "two", "three")
    assert [event["message"] for event in shell.json("history", "emails", "--last", "2")] == ids[1:]
    assert [event["message"] for event in shell.json("history", "emails", "--limit", "2")] == ids[:2]
    assert "give one of them" in shell.error("history", "emails", "--limit", "2", "--last", "2", code=2)


def test_tracebacks_are_shown_if_asked_for(shell: Shell, connection: Connection) -> None:
    queue = connection.queue("emails")
    queue.send("hello")
    text = "no luck"
    with pytest.raises(LookupError), queue.receive():
        raise LookupError(text)
    assert "Traceback" not in shell("history", "emails").stdout
    assert "raise LookupError(text)" in shell("history", "emails", "--trace").stdout


def test_tracebacks_of_a_part_say_that_there_is_more_and_of_nothing_that_there_is_none(
    shell: Shell, buried: Buried
) -> None:
    buried("one", "two")
    more = "astyqueue: there are more than these 1; --limit shows more\n"
    assert shell("history", "emails", "--trace", "--limit", "1").stderr == more
    assert shell("history", "emails", "--trace").stderr == ""
    told = shell("history", "emails", "--trace", "--until", "2000-01-01T00:00:00Z").stdout
    assert told.startswith("no such events; queue emails records failures only")


def test_a_time_without_events_says_so(shell: Shell, buried: Buried) -> None:
    [id_] = buried("not ours")
    assert "not ours" in shell("history", id_).stdout
    assert shell("history", id_, "--since", "1h").stdout.splitlines()[1:]
    assert shell("history", id_, "--until", "2000-01-01T00:00:00Z").stdout == (
        "no such events; queue emails records failures only (history=failures): "
        "'astyqueue queues set emails history=all' records everything from now on\n"
    )
    assert "before it begins" in shell.error("history", "emails", "--since", "1h", "--until", "2h", code=2)
    assert "write 2026-11-21T09:00:00Z, or an offset such as +01:00 instead of Z; or 2h" in shell.usage_error(
        "history", "emails", "--since", "noon"
    )
    assert "not a kind of event" in shell.error("history", "emails", "--kind", "sunk", code=2)
    assert "name the queue" in shell.error("history", id_, "--key", "ada", code=2)
