"""Runs handlers for the messages of queues, in threads."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from itertools import chain
from types import TracebackType
from typing import Final, Self

from astyqueue.dispatch.backlog_size import MessageQuota
from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.presence.worker_presence import WorkerPresence, Workload
from astyqueue.dispatch.step_loop import StepLoop, StepTask
from astyqueue.dispatch.subscription import Subscription
from astyqueue.dispatch.supervisor import Supervisor
from astyqueue.dispatch.worker_log import log_event
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.store import Store

#: The default time that running handlers get to finish.
DRAINED_WITHIN: Final = "30s"
#: The most tasks named in the log line `ready`.
_NAMED: Final = 20
#: The most threads that claim: more would only wait for the interpreter lock, or for the lock of an SQLite file.
_CLAIM_THREADS: Final = 4


class Dispatcher:
    """Claims messages, runs their handlers in threads, and settles their outcomes in batches.

    All methods may be called from any thread and more than once. Called by one of its own handlers, `drain` and `stop`
    return immediately, and the work finishes after that handler has ended. A running dispatcher does not keep the
    interpreter from exiting: at exit it is stopped, which records every outcome that was handed in.
    """

    def __init__(self, subscriptions: tuple[Subscription, ...], quota: MessageQuota, max_stalled: int | None) -> None:
        """Use `Dispatcher.builder()`."""
        self._subscriptions = subscriptions
        self._supervisor = Supervisor(subscriptions, subscriptions[0].queue.clock, max_stalled, self._on_end)
        quota.on_end = self._on_quota
        self.presence = WorkerPresence(self._workload(quota), subscriptions[0].queue.clock)
        self._supervisor.on_left = self.presence.end
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._pid = os.getpid()
        self._broken_by: Exception | None = None

    def __repr__(self) -> str:
        """Its queues and their numbers of handler threads, and whether it runs."""
        queues = ", ".join(f"{one.queue.name}:{one.slots}" for one in self._subscriptions)
        ended = self._supervisor.finished.is_set()
        return f"<Dispatcher of {queues}, {'ended' if ended else 'running' if self._threads else 'not started'}>"

    @staticmethod
    def builder() -> DispatcherBuilder[Dispatcher]:
        """Start a builder: give it queues and handlers, then call `build()`."""
        return DispatcherBuilder(Dispatcher)

    def _workload(self, quota: MessageQuota) -> Workload:
        """What the presence reports on."""

        def hold(held: bool) -> None:  # noqa: FBT001 - the presence calls it so
            quota.held = held
            for one in self._subscriptions:
                one.queue.core.claimer.wake()

        return Workload(
            queues=lambda: [one.queue for one in self._subscriptions],
            slots=lambda: sum(one.slots for one in self._subscriptions),
            running=lambda: [
                (one.queue.name, each)
                for one in self._subscriptions
                for each in (*one.executions.under_way(), *one.executions.stuck)
            ],
            held=lambda: sum(one.executions.given_up for one in self._subscriptions),
            hold=hold,
            drain=lambda: self.drain(wait=False),
        )

    def start(self) -> Self:
        """Begin, in threads of its own. Closed if it was drained before: build another one."""
        self._check_process()
        with self._lock:
            if self._supervisor.finished.is_set():
                message = "this dispatcher was stopped before: build another one"
                raise Closed(message)
            if not self._threads:
                self._begin()
        return self

    def _begin(self) -> None:
        """Start every thread."""
        supervisor = threading.Thread(target=self._supervisor.run, name="astyqueue:steward", daemon=True)
        supervisor.start()
        self._threads.append(supervisor)
        first = self._subscriptions[0].queue
        log_event(
            logging.INFO,
            "ready",
            worker=",".join(one.queue.core.process.name for one in self._subscriptions),
            queues=",".join(f"{one.queue.name}:{one.slots}" for one in self._subscriptions),
            threads=sum(one.slots for one in self._subscriptions),
            tasks=_some(sorted(set().union(*(one.tasks for one in self._subscriptions)))),
            store=_named(first.store),
        )
        self._start_claims([subscription.start(self._on_end) for subscription in self._subscriptions])
        self._threads.append(self.presence.start())
        atexit.register(self._at_exit)

    def _start_claims(self, tasks: list[StepTask]) -> None:
        """Start the threads that claim; each serves the same queues all the time."""
        clock, threads = self._subscriptions[0].queue.clock, min(len(tasks), _CLAIM_THREADS)
        for number in range(threads):
            loop = StepLoop(clock, tasks[number::threads])
            thread = threading.Thread(target=loop.run, name=f"astyqueue:claim:{number + 1}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def run(self) -> None:
        """Begin, and block until another thread or a handler drains or stops it. Ctrl-C stops it and is re-raised.

        A permanent error, such as threads that die repeatedly, also stops it and is raised here.
        """
        self.start()
        try:
            self._supervisor.finished.wait()
        except BaseException:
            self.stop()
            raise
        if self._broken_by is not None:
            raise self._broken_by

    def _on_end(self, error: Exception | None) -> None:
        """Stop: a queue can no longer be served, or too many handlers are stuck."""
        self._broken_by = self._broken_by or error
        self._supervisor.drain(0)

    def _on_quota(self) -> None:
        """Drain: the last message of the quota has ended."""
        self._supervisor.drain(as_microseconds(DRAINED_WITHIN))

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All its threads: one that supervises, one that reports, up to four that claim, several for each queue."""
        return (*self._threads, *chain.from_iterable(one.threads for one in self._subscriptions))

    @property
    def running(self) -> bool:
        """Whether it was started and has not finished."""
        return bool(self._threads) and not self._supervisor.finished.is_set()

    def drain(self, timeout: Duration | None = DRAINED_WITHIN, *, wait: bool = True) -> None:
        """Stop claiming, let running handlers finish, and return when all outcomes are recorded.

        Deliveries that wait for a handler are released at once, and those still running after `timeout` (None: no
        limit) at that time; neither costs an attempt, and later results of such handlers are ignored. A second call can
        only shorten the timeout. With `wait=False` the drain is only requested, as a signal handler should do.
        """
        self._check_process()
        microseconds = None if timeout is None else as_microseconds(timeout)
        with self._lock:
            if not self._threads:
                self._supervisor.finished.set()
        self.presence.drains()
        self._supervisor.drain(microseconds)
        if wait and threading.current_thread() not in self.threads:
            self._supervisor.finished.wait()
            atexit.unregister(self._at_exit)

    def stop(self, *, wait: bool = True) -> None:
        """Drain without waiting for running handlers: release their messages and record every outcome handed in."""
        self.drain(0, wait=wait)

    def __enter__(self) -> Self:
        """Begin; drain on leaving the block, or stop if it raised."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain, or stop after an error."""
        self.drain(DRAINED_WITHIN if kind is None else 0)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.stop()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            message = (
                f"this dispatcher belongs to process {self._pid}, of which this process ({os.getpid()}) is a fork; "
                "threads do not survive a fork: build a new dispatcher here"
            )
            raise Closed(message)


def _some(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - _NAMED
    return ",".join([*names[:_NAMED], f"and {more} more"] if more > 0 else names)


def _named(store: Store) -> str:
    """The text of a store if its class defines one, else the name of its class."""
    return type(store).__name__ if type(store).__str__ is object.__str__ else str(store)
