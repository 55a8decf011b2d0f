"""What a process says on stderr while it starts."""

from __future__ import annotations

import subprocess
import threading
from typing import Final

import pytest

from astyqueue.spark.session import kept_back

_PROCESS: Final = ["sh", "-c", "echo early >&2; printf 'no end' >&2; echo ready; read word; echo $word >&2"]


class NotStarted(Exception):
    """It did not start."""


def started(stderr: int) -> subprocess.Popen[str]:
    """A process that has said all that it says while it starts."""
    process = subprocess.Popen(_PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def fail_to_start(processes: list[subprocess.Popen[str]]) -> None:
    with kept_back() as stderr:
        processes.append(started(stderr))
        raise NotStarted


def finish(process: subprocess.Popen[str]) -> None:
    """Let it say one thing more, which has been passed on when this returns."""
    process.communicate("later\n")
    for thread in threading.enumerate():
        if thread.name == "astyqueue:stderr":
            thread.join()


def test_what_is_said_until_it_has_started_is_dropped_and_all_that_comes_later_is_shown(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with kept_back() as stderr:
        process = started(stderr)
    finish(process)
    assert capfd.readouterr().err == "later\n"


def test_all_of_it_is_shown_if_it_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    processes: list[subprocess.Popen[str]] = []
    with pytest.raises(NotStarted):
        fail_to_start(processes)
    assert capfd.readouterr().err == "early\nno end"
    finish(*processes)
    assert capfd.readouterr().err == "later\n"
