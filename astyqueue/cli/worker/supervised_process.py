"""One of the processes of `astyqueue worker -p`, as its supervisor sees it."""

from __future__ import annotations

import logging
import subprocess
from typing import Final

from astyqueue.cli.errors import ExitCode
from astyqueue.cli.worker.process_pipes import ProcessPipes, Stage, Status
from astyqueue.cli.worker.signals import BY_SIGNAL
from astyqueue.clock import SystemClock
from astyqueue.dispatch.worker_log import log_event
from astyqueue.units import SECOND, MonotonicUs

#: A process that ends within this time of its start has died at once.
_AT_ONCE: Final = 10 * SECOND
#: A process that has just been started may say nothing for this time, while Python starts.
_STARTS_WITHIN: Final = 60 * SECOND
#: One that runs writes every second; on a busy machine a report may come later than that.
_REPORTS_WITHIN: Final = 5 * SECOND
#: The supervisor listens every second, unless it is itself suspended, or gets no processor.
_LISTENS_WITHIN: Final = 3 * SECOND


class SupervisedProcess:
    """One of the processes, and those that take its place when it dies."""

    def __init__(self, number: int, command: list[str]) -> None:
        """Nothing is started yet."""
        self.number = number
        self.code = 0
        self.restart_at: MonotonicUs | None = None
        self.restarts_on_change = False
        self.reloads = False
        self.died_at_once = False
        self.reset_deaths()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: ProcessPipes | None = None
        self._clock = SystemClock()
        self._started = self.heard = self._listened = self._clock.monotonic()
        self.status = Status(0)
        self._said = False

    def start(self) -> None:
        """Start the process, for the first time or again. OSError, with nothing left open, if that fails."""
        self.restart_at, self.restarts_on_change, self.reloads = None, False, False
        self._started = self.heard = self._listened = self._clock.monotonic()
        self.status, self._said = Status.LIVE, False
        pipe = ProcessPipes()
        # A process group of its own, so that Ctrl-C reaches it through the supervisor only.
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command that started this process
                self._command, env=pipe.environment(self.number), pass_fds=pipe.of_process, process_group=0
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            pipe.passed_on()
        self._pipe = pipe
        log_event(logging.INFO, "started", child=self.number, pid=self._process.pid)

    @property
    def runs(self) -> bool:
        """Whether there is a process now."""
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
        self.code = BY_SIGNAL - returned if returned < 0 else returned
        self._process, self.status = None, Status(0)
        if self._pipe is not None:
            self._pipe.close()
        self.died_at_once = self._clock.monotonic() - self._started < _AT_ONCE
        if self.code == ExitCode.STORE_UNAVAILABLE:
            self.short_lives += 1
        elif self.died_at_once:
            self.short_lives += 1
            self.deaths += 1
        else:
            self.reset_deaths()
        return True

    def reset_deaths(self) -> None:
        """Count anew how many processes, one after the other, died at once, or ended because they found no store.

        For the latter the pause gets longer, but the supervisor does not give up: they work once the store does.
        """
        self.short_lives = self.deaths = 0

    def listen(self) -> None:
        """Read what the process says of itself."""
        now = self._clock.monotonic()
        self.heard += self._unheard(now)
        self._listened = now
        if self._process is not None and self._pipe is not None and (said := self._pipe.status()) is not None:
            self.status, self._said, self.heard = said, True, self._listened

    def silent(self, patience: int) -> int:
        """For how long it has said nothing, if that is `patience` or longer; else zero.

        With less patience, one that starts is given a minute, and one that runs five seconds.
        """
        now = self._clock.monotonic()
        silent = now - self.heard - self._unheard(now)
        return silent if silent >= max(patience, _REPORTS_WITHIN if self._said else _STARTS_WITHIN) else 0

    def _unheard(self, now: MonotonicUs) -> int:
        """How long the supervisor has not listened that does not count: a whole container may have been suspended."""
        gap = now - self._listened
        return gap - SECOND if gap > _LISTENS_WITHIN else 0

    def request(self, stage: Stage, number: int) -> None:
        """Have it drain or stop, or with NONE act on a signal."""
        if self._process is not None and self._pipe is not None:
            self._pipe.request(stage, number)

    def kill(self) -> None:
        """Kill it with SIGKILL: its leases expire."""
        if self._process is not None:
            self._process.kill()
