"""Processes that handlers in children fork: they outlive their handler, and have no part in what its parent hears."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from astyqueue.dispatch.processes.child_process import ChildProcess, ProcessOptions
from tests.unit.dispatch import in_children
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Stage
from tests.unit.dispatch.test_child_failures import begun, outcomes_of
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]


def pipe_at(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_the_death_of_a_child_is_noticed_though_a_process_that_it_forked_lives_on(
    stages: Stages, tmp_path: Path, lines: Lines
) -> None:
    stage, until = stages(max_attempts=1), pipe_at(tmp_path / "until")
    lives = os.open(until, os.O_RDWR)
    try:
        begun(stage, in_children.dying_beside_a_fork)
        stage.queue.send({"number": 1, "until": str(until)})
        stage.when_settled(1)
    finally:
        os.close(lives)
    assert outcomes_of(stage, 1) == ["rejected"]
    assert "killed by SIGKILL" in lines.first("child_died").getMessage()


def test_a_process_that_a_handler_forked_settles_no_later_message(stages: Stages, tmp_path: Path, lines: Lines) -> None:
    stage = stages(max_attempts=1)
    pipes = {name: str(pipe_at(tmp_path / name)) for name in ("go", "said")}
    begun(stage, in_children.leaving_a_fork_behind)
    stage.queue.send({"number": 1, **pipes})
    stage.when_settled(1)
    stage.queue.send({"number": 2, **pipes})
    stage.when_settled(2)
    assert [outcomes_of(stage, 1), outcomes_of(stage, 2)] == [["acked"], ["rejected"]]
    assert "the process that handles this delivery is another" in lines.first("dead").getMessage()


def test_log_lines_of_a_process_that_a_handler_forked_go_to_stderr(
    stage: Stage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    dispatcher = begun(stage, in_children.logging_in_a_fork)
    stage.queue.send({"number": 1})
    stage.when_settled(1)
    dispatcher.drain(None)
    assert [record.getMessage() for record in caplog.records if record.name == "shop"] == ["from the child"]
    assert "from the fork" in capfd.readouterr().err


def test_a_process_that_a_handler_forked_can_be_terminated(stage: Stage, tmp_path: Path) -> None:
    begun(stage, in_children.terminating_a_fork)
    stage.queue.send({"number": 1, "notes": str(tmp_path / "notes")})
    stage.when_settled(1)
    assert [words[2:] for words in in_children.noted(tmp_path / "notes")] == [[str(-signal.SIGTERM)]]


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_process_forked_from_the_parent_keeps_no_child_alive() -> None:
    """A child ends when the ends of its parent are closed, and a fork has a copy of each."""
    child = ChildProcess(ProcessOptions(1), [])
    ends = (child._parent_end.fileno(), child._channel._incoming, child._channel._outgoing)  # noqa: SLF001 - nothing else has them
    assert all(map(is_open, ends))
    if (pid := os.fork()) == 0:
        os._exit(sum(map(is_open, ends)))
    assert os.waitpid(pid, 0)[1] == 0
    assert child.wait_until_ready()
    assert child.end() == "it exited with 0"
