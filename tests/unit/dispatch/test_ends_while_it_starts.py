"""A dispatcher that ends while its start is under way, as when the first of its queues is gone: nothing goes on."""

from __future__ import annotations

import threading

import pytest

from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.processes import children
from astyqueue.dispatch.processes.child_process import ChildProcess, ProcessOptions
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


def test_no_child_runs_for_a_dispatcher_that_has_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ChildProcess] = []

    def makes(options: ProcessOptions, addresses: list[str]) -> ChildProcess:
        made.append(ChildProcess(options, addresses))
        return made[-1]

    monkeypatch.setattr(children, "ChildProcess", makes)
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
