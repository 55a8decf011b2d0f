"""One run of a worker's dispatcher: what watches it, and the code that the process exits with."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from astyqueue.cli.errors import ExitCode
from astyqueue.cli.streams import exit_at_once
from astyqueue.cli.worker.health_server import HealthServer, health_of, with_backlog
from astyqueue.cli.worker.process_pipes import Status, Supervised
from astyqueue.cli.worker.signals import Signals
from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.presence.stall_watch import Stall
from astyqueue.dispatch.presence.worker_presence import WorkerPresence
from astyqueue.dispatch.processes.child_main import resident_bytes
from astyqueue.dispatch.worker_log import log_event
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: The time that a worker which has stalled gets to release its messages.
_STOPPED_WITHIN: Final = 5 * SECOND
#: The pause between two looks at the memory.
_MEMORY_EVERY: Final = 2 * SECOND
#: The pause between two looks whether the worker has begun.
_BEGUN_EVERY: Final = SECOND // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Watches:
    """What watches a run, as its options say: None where an option was not given; `max_rss` is in bytes."""

    heartbeat: Duration
    stall_after: Duration
    on_stall: str
    max_rss: int | None
    health: tuple[str, int] | None


class MemoryWatch:
    """Calls `end` once when this process has more resident memory than a limit: `--max-rss`."""

    def __init__(self, limit: int, end: Callable[[], None], *, begun: Callable[[], bool]) -> None:
        """`limit` is in bytes. Nothing is looked at before `begun` returns True: `end` is for a worker that runs."""
        self._limit = limit
        self._end = end
        self._begun = begun

    def start(self) -> None:
        """Look every two seconds, in a new thread."""
        threading.Thread(target=self._run, name="astyqueue:memory", daemon=True).start()

    def _run(self) -> None:
        clock = SystemClock()
        pause = Wakeup(clock)
        while not self._begun():
            pause.wait(clock.monotonic() + _BEGUN_EVERY)
        while (size := resident_bytes()) <= self._limit:
            pause.wait(clock.monotonic() + _MEMORY_EVERY)
        log_event(logging.WARNING, "max_rss_exceeded", resident_bytes=size, limit_bytes=self._limit)
        self._end()


class WorkerRun:
    """Runs a dispatcher until its work is done, or a signal, the supervisor, or an operator's command ends it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        drain_timeout: Duration,
        supervised: Supervised | None,
        watches: Watches,
        *,
        spool: Path | None,
    ) -> None:
        """Watch, and handle signals, from now on. `spool` is the folder that its tasks send into."""
        self._dispatcher = dispatcher
        self._drain_timeout = drain_timeout
        self._supervised = supervised
        self._spool = spool
        self._ended = self._stalled = False
        self._watch(watches)
        self._signals = Signals(dispatcher, drain_timeout, supervised)
        self._signals.catch()

    def _watch(self, watches: Watches) -> None:
        presence = self._dispatcher.presence
        presence.every = as_microseconds(watches.heartbeat)
        presence.watch.after = as_microseconds(watches.stall_after)
        presence.on_drain = self.end
        if watches.on_stall == "exit":
            presence.on_stall = self._exit_stalled
        if watches.max_rss is not None:
            MemoryWatch(watches.max_rss, self._drain, begun=lambda: self._dispatcher.running).start()
        if self._supervised is not None:  # its supervisor answers for all processes
            self._supervised.status = lambda: status_of(presence)
        elif watches.health is not None:
            HealthServer(watches.health, lambda: with_backlog(health_of(presence), self._spool)).start()

    def _drain(self) -> None:
        self._dispatcher.drain(self._drain_timeout, wait=False)

    def end(self) -> None:
        """Drain, because there is nothing left to do, or because an operator wants it."""
        self._ended = True
        self._drain()

    def _exit_stalled(self, _: Stall) -> None:
        """Stop, and exit even if the threads that would have to stop hang."""
        self._stalled = True
        self._dispatcher.stop(wait=False)
        threading.Thread(target=_exit_later, name="astyqueue:stall", daemon=True).start()

    def until_ended(self) -> int | None:
        """Run; returns AGAIN to be started again, None to end as usual, or DONE.

        With DONE too it ends as usual, but threads may run on for handlers that were given up: they are not waited for.
        After a second signal or a stall it exits here: what is in a spool is on the disk, so nothing waits for that.
        """
        gc.collect()
        gc.freeze()  # full collections skip what stays until the end: 1 000 queues are half a million objects
        with contextlib.suppress(Closed):  # a signal drained the dispatcher before it started
            self._dispatcher.run()
        if self._stalled:
            exit_at_once(ExitCode.STALLED)
        self._signals.exit_when_forced()
        if self._supervised is not None and not self._ended and not self._signals.received:
            return ExitCode.AGAIN  # a limit ended it
        return ExitCode.DONE if self._dispatcher.abandoned else None


def status_of(presence: WorkerPresence) -> Status:
    """What a process says of itself to its supervisor."""
    return (Status.LIVE if presence.live else Status(0)) | (Status.READY if presence.ready else Status(0))


def _exit_later() -> None:
    """Exit when the time to stop is over."""
    clock = SystemClock()
    Wakeup(clock).wait(clock.monotonic() + _STOPPED_WITHIN)
    exit_at_once(ExitCode.STALLED)
