"""How a supervisor starts its processes, and starts them again."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from astyqueue.cli.errors import ExitCode
from astyqueue.cli.worker import supervised_process, supervisor
from astyqueue.cli.worker.supervisor import ProcessSupervisor, SupervisionOptions
from astyqueue.testing import TimeMachine
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
    supervisor = ProcessSupervisor(1, SupervisionOptions(silence=3_600 * SECOND, kills=False))
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


class Deaths:
    """A supervisor of one process, which dies when a test says."""

    def __init__(self, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (supervisor, supervised_process):
            monkeypatch.setattr(module, "SystemClock", lambda: clock)
        monkeypatch.setattr(subprocess, "Popen", Ended)
        self._monkeypatch = monkeypatch
        self._clock = clock
        self._supervisor = ProcessSupervisor(1, SupervisionOptions(silence=3_600 * SECOND, kills=False))
        [self.child] = self._supervisor._children  # noqa: SLF001 - its processes are started without a real one

    def pauses(self, *lives: tuple[str, int]) -> list[int | None]:
        """Seconds from each death to the next start, None if there is none; a life has a length and an exit code."""
        return [self._pause(*life) for life in lives]

    def _pause(self, life: str, code: int) -> int | None:
        self._monkeypatch.setattr(Ended, "returncode", code)
        self.child.start()
        self._clock.advance(life)
        assert self.child.reap()
        self._supervisor._on_end(self.child)  # noqa: SLF001 - as above
        again = self.child.restart_at
        return None if again is None else (again - self._clock.monotonic()) // SECOND


@pytest.fixture
def deaths(clock: TimeMachine, monkeypatch: pytest.MonkeyPatch) -> Deaths:
    return Deaths(clock, monkeypatch)


def test_a_supervisor_gives_up_at_the_fifth_death_in_a_row_that_came_at_once(deaths: Deaths) -> None:
    late, quick = ("1h", -9), ("1s", ExitCode.FAILED)
    assert deaths.pauses(late, quick, quick, quick, quick) == [1, 1, 2, 4, 8]
    assert deaths.pauses(late, quick, quick, quick, quick, quick) == [1, 1, 2, 4, 8, None]


def test_deaths_while_the_store_is_away_make_the_pause_longer_and_end_no_service(deaths: Deaths) -> None:
    away, quick = ("1s", ExitCode.STORE_UNAVAILABLE), ("1s", ExitCode.FAILED)
    assert deaths.pauses(*[away] * 8) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert deaths.pauses(quick, quick, away, quick, quick, quick) == [60, 60, 60, 60, 60, None]


def test_a_process_that_takes_long_to_find_no_store_neither_shortens_the_pause_nor_begins_a_new_row(
    deaths: Deaths,
) -> None:
    away, quick = ("25s", ExitCode.STORE_UNAVAILABLE), ("1s", ExitCode.FAILED)
    assert deaths.pauses(*[away] * 4) == [1, 2, 4, 8]
    assert deaths.pauses(quick, quick, away, quick, quick, quick) == [16, 32, 60, 60, 60, None]


def test_a_process_that_ended_to_be_started_again_begins_a_new_row(deaths: Deaths) -> None:
    quick, again = ("1s", ExitCode.FAILED), ("1s", ExitCode.AGAIN)
    assert deaths.pauses(quick, quick, quick, quick, again, quick, quick) == [1, 2, 4, 8, 1, 1, 2]


def test_a_process_that_misses_one_of_its_reports_is_not_frozen(clock: TimeMachine, deaths: Deaths) -> None:
    """They come every second, and `--stall-after` may be no longer."""
    deaths.child.start()
    deaths.child._said = True  # noqa: SLF001 - it speaks through a pipe
    clock.advance("1200ms")
    assert deaths.child.silent(SECOND) == 0
    for _ in range(2):
        deaths.child.listen()
        clock.advance("1900ms")
    assert deaths.child.silent(SECOND) == 5 * SECOND
    assert deaths.child.silent(6 * SECOND) == 0


def test_a_process_that_was_suspended_with_its_supervisor_is_not_frozen(clock: TimeMachine, deaths: Deaths) -> None:
    def goes_on_for(seconds: int) -> None:
        for _ in range(seconds):
            clock.advance("1s")
            deaths.child.listen()

    deaths.child.start()
    deaths.child._said = True  # noqa: SLF001 - it speaks through a pipe
    goes_on_for(2)
    clock.advance("1h")
    assert deaths.child.silent(SECOND) == 0
    deaths.child.listen()
    assert deaths.child.silent(SECOND) == 0
    goes_on_for(2)
    assert deaths.child.silent(SECOND) == 5 * SECOND


def test_a_process_that_says_nothing_is_frozen_though_its_supervisor_listens_seldom(
    clock: TimeMachine, deaths: Deaths
) -> None:
    deaths.child.start()
    deaths.child._said = True  # noqa: SLF001 - it speaks through a pipe
    for _ in range(5):
        clock.advance("4s")
        deaths.child.listen()
    assert deaths.child.silent(SECOND) == 5 * SECOND
