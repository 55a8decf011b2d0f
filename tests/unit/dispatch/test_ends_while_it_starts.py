"""A dispatcher that ends while its start is under way, as when the first of its queues is gone: nothing goes on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.processes import child_process, children
from astyqueue.dispatch.processes.child_process import ChildProcess, ProcessOptions
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch import in_children
from tests.unit.dispatch.stage import DEADLINE, Stage


class EndsBefore:
    """Ends a dispatcher, as an error of a queue does, before it goes on with this part of its start."""

    def __init__(self, dispatcher: Dispatcher, part: object, monkeypatch: pytest.MonkeyPatch) -> None:
        self._dispatcher = dispatcher
        self._start = part.start  # type: ignore[attr-defined]  # it has one
        self._finished = threading.Event()
        dispatcher.when_finished(self._finished.set)
        monkeypatch.setattr(part, "start", self._starts)

    def _starts(self) -> None:
        self._dispatcher._on_end(None)  # noqa: SLF001 - as a claim thread does
        assert self._finished.wait(DEADLINE)
        self._start()


def test_no_thread_claims_for_a_dispatcher_that_has_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = Dispatcher.builder().queue(stage.queue).handler(print).build()
    EndsBefore(dispatcher, dispatcher._served, monkeypatch)  # noqa: SLF001 - what starts the claims
    stage.begin(dispatcher)
    for thread in dispatcher.threads:
        thread.join(DEADLINE)
    assert [thread.name for thread in dispatcher.threads if thread.is_alive()] == []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ChildProcess]:
    """The children that were started."""
    made: list[ChildProcess] = []

    def makes(options: ProcessOptions, addresses: list[str]) -> ChildProcess:
        made.append(ChildProcess(options, addresses))
        return made[-1]

    monkeypatch.setattr(children, "ChildProcess", makes)
    return made


def test_no_child_runs_for_a_dispatcher_that_has_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, made: list[ChildProcess]
) -> None:
    builder = Dispatcher.builder().queue(stage.queue).handler(in_children.doing_nothing, kind="process")
    dispatcher = builder.processes(2).build()
    EndsBefore(dispatcher, dispatcher._plan.pools, monkeypatch)  # noqa: SLF001 - what starts the children
    stage.begin(dispatcher)
    assert [child._process.poll() is None for child in made] == []  # noqa: SLF001 - nothing else tells of its end


def test_a_child_that_started_while_its_dispatcher_ended_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ChildProcess] = []

    def makes(options: ProcessOptions, addresses: list[str]) -> ChildProcess:
        made.append(ChildProcess(options, addresses))
        pool.close()
        return made[-1]

    monkeypatch.setattr(children, "ChildProcess", makes)
    pool = children.ProcessChildren(SystemClock(), ProcessOptions(2))
    pool.expect("tests.unit.dispatch.in_children:doing_nothing")
    pool.start()
    assert [child._process.poll() is None for child in made] == [False]  # noqa: SLF001 - nothing else tells of its end


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Idle children get more time to exit than a test takes."""
    monkeypatch.setattr(child_process, "_ENDED_WITHIN", DEADLINE)
    begun = SystemClock().monotonic()
    yield
    assert SystemClock().monotonic() - begun < DEADLINE * SECOND


@pytest.mark.usefixtures("patient")
def test_children_that_are_still_starting_keep_no_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[ChildProcess]
) -> None:
    (tmp_path / "imported_for_ever.py").write_text("import signal\nsignal.pause()")
    monkeypatch.syspath_prepend(tmp_path)
    pool = children.ProcessChildren(SystemClock(), ProcessOptions(2))
    pool.expect("imported_for_ever:handle")
    pool.start()
    pool.close()
    assert [child._process.poll() for child in made] == [-signal.SIGKILL] * 2  # noqa: SLF001 - nothing else tells


@pytest.mark.usefixtures("patient")
def test_idle_children_that_have_started_exit_by_themselves(made: list[ChildProcess]) -> None:
    pool = children.ProcessChildren(SystemClock(), ProcessOptions(2))
    pool.expect("tests.unit.dispatch.in_children:doing_nothing")
    pool.start()
    for child in made:
        assert select.select([child._channel._incoming], [], [], DEADLINE)[0]  # noqa: SLF001 - as it is ready
    pool.close()
    assert [child._process.poll() for child in made] == [0, 0]  # noqa: SLF001 - nothing else tells of its end


def test_children_that_do_not_exit_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch, made: list[ChildProcess], clock: TimeMachine
) -> None:
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None:
            return real(process)
        clock.advance(timeout)
        raise subprocess.TimeoutExpired(process.args, timeout)

    pool = children.ProcessChildren(SystemClock(), ProcessOptions(3))
    pool.expect("tests.unit.dispatch.in_children:doing_nothing")
    pool.start()
    for child in made:
        assert child.wait_until_ready()
        os.killpg(child.pid, signal.SIGSTOP)
    monkeypatch.setattr(child_process, "_CLOCK", clock)
    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    begun = clock.monotonic()
    pool.close()
    assert clock.monotonic() - begun == 2 * SECOND
    assert [child._process.poll() for child in made] == [-signal.SIGKILL] * 3  # noqa: SLF001 - nothing else tells
