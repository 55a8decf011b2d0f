"""`astyqueue worker -p N`: starts N worker processes, starts those again that die, and passes signals on to them.

The supervisor imports no app and opens no store, so nothing that tasks do can end it. Each process is the same command
again, with an environment that makes it ignore `-p` wherever that was set.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from astyqueue.cli.errors import ExitCode
from astyqueue.cli.worker.control_pipe import DRAIN, ControlPipe
from astyqueue.clock import SystemClock
from astyqueue.dispatch.worker_log import log_event
from astyqueue.text import length_text
from astyqueue.units import SECOND, MonotonicUs

#: A process that ends within this time of its start has died at once; after this many in a row the supervisor gives up.
_AT_ONCE: Final = 10 * SECOND
_DEATHS: Final = 5
#: The pause before a process is started again, doubled after each one that died at once, up to the second figure.
_PAUSE: Final = SECOND
_LONGEST: Final = 60 * SECOND
#: Signals that end the workers: the first drains them, the second stops them, the third kills them.
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
#: Signals that are passed on.
PASSED_ON: Final = (signal.SIGUSR1, signal.SIGUSR2)
_STOP: Final = 2
#: Added to the number of the signal that ended a process, as shells do.
_BY_SIGNAL: Final = 128


class _SignalStream:
    """The signals to this process, as bytes of a pipe, so that one call waits for them and for a time."""

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(self._read_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (*_ENDS, *PASSED_ON, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None) -> bytes:
        """The signals that have come; waits for one for at most this time (None: without limit)."""
        ready, _, _ = select.select([self._read_end], [], [], seconds)
        return os.read(self._read_end, 4096) if ready else b""


class _Child:
    """One of the processes, and those that take its place when it dies."""

    def __init__(self, number: int, command: list[str]) -> None:
        self.number = number
        self.code = 0
        self.restart_at: MonotonicUs | None = None
        self.restarts_on_change = False
        self.reloads = False
        self.died_at_once = False
        self.deaths = 0
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: ControlPipe | None = None
        self._clock = SystemClock()
        self._started = self._clock.monotonic()

    def start(self) -> None:
        self.restart_at, self.restarts_on_change, self.reloads = None, False, False
        self._started = self._clock.monotonic()
        self._pipe = ControlPipe()
        # A process group of its own, so that Ctrl-C reaches it through the supervisor only.
        self._process = subprocess.Popen(  # noqa: S603 - the command that started this process
            self._command,
            env=self._pipe.environment(self.number),
            pass_fds=[self._pipe.read_end],
            process_group=0,
        )
        self._pipe.close_read_end()
        log_event(logging.INFO, "started", child=self.number, pid=self._process.pid)

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def over(self) -> bool:
        """Whether it neither runs nor is to be started again."""
        return not self.runs and self.restart_at is None and not self.restarts_on_change

    def reap(self) -> bool:
        """Whether it has just ended; `code` is its exit code then."""
        if self._process is None or self._process.poll() is None:
            return False
        returned = self._process.returncode
        self.code = _BY_SIGNAL - returned if returned < 0 else returned
        self._process = None
        if self._pipe is not None:
            self._pipe.close()
        self.died_at_once = self._clock.monotonic() - self._started < _AT_ONCE
        self.deaths = self.deaths + 1 if self.died_at_once else 1
        return True

    def request(self, stage: int, number: int) -> None:
        if self._process is not None and self._pipe is not None:
            self._pipe.request(stage, number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


class ProcessSupervisor:
    """Runs worker processes until all have ended for good. Use it in the main thread: it handles signals."""

    def __init__(self, count: int, changed: Callable[[], str | None] | None = None, poll: float = 0.5) -> None:
        """`changed` returns a source file that changed since its last call; it is asked every `poll` seconds."""
        command = [sys.executable, *sys.orig_argv[1:]]
        self._children = [_Child(number, command) for number in range(1, count + 1)]
        self._changed = changed
        self._poll = poll
        self._clock = SystemClock()
        self._stage = 0
        self._given_up: int | None = None

    def run(self) -> int:
        """The exit code: that with which it gave up, or the greatest of its processes."""
        signals = _SignalStream()
        for child in self._children:
            child.start()
        while not all(child.over for child in self._children):
            for number in signals.wait(self._wait_at_most()):
                self._on_signal(number)
            for child in self._children:
                if child.reap():
                    self._on_end(child)
            self._reload_if_changed()
            self._start_due()
        log_event(logging.INFO, "all ended", codes=",".join(str(child.code) for child in self._children))
        return self._given_up if self._given_up is not None else max(child.code for child in self._children)

    def _wait_at_most(self) -> float | None:
        moments = [child.restart_at for child in self._children if child.restart_at is not None]
        left = [max(0, moment - self._clock.monotonic()) / SECOND for moment in moments]
        polls = [self._poll] if self._changed is not None and not self._stage else []
        return min([*left, *polls], default=None)

    def _on_signal(self, number: int) -> None:
        if number in PASSED_ON:
            for child in self._children:
                child.request(0, number)
        elif number in _ENDS:
            self._end(number)

    def _end(self, number: int) -> None:
        """Go one stage further: drain, stop, kill."""
        self._stage += 1
        log_event(logging.INFO, "end", stage={1: "drain", _STOP: "stop"}.get(self._stage, "kill"))
        for child in self._children:
            child.restart_at, child.restarts_on_change = None, False
            if self._stage > _STOP:
                child.kill()
            else:
                child.request(self._stage, number)

    def _on_end(self, child: _Child) -> None:
        """Decide whether a process that ended is started again."""
        facts = {"child": child.number, "code": child.code}
        if self._stage or (child.code == ExitCode.DONE and not child.reloads):
            log_event(logging.INFO, "ended", **facts)
        elif child.reloads or child.code == ExitCode.AGAIN:
            # One with a limit below what it needs from the start would else be started without a pause.
            pause = 0 if child.reloads or not child.died_at_once else _PAUSE
            child.deaths = 0
            child.restart_at = self._clock.monotonic() + pause
        elif self._changed is not None:
            child.restarts_on_change = True
            log_event(logging.ERROR, "died", **facts, again="when a source file changes")
        elif child.code == ExitCode.BAD_INPUT:
            self._give_up(child, ExitCode.BAD_INPUT, "its options or its app are wrong: a restart cannot help")
        elif child.deaths >= _DEATHS and child.code != ExitCode.STORE_UNAVAILABLE:
            self._give_up(child, ExitCode.CHILDREN_DIED, f"{child.deaths} in a row died at once")
        else:
            pause = min(_LONGEST, _PAUSE << min(child.deaths - 1, 10))
            child.restart_at = self._clock.monotonic() + pause
            log_event(logging.ERROR, "died", **facts, again_in=length_text(pause))

    def _give_up(self, child: _Child, code: ExitCode, reason: str) -> None:
        log_event(logging.CRITICAL, "gives up", child=child.number, code=child.code, reason=reason)
        self._given_up = code
        self._end(signal.SIGTERM)

    def _reload_if_changed(self) -> None:
        """Have all processes drain and start again when a source file has changed."""
        if self._changed is None or self._stage or (file := self._changed()) is None:
            return
        log_event(logging.INFO, "reload", file=file)
        for child in self._children:
            if child.restarts_on_change:
                child.restart_at, child.restarts_on_change = self._clock.monotonic(), False
            child.reloads = child.runs
            child.request(DRAIN, signal.SIGTERM)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= now:
                child.start()
