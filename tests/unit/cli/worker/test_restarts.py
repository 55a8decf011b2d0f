"""How a supervisor starts its processes, and starts them again."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from astyqueue.cli.worker.supervisor import ProcessSupervisor, SupervisedBy
from astyqueue.units import BEGINNING, SECOND


class Ended:
    """A process that a signal has ended."""

    pid = 1
    returncode = -9

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def poll(self) -> int:
        return self.returncode


def no_fork(*_: object, **__: object) -> None:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_a_process_that_cannot_be_started_again_now_is_tried_again_and_leaves_no_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = ProcessSupervisor(1, SupervisedBy(silence=3_600 * SECOND, kills=False))
    [child] = supervisor._children  # noqa: SLF001 - its processes are started without a real one
    monkeypatch.setattr(subprocess, "Popen", Ended)
    child.start()
    assert child.reap()
    supervisor._on_end(child)  # noqa: SLF001 - as above
    child.restart_at = BEGINNING
    before = {*Path("/dev/fd").iterdir()}
    monkeypatch.setattr(subprocess, "Popen", no_fork)
    supervisor._start_due()  # noqa: SLF001 - as above
    assert (child.runs, child.over) == (False, False)
    assert child.restart_at is not None
    assert child.restart_at > BEGINNING
    assert {*Path("/dev/fd").iterdir()} <= before
    assert any(line.startswith("not_started child=1") for line in caplog.messages)
    monkeypatch.setattr(subprocess, "Popen", Ended)
    child.restart_at = BEGINNING
    supervisor._start_due()  # noqa: SLF001 - as above
    assert child.reap()
