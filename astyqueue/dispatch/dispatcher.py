"""Runs handlers for the messages of queues: in threads, on an event loop, in child processes."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self

from astyqueue.dispatch.builder import DispatcherBuilder, DispatcherPlan, HandlerOptions, queue_options
from astyqueue.dispatch.handler_monitor import HandlerMonitor
from astyqueue.dispatch.handlers.handler import AsyncCall, BatchCall, Call, Factory
from astyqueue.dispatch.presence.worker_presence import WorkerPresence
from astyqueue.dispatch.served_queues import ServedQueues
from astyqueue.dispatch.subscription import Subscription
from astyqueue.dispatch.worker_log import log_event, some, store_text
from astyqueue.dispatch.workload import DispatcherWorkload
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.queue.queue import MessageQueue

#: The default time that running handlers get to finish.
DRAINED_WITHIN: Final = "30s"
#: The main thread wakes each second, because Python handles signals there, and a signal does not wake it if the system
#: gave it to another thread, or just before the main thread began to wait.
_SIGNALS_HANDLED_WITHIN: Final = 1.0


class Dispatcher:
    """Claims messages, runs their handlers, each in what its kind needs, and settles their outcomes in batches.

    All methods may be called from any thread and more than once. Called by one of its own handlers, `drain` and `stop`
    return immediately, and the work finishes after that handler has ended. A running dispatcher does not keep the
    interpreter from exiting: at exit it is stopped, which records every outcome that was handed in.
    """

    def __init__(self, plan: DispatcherPlan) -> None:
        """Use `Dispatcher.builder()`."""
        self._plan = plan
        self._monitor = HandlerMonitor(plan.pools, plan.clock, plan.max_stuck, self._on_end)
        plan.quota.on_end = self._on_quota
        workload = DispatcherWorkload(plan, self._monitor, partial(self.drain, wait=False))
        self.presence = WorkerPresence(workload, plan.clock)
        self._monitor.on_left = self._on_left
        self._monitor.on_finished = self._finish
        self._when_finished: list[Callable[[], None]] = []
        self._finish_lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._threads: list[threading.Thread] = []
        #: Whether the monitor was started or is about to be: `drain` then leaves the end to it. Set first, as a signal
        #: handler may drain in between.
        self._begun = False
        self._pid = os.getpid()
        #: The permanent error that ended it, if one did.
        self.broken_by: Exception | None = None
        self._served = ServedQueues(plan, self._monitor, self._start_thread, self._on_end)
        self._lock = self._served.lock

    def __repr__(self) -> str:
        """Its queues and their weights, its number of handler threads, and whether it runs."""
        ended = self._monitor.finished.is_set()
        state = "ended" if ended else "running" if self._begun else "not started"
        return f"<Dispatcher of {self._served} with {self._plan.pools.size} threads, {state}>"

    @property
    def _subscriptions(self) -> tuple[Subscription, ...]:
        return self._monitor.subscriptions

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it serves now."""
        return [one.queue for one in self._subscriptions]

    @staticmethod
    def builder() -> DispatcherBuilder[Dispatcher]:
        """Start a builder: give it queues and handlers, then call `build()`."""
        return DispatcherBuilder(Dispatcher)

    def start(self) -> Self:
        """Begin, in threads of its own. Closed if it was drained before: build another one."""
        self._check_process()
        with self._lock:
            begun, self._begun = self._begun, True
            if self._monitor.finished.is_set():
                message = "this dispatcher was stopped before: build another one"
                raise Closed(message)
            if not begun:
                self._begin()
        return self

    def _begin(self) -> None:
        """Start every thread; if one of them cannot be started, the others end."""
        try:
            self._start_thread(self._monitor.run, "monitor")
        except BaseException:
            self._begun = False
            raise
        try:
            self._begin_work()
        except BaseException:
            self._end_within(0)
            raise

    def _begin_work(self) -> None:
        subscriptions = self._subscriptions
        log_event(
            logging.INFO,
            "ready",
            worker=some(one.queue.core.process.name for one in subscriptions),
            queues=str(self._served),
            threads=self._plan.pools.size,
            tasks=some(sorted(set().union(*(one.tasks for one in subscriptions)))),
            store=store_text(subscriptions[0].queue.store) if subscriptions else None,
        )
        self._served.start()
        self._plan.pools.start()
        self._served.look()
        self._threads.append(self.presence.start())
        atexit.register(self._at_exit)

    def _start_thread(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=f"astyqueue:{name}", daemon=True)
        thread.start()
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def add_queue(
        self,
        queue: MessageQueue,
        call: Call | AsyncCall | BatchCall | None = None,
        *,
        task: str | None = None,
        kind: str | None = None,
        batch: tuple[int, Duration] | None = None,
        timeout: Duration | None = None,
        max_attempts: int | None = None,
        factory: Factory | None = None,
        tasks: Iterable[str] = (),
        weight: int = 1,
        threads: int | None = None,
        backlog: int | None = None,
        limit: int | None = None,
    ) -> None:
        """Serve one more queue with this handler, also while it runs. Closed once it was drained.

        The options are those of the builder's `queue`, `handler` and `handlers`: for several tasks give a `factory`,
        with or without a handler. The numbers of handler threads, coroutines and child processes stay the same.
        BadSetting for a queue that is served already.
        """
        options = queue_options(weight, threads, backlog, limit)
        handling = HandlerOptions(task, kind, batch, timeout=timeout, max_attempts=max_attempts)
        self._served.add(queue, self._plan.registry_of(call, handling, factory, tasks), options)

    def remove_queue(self, queue: MessageQueue) -> None:
        """Claim no more from this queue, also while it runs. NotFound for a queue that it does not serve.

        Deliveries that wait for a handler are released; running handlers finish, and their outcomes are recorded. Any
        object for the queue will do that has the same store.
        """
        self._served.remove(queue)

    def run(self) -> None:
        """Begin, and block until another thread or a handler drains or stops it. Ctrl-C stops it and is re-raised.

        A permanent error, such as threads that die repeatedly, also stops it and is raised here.
        """
        self.start()
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        if self.broken_by is not None:
            raise self.broken_by

    def when_finished(self, call: Callable[[], None]) -> None:
        """Have any thread call this exactly once, when all outcomes are recorded; at once if they are."""
        with self._finish_lock:
            self._when_finished.append(call)
        if self._monitor.finished.is_set():
            self._call_waiting()

    def _on_left(self) -> None:
        """Delete the report, and close the queues that patterns had found: the last requests to their stores."""
        self.presence.end()
        self._served.close_found()

    def _finish(self) -> None:
        atexit.unregister(self._at_exit)
        self._call_waiting()

    def _call_waiting(self) -> None:
        with self._finish_lock:
            waiting, self._when_finished = self._when_finished, []
        for call in waiting:
            call()

    def _on_end(self, error: Exception | None) -> None:
        """Stop: a queue can no longer be served, or too many handlers are stuck."""
        self.broken_by = self.broken_by or error
        self._end_within(0)

    def _on_quota(self) -> None:
        """Drain: the last message of the quota has ended."""
        self._end_within(as_microseconds(DRAINED_WITHIN))

    def _end_within(self, microseconds: int | None) -> None:
        """Request a drain. Any thread calls this, also one that must not wait."""
        self.presence.report_draining()
        self._monitor.drain(microseconds)
        self._served.end()

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All its threads: one monitors, one reports, up to four claim, others handle, and find and close queues."""
        return (*self._threads, *self._plan.pools.threads)

    @property
    def running(self) -> bool:
        """Whether it was started and has not finished."""
        return self._begun and not self._monitor.finished.is_set()

    @property
    def abandoned(self) -> bool:
        """Whether it gave up a handler that still ran, past its timeout or at the end of a drain.

        A thread in which such a handler runs, or for which it waits, may go on for any time. Once True it stays so,
        whatever becomes of the handler.
        """
        return self._monitor.abandoned

    def drain(self, timeout: Duration | None = DRAINED_WITHIN, *, wait: bool = True) -> None:
        """Stop claiming, let running handlers finish, and return when all outcomes are recorded.

        Deliveries that wait for a handler are released at once, and those still running after `timeout` (None: no
        limit) at that time; neither costs an attempt, and later results of such handlers are ignored. A second call can
        only shorten the timeout. With `wait=False` the drain is only requested, as a signal handler should do.
        """
        self._check_process()
        microseconds = None if timeout is None else as_microseconds(timeout)
        with self._lock:
            if is_unused := not (self._begun or self._monitor.finished.is_set()):
                self._monitor.finish()
        self._end_within(microseconds)
        if is_unused:
            self._served.close_unused(wait=wait)
        if wait and threading.current_thread() not in self._threads and not self._plan.pools.run_here:
            self._wait()

    def _wait(self) -> None:
        """Block until it has finished, and let the main thread handle signals meanwhile."""
        while not self._monitor.finished.wait(_SIGNALS_HANDLED_WITHIN):
            pass

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
