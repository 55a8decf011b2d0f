"""The signals to a worker process, and the requests of its supervisor, which stand for signals."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType
from typing import Final

from astyqueue.cli.errors import ExitCode
from astyqueue.cli.streams import exit_at_once
from astyqueue.cli.worker.process_pipes import Stage, Supervised
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.worker_log import log_event
from astyqueue.durations import Duration
from astyqueue.text import reason_of

#: Those that end a worker or a supervisor.
ENDS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_OTHERS: Final = (signal.SIGUSR1, signal.SIGUSR2)
#: Added to the number of the signal that ended a process, to give its exit code, as shells do.
BY_SIGNAL: Final = 128


def ends_handled() -> list[signal.Signals]:
    """The signals that end this process; without HUP if it was started to outlive its terminal, as `nohup` does."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in ENDS if number is not signal.SIGHUP or not ignored]


class Signals:
    """The signals to a worker, and the requests of its supervisor, which stand for signals.

    The first TERM, INT or HUP drains the worker, the second releases running messages and exits, a third kills the
    process. A signal that comes from the supervisor too counts once. USR1 logs the stacks of all threads, USR2 makes
    the worker quiet. A process that a task forked ends at the first TERM, INT or HUP.
    """

    def __init__(self, dispatcher: Dispatcher, drain_timeout: Duration, supervised: Supervised | None = None) -> None:
        """Install nothing yet: `catch()` does."""
        self._dispatcher = dispatcher
        self._drain_timeout = drain_timeout
        self._supervised = supervised
        self._direct = self._requested = 0
        self._last: int = signal.SIGTERM
        self._exits = False
        self._process = os.getpid()

    def catch(self) -> None:
        """Install the handlers."""
        for number in (*ends_handled(), *_OTHERS):
            signal.signal(number, self._on_signal)
        if self._supervised is not None:
            self._supervised.watch(self._on_request, drain_on=signal.SIGTERM)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that a task forked has nothing to drain
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif number in _OTHERS:
            self._act(number)
        else:
            if self._direct >= Stage.STOP:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self._direct += 1
            self._end(number)

    def _on_request(self, stage: Stage, number: int) -> None:
        """Do what the supervisor requests, in the thread that reads its pipe."""
        if stage is Stage.NONE:
            self._act(number)
            return
        self._requested = max(stage, self._requested)
        self._end(number)

    def _end(self, number: int) -> None:
        """Drain, or stop, or exit; doing the former two again changes nothing."""
        self._last = number
        if (code := self._forced) is None:
            self._dispatcher.drain(self._drain_timeout, wait=False)
        elif self._exits:
            exit_at_once(code)
        else:
            self._dispatcher.stop(wait=False)

    def _act(self, number: int) -> None:
        """Handle a signal that ends nothing, in a thread: a signal may interrupt any code."""
        presence = self._dispatcher.presence
        act = presence.log_stacks if number == signal.SIGUSR1 else presence.quiet
        try:
            threading.Thread(target=act, name="astyqueue:signal", daemon=True).start()
        except RuntimeError as error:  # it would end the worker, or the thread that reads the pipe
            name = signal.Signals(number).name
            log_event(logging.ERROR, "signal_ignored", signal=name, error=reason_of(error))

    def exit_when_forced(self) -> None:
        """Exit at the second signal, also if it came before: the dispatcher has ended, so there is nothing to stop."""
        self._exits = True
        if (code := self._forced) is not None:
            exit_at_once(code)

    @property
    def received(self) -> bool:
        """Whether a signal or a request has ended the worker."""
        return bool(self._direct or self._requested)

    @property
    def _forced(self) -> ExitCode | None:
        """The exit code of a worker that a second signal stopped; None if there was none."""
        return ExitCode(BY_SIGNAL + self._last) if max(self._direct, self._requested) >= Stage.STOP else None
