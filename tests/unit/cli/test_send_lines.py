"""`send --lines` that is interrupted: the store refuses, or the user presses Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable

import click
import pytest

from astyqueue import Message, MessageQueue
from astyqueue.cli.commands.send import LineSender
from astyqueue.cli.errors import ExitCode, Failure
from astyqueue.cli.output import Output
from astyqueue.clock import instant
from astyqueue.errors import StoreFull
from astyqueue.protocol.steps import Request, Send
from astyqueue.queue.connection import Connection
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from tests.unit.cli.conftest import Shell

LINES = 2_500


class Watched(Faulty):
    """A store that does something before it takes more than `most` messages."""

    def __init__(self, clock: TimeMachine, *, most: int, then: Callable[[], None]) -> None:
        super().__init__(open_store("memory://", clock=clock))
        self.most = most
        self.then = then

    def perform(self, request: Request) -> object:
        if isinstance(request, Send):
            self.most -= sum(len(batch.puts) for batch in request.batches if not batch.row.startswith("emails:bell"))
            if self.most < 0:
                self.then()
        return super().perform(request)


def refuse() -> None:
    problem = "the disk is full"
    raise StoreFull(problem)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def send(store: Watched, clock: TimeMachine, *, since: int = 1) -> MessageQueue:
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    sender = LineSender(queue, lambda line: Message(int(line)))
    sender.send(
        io.StringIO("".join(f"{number}\n" for number in range(1, LINES + 1))),
        Output(instant(clock.now()), as_json=True),
        since=since,
    )
    return queue


def test_what_was_sent_before_the_store_refused_is_reported(clock: TimeMachine) -> None:
    store = Watched(clock, most=1_100, then=refuse)
    with pytest.raises(Failure) as told:
        send(store, clock)
    assert told.value.exit_code == ExitCode.FAILED
    assert told.value.message == (
        "the disk is full. 1000 messages had been sent before, and some of lines 1001 to 2000 may have been: "
        "check the queue, or continue with --from-line 1001, which may send those again"
    )
    store.most = LINES
    queue = send(store, clock, since=1001)
    assert queue.counts().total == LINES


def test_ctrl_c_stops_between_two_chunks_and_says_where_to_go_on(
    clock: TimeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Watched(clock, most=1_100, then=press)
    with pytest.raises(click.exceptions.Exit) as ended:
        send(store, clock)
    assert ended.value.exit_code == ExitCode.INTERRUPTED
    assert json.loads(capsys.readouterr().out) == {"queue": "emails", "sent": 2000, "taken": 0, "interrupted_at": 2001}
    store.most = LINES
    queue = send(store, clock, since=2001)
    assert {found.body for found in queue.peek(LINES)} == set(range(1, LINES + 1))


@pytest.mark.parametrize("words", [["emails", "-"], ["emails", "-", "--lines"]])
def test_a_body_that_is_nested_too_deeply_is_told_in_one_line(
    shell: Shell, connection: Connection, words: list[str]
) -> None:
    told = shell.error("send", *words, stdin="[" * 100_000, code=2)
    assert "the body is not JSON (it is nested too deeply)" in told
    assert connection.queue("emails").counts().total == 0
