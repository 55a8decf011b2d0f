"""One run of a worker's dispatcher, from the first signal handler to the exit code."""

from __future__ import annotations

import contextlib

from astyqueue.cli.errors import ExitCode
from astyqueue.cli.signals import Signals
from astyqueue.cli.worker.control_pipe import Supervised
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.durations import Duration
from astyqueue.errors import Closed


class WorkerRun:
    """Runs a dispatcher until its work is done, or a signal, the supervisor, or an operator's command ends it."""

    def __init__(self, dispatcher: Dispatcher, drain_timeout: Duration, supervised: Supervised | None) -> None:
        """Handle signals from now on."""
        self._dispatcher = dispatcher
        self._drain_timeout = drain_timeout
        self._supervised = supervised
        self._ended = False
        dispatcher.presence.on_drain = self.end
        self._signals = Signals(dispatcher, drain_timeout, supervised)
        self._signals.catch()

    def end(self) -> None:
        """Drain, because there is nothing left to do, or because an operator wants it."""
        self._ended = True
        self._dispatcher.drain(self._drain_timeout, wait=False)

    def until_ended(self) -> int | None:
        """Run; returns a code to exit with at once, None to end as usual."""
        with contextlib.suppress(Closed):  # a signal or --burst drained the dispatcher before it started
            self._dispatcher.run()
        if self._signals.forced is not None:
            return self._signals.forced
        limited = not self._ended and not self._signals.received
        return ExitCode.AGAIN if limited and self._supervised is not None else None
