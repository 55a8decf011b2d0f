"""Handing out from the command line messages that landed too late for every scan."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from astyqueue import ids
from astyqueue.cli.commands.rescan import _progress
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.model.envelope import encode_plain
from astyqueue.model.views import RescanReport
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.sending.insert import message_put
from astyqueue.queue.connection import Connection
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Batch, Put
from astyqueue.units import SECOND
from tests.unit.cli.conftest import Shell

ROW = "emails:0:0"


def strand(connection: Connection, *hours: float) -> list[str]:
    """Messages of `hours` hours ago land in a queue that was read since; their bodies."""
    queue = connection.queue("emails")
    queue.send("first")
    queue.receive()[0].ack()
    now = SystemClock().now()
    moments = [now - int(hour * 3_600) * SECOND for hour in hours]
    puts = [message_put(0, ids.at(moment), encode_plain(moment, b'"%d"' % moment), sent=moment) for moment in moments]
    connection.store.send(Batch(ROW, tuple(puts)))
    return [str(moment) for moment in moments]


@pytest.mark.every_store
def test_what_landed_late_is_delivered_and_a_second_time_there_is_nothing(shell: Shell, connection: Connection) -> None:
    bodies = strand(connection, 20, 5)
    told = "scanned 2 ids in 2 rows of queue emails, handed out {} missed messages\n"
    assert shell("rescan", "emails").stdout == told.format(2)
    assert shell("rescan", "emails").stdout == told.format(0)
    with connection.queue("emails").receive(limit=10) as batch:
        assert [delivery.body for delivery in batch] == bodies


@pytest.mark.parametrize(("since", "listed"), [("6h", 1), ("21h", 2), ("2100-01-01T00:00:00Z", 0)])
def test_how_far_back_it_looks_can_be_said(shell: Shell, connection: Connection, since: str, listed: int) -> None:
    strand(connection, 20, 5)
    [told] = shell.json("rescan", "emails", "--since", since)
    assert told == {
        "queue": "emails",
        "rows": 2,
        "looked": listed,
        "listed": listed,
        "unreadable": [],
        "interrupted": False,
    }


def test_a_moment_that_is_none_is_reported(shell: Shell, connection: Connection) -> None:
    connection.queue("emails")
    assert "is not a moment" in shell.usage_error("rescan", "emails", "--since", "yesterday")
    assert "no queue 'emials'" in shell.error("rescan", "emials", code=1)


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_looked_through(
    shell: Shell, connection: Connection
) -> None:
    strand(connection, 5)
    connection.store.commit(Batch("emails:home:0", (Put(HEADER, b"\x7fof a newer release"),)), ())
    result = shell("rescan", "emails", code=1)
    expected = "scanned 1 id in 1 row of queue emails, handed out 1 missed message; could not read emails:home:0"
    assert result.stdout.startswith(expected)


def test_an_interrupted_rescan_says_how_far_it_came(
    shell: Shell, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    strand(connection, 5)
    rescan = MessageQueue.rescan

    def interrupted(queue: MessageQueue, *arguments: Any, **options: Any) -> RescanReport:  # noqa: ANN401 - whatever the command asks for
        def press(_: RescanReport) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        return rescan(queue, *arguments, **options | {"progress": press})

    monkeypatch.setattr(MessageQueue, "rescan", interrupted)
    expected = "scanned 0 ids in 0 rows of queue emails, handed out 0 missed messages, then was interrupted\n"
    assert shell("rescan", "emails", code=130).stdout == expected


def test_the_error_of_a_rescan_has_a_line_of_its_own_below_the_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    def fail_after_a_page() -> None:
        with _progress() as show:
            assert show is not None
            show(RescanReport(rows=2, looked=3, listed=1))
            raise StoreUnavailable

    with pytest.raises(StoreUnavailable):
        fail_after_a_page()
    assert capsys.readouterr().err == "\r2 rows, 3 ids, 1 handed out\n"


@pytest.mark.stores("sqlite")  # on Cassandra doctor has more to say, and another exit code
def test_the_doctor_tells_of_it_until_it_is_done(shell: Shell, connection: Connection) -> None:
    strand(connection, 20, 5)
    told = shell("doctor", code=10).stdout
    assert "warning  late messages of queue emails: 2 messages that no worker looks for, the oldest of " in told
    assert "do:  astyqueue rescan emails delivers them at once" in told
    shell("rescan", "emails")
    assert "late messages of queue emails: none" in shell("doctor").stdout
