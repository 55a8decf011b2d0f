"""`send --lines` that is interrupted: the store refuses, or the user presses Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click
import pytest

from astyqueue import Message, MessageQueue
from astyqueue.cli.commands import send as send_command
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


def queue_of(store: Watched, clock: TimeMachine) -> MessageQueue:
    return MessageQueue.builder().store(store).name("emails").clock(clock).build()


def sender_of(queue: MessageQueue) -> LineSender:
    return LineSender(queue, lambda line: Message(int(line)))


def send(store: Watched, clock: TimeMachine, *, since: int = 1) -> MessageQueue:
    queue = queue_of(store, clock)
    sender_of(queue).send(
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


def opened_on_a_full_disk(mode: str, *, encoding: str, errors: str, newline: str, **_: object) -> IO[str]:
    return Path("/dev/full").open(mode, encoding=encoding, errors=errors, newline=newline)


def test_lines_for_which_the_temporary_folder_has_no_room_are_not_sent(
    clock: TimeMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(send_command, "_IN_MEMORY", 1_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", opened_on_a_full_disk)
    with pytest.raises(Failure) as told:
        send(Watched(clock, most=0, then=refuse), clock)
    assert told.value.exit_code == ExitCode.FAILED
    assert told.value.message == (
        f"[Errno 28] No space left on device. Nothing was sent: make room in {tmp_path}, or set TMPDIR"
    )


def test_lines_that_cannot_be_read_to_the_end_are_not_sent(clock: TimeMachine) -> None:
    sender = sender_of(queue_of(Watched(clock, most=0, then=refuse), clock))
    with (
        Path("/proc/self/mem").open() as unreadable,
        pytest.raises(Failure, match=r"^after line 0: \[Errno 5\] Input/output error. Nothing was sent$"),
    ):
        sender.send(unreadable, Output(instant(clock.now()), as_json=True))


@pytest.mark.parametrize("words", [["emails", "-"], ["emails", "-", "--lines"]])
def test_a_body_that_is_nested_too_deeply_is_told_in_one_line(
    shell: Shell, connection: Connection, words: list[str]
) -> None:
    told = shell.error("send", *words, stdin="[" * 100_000, code=2)
    assert "the body is not JSON (it is nested too deeply)" in told
    assert connection.queue("emails").counts().total == 0


@pytest.mark.parametrize(
    ("begins", "told"),
    [
        (b'"a"\n' * 5_000, "Error: line 5001 is not UTF-8 (invalid continuation byte: 0xe9). Nothing was sent"),
        (b'"a"\r\n' * 5_000, "Error: line 5001 is not UTF-8 (invalid continuation byte: 0xe9). Nothing was sent"),
        (b"", "Error: line 1 is not UTF-8 (invalid continuation byte: 0xe9). Nothing was sent"),
    ],
    ids=["many lines", "of another system", "the first"],
)
def test_the_line_that_is_not_utf_8_is_named_and_none_is_sent(
    shell: Shell, connection: Connection, begins: bytes, told: str
) -> None:
    assert shell.error("send", "emails", "-", "--lines", stdin=begins + b'"\xe9"\n"b"\n', code=2) == told
    assert connection.queue("emails").counts().total == 0
