"""What goes wrong between a dispatcher and its child processes costs the message concerned at most an attempt."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import Call
from astyqueue.dispatch.processes import children
from astyqueue.dispatch.processes.channel import Channel, Frame
from astyqueue.dispatch.processes.child_process import ChildProcess, ProcessOptions
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.hooks import Hook
from astyqueue.testing import TimeMachine
from tests.unit.dispatch import in_children
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Stage
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]

IN_A_CHILD = """
import os
import sys


def handle(delivery):
    pass


if "ASTYQUEUE_CHILD_OF" in os.environ:
    {}
"""


def begun(stage: Stage, call: Call, *, timeout: str | None = None, per_child: int | None = None) -> Dispatcher:
    builder = Dispatcher.builder().queue(stage.queue).handler(call, kind="process", timeout=timeout)
    return stage.begin(builder.processes(1, max_tasks_per_child=per_child).build())


def outcomes_of(stage: Stage, number: int) -> list[str]:
    """The outcomes of the message whose body says this number."""
    return [outcome for body, outcome in stage.heard.outcomes if isinstance(body, dict) and body["number"] == number]


class Refusing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        message = f"no request id in {record.name}"
        raise KeyError(message)


def test_a_log_filter_that_raises_does_not_end_the_wait_for_the_answer_of_a_child(stage: Stage, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    log, refusing = logging.getLogger("shop"), Refusing()
    log.addFilter(refusing)
    try:
        begun(stage, in_children.logging_then_held)
        stage.queue.send({"number": 1, "go": str(go)})
        stage.when(lambda: stage.stats.received == 1)
        go.write_text("go", encoding="utf-8")
        stage.queue.send({"number": 2})
        stage.when(lambda: bool(outcomes_of(stage, 1) and outcomes_of(stage, 2)))
    finally:
        log.removeFilter(refusing)
    assert outcomes_of(stage, 1) == ["acked"]
    assert "acked" not in outcomes_of(stage, 2)


def test_a_child_whose_answer_cannot_be_read_is_killed_and_its_next_message_gets_its_own_outcome(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    real, read = Channel.receive, [0]

    def receive(channel: Channel) -> Frame | None:
        frame = real(channel)
        read[0] += frame != ("ready",)
        if read[0] == 1:
            read[0] += 1
            message = "bad marshal data"
            raise ValueError(message)
        return frame

    stage = stages(backoff=0)
    monkeypatch.setattr(Channel, "receive", receive)
    begun(stage, in_children.logging_then_held)
    stage.queue.send({"number": 2})
    stage.when_settled(2)
    assert "acked" not in outcomes_of(stage, 2)
    first, second = (line.getMessage() for line in lines.of("retry")[:2])
    assert "ValueError: bad marshal data" in first
    assert "message 2 was not done" in second
    assert "killed" in lines.first("child_died").getMessage()
    assert " again_in=" in lines.first("child_died").getMessage()


def test_a_thread_that_a_handler_left_behind_in_a_child_settles_no_later_message(stages: Stages, lines: Lines) -> None:
    stage = stages(max_attempts=1)
    begun(stage, in_children.leaving_a_thread_behind)
    stage.queue.send({"number": 1})
    stage.when_settled(1)
    stage.queue.send({"number": 2})
    stage.when_settled(2)
    assert [outcomes_of(stage, 1), outcomes_of(stage, 2)] == [["acked"], ["rejected"]]
    assert "the handler of this delivery has ended" in lines.first("dead").getMessage()


def no_fork(*_: object, **__: object) -> ChildProcess:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_a_message_that_was_done_is_acked_though_the_next_child_cannot_be_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    made: list[ChildProcess] = []

    def second_fails(options: ProcessOptions, addresses: list[str]) -> ChildProcess:
        fails = len(made) == 1 and not lines.of("child_not_started")
        made.append(no_fork() if fails else ChildProcess(options, addresses))
        return made[-1]

    monkeypatch.setattr(children, "ChildProcess", second_fails)
    stage.queue.send_many([1, 2])
    dispatcher = begun(stage, in_children.doing_nothing, per_child=1)
    stage.when_settled(2)
    dispatcher.drain(None)
    assert sorted(map(str, stage.heard.outcomes)) == ["(1, 'acked')", "(2, 'acked')"]
    assert "again_in=100ms" in lines.first("child_not_started").getMessage()


def test_a_message_given_up_while_no_child_can_be_started_keeps_no_drain(
    stages: Stages, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    monkeypatch.setattr(children, "ChildProcess", no_fork)
    stage.queue.send(1)
    dispatcher = begun(stage, in_children.doing_nothing, timeout="5s")
    stage.when(lambda: stage.stats.received == 1)
    lines.first("child_not_started")
    stage.when(lambda: bool(dispatcher.presence._workload.running()))  # noqa: SLF001 - what `astyqueue workers` shows
    clock.advance("5s")
    dispatcher.drain(None)
    assert not dispatcher.running


def test_a_child_that_cannot_be_started_leaves_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", no_fork)
    before = {*Path("/dev/fd").iterdir()}
    with pytest.raises(BlockingIOError):
        ChildProcess(ProcessOptions(1), [])
    assert {*Path("/dev/fd").iterdir()} <= before


def test_the_exit_of_a_used_up_child_is_waited_for_by_no_message(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def end(child: ChildProcess) -> str:
        ended.append("waited for")
        return real(child)

    real = ChildProcess.end
    monkeypatch.setattr(ChildProcess, "end", end)
    stage.queue.send_many([1, 2, 3])
    dispatcher = begun(stage, in_children.doing_nothing, per_child=1)
    stage.when_settled(3)
    assert ended == []
    dispatcher.drain(None)
    assert ended


def imported(name: str, in_a_child: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The handler of a module that does this when a child imports it."""
    (folder / f"{name}.py").write_text(IN_A_CHILD.format(in_a_child), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    call: Call = importlib.import_module(name).handle
    return call


@pytest.mark.parametrize(
    ("name", "in_a_child", "told"),
    [
        ("exiting", 'sys.exit("no configuration")', "SystemExit: no configuration"),
        ("hiding", "handle = 3", "TypeError: 3 is not a function: restart the worker, its module has changed"),
        (
            "dispatching",
            "from tests.unit.dispatch.in_children import building_a_dispatcher; building_a_dispatcher(handle)",
            "BadSetting: this process handles messages for its parent, and imported a module that starts a dispatcher",
        ),
    ],
    ids=["exits", "hides its handler", "builds a dispatcher"],
)
def test_a_module_that_a_child_cannot_import_as_its_parent_did_costs_its_messages_their_attempts(
    stages: Stages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: Lines,
    *,
    name: str,
    in_a_child: str,
    told: str,
) -> None:
    stage = stages(max_attempts=1)
    begun(stage, imported(name, in_a_child, tmp_path, monkeypatch))
    stage.queue.send({"number": 1})
    stage.when_settled(1)
    assert outcomes_of(stage, 1) == ["rejected"]
    assert stage.queue.dead_letters()[0].reason.startswith(told)
    assert lines.of("child_died") == []


def test_a_child_that_dies_while_it_imports_costs_no_message_an_attempt(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    died = str(tmp_path / "died")
    once = f"os.path.exists({died!r}) or (os.mkdir({died!r}), os._exit(3))"
    begun(stage, imported("dying_once", once, tmp_path, monkeypatch))
    stage.queue.send({"number": 1})
    stage.when_settled(1)
    assert outcomes_of(stage, 1) == ["acked"]
    facts = vars(lines.first("child_died"))["facts"]
    assert (facts["when"], facts["how"]) == ("without a message", "it exited with 3")


def test_a_used_up_child_that_does_not_exit_ends_soon_though_no_other_message_comes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ChildProcess] = []

    def makes(options: ProcessOptions, addresses: list[str]) -> ChildProcess:
        made.append(ChildProcess(options, addresses))
        return made[-1]

    monkeypatch.setattr(children, "ChildProcess", makes)
    begun(stage, in_children.leaving_a_thread_that_never_ends, per_child=1)
    stage.queue.send(1)
    stage.when_settled(1)
    assert made[0]._process.wait(DEADLINE) == -signal.SIGALRM  # noqa: SLF001 - nothing else tells of its end


def test_a_stop_ends_a_child_whose_import_does_not_end(
    still: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    made: list[ChildProcess] = []

    def makes(options: ProcessOptions, addresses: list[str]) -> ChildProcess:
        made.append(ChildProcess(options, addresses))
        return made[-1]

    hanging = imported("hanging", "__import__('signal').pause()", tmp_path, monkeypatch)
    monkeypatch.setattr(children, "ChildProcess", makes)
    still.queue.send({"number": 1})
    dispatcher = begun(still, hanging)
    still.when(lambda: bool(dispatcher.presence._workload.running()))  # noqa: SLF001 - what `astyqueue workers` shows
    dispatcher.stop()
    assert made[0]._process.wait(DEADLINE) == -signal.SIGKILL  # noqa: SLF001 - nothing else tells of its end
    assert lines.of("child_died") == []


def test_a_child_that_its_parent_has_ended_before_it_is_ready_exits_without_a_traceback() -> None:
    incoming, to_child = os.pipe()
    from_child, outgoing = os.pipe()
    life, life_of_child = socket.socketpair()
    inherited = (incoming, outgoing, life_of_child.fileno())
    call = f"from astyqueue.dispatch.processes.child_main import main; main{inherited}"
    with (
        life,
        life_of_child,
        subprocess.Popen([sys.executable, "-c", call], pass_fds=inherited, stderr=subprocess.PIPE) as child,
    ):
        os.close(incoming)
        os.close(outgoing)
        parent = Channel(from_child, to_child)
        parent.send((logging.INFO, False, []))
        parent.close()
        assert child.communicate(timeout=DEADLINE)[1] == b""
    assert child.returncode == 0


class RefusedAck(Hook):
    """Refuses each ack, by an error of a class that has no name, or has one in this process only."""

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        class Refused(Exception):
            """An error."""

        if outcome == "acked":
            if delivery.body == {"asks": "an ack that the program refuses"}:
                Refused.__module__, Refused.__qualname__ = "program", "Refused"
                sys.modules["program"].__dict__["Refused"] = Refused
            message = f"no ack of attempt {delivery.attempt}"
            raise Refused(message)


def test_what_a_handler_in_a_child_asks_for_in_vain_is_why_its_attempt_failed(
    stages: Stages, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "program", ModuleType("program"))
    reasons = {
        "a retry at no moment": "BadInput: 'soon' is not a duration",
        "a snooze in no time zone": "BadInput: ",
        "a reason without a text": "ValueError: no text",
        "a retry without a text": "Retry: retry",
        "nothing, by an error without a text": "Unprintable",
        "a unique follow-up": "BadInput: a follow-up has no unique key",
        "an error in the place of a reason": "BadInput: a reason must be text, not LookupError('no such address')",
        "an ack that a hook refuses": "AstyqueueError: Refused: no ack of attempt 1",
        "an ack that the program refuses": "AstyqueueError: Refused: no ack of attempt 1",
    }
    stage = stages(hooks=[RefusedAck()], max_attempts=1)
    stage.queue.send_many([{"asks": asks} for asks in reasons])
    begun(stage, in_children.asking_in_vain)
    assert stage.when_settled(len(reasons)) == {"rejected": len(reasons)}
    told = {str(letter.body): letter.reason for letter in stage.queue.dead_letters()}
    assert [told[str({"asks": asks})][: len(reason)] for asks, reason in reasons.items()] == [*reasons.values()]
    assert lines.of("child_died") == []


def test_log_lines_of_a_child_that_do_not_fit_their_values_or_name_members_of_enums_fail_no_message(
    stage: Stage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.queue.send(1)
    dispatcher = begun(stage, in_children.logging_oddly)
    assert stage.when_settled(1) == {"acked": 1}
    dispatcher.drain(None)
    [record] = [record for record in caplog.records if record.name == "ada"]
    assert (record.getMessage(), record.levelno) == ("sold out", 35)
    assert capfd.readouterr().err.count("--- Logging error ---") == 1
