"""Runs handlers for the messages of queues: in threads, on an event loop, in child processes."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from astyqueue.dispatch.builder import DispatcherBuilder, DispatcherPlan, queue_options
from astyqueue.dispatch.handlers import AsyncCall, Call
from astyqueue.dispatch.presence.worker_presence import WorkerPresence, Workload
from astyqueue.dispatch.queue_patterns import PatternWatch, QueuePattern
from astyqueue.dispatch.step_loop import StepLoop
from astyqueue.dispatch.subscription import Subscription
from astyqueue.dispatch.supervisor import Supervisor
from astyqueue.dispatch.worker_log import log_event, some
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed, NotFound
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Store

#: The default time that running handlers get to finish.
DRAINED_WITHIN: Final = "30s"
#: The most threads that claim: more would only wait for the interpreter lock, or for the lock of an SQLite file.
_CLAIM_THREADS: Final = 4


class Dispatcher:
    """Claims messages, runs their handlers, each in what its kind needs, and settles their outcomes in batches.

    All methods may be called from any thread and more than once. Called by one of its own handlers, `drain` and `stop`
    return immediately, and the work finishes after that handler has ended. A running dispatcher does not keep the
    interpreter from exiting: at exit it is stopped, which records every outcome that was handed in.
    """

    def __init__(self, plan: DispatcherPlan) -> None:
        """Use `Dispatcher.builder()`."""
        self._plan = plan
        self._supervisor = Supervisor(plan.pools, plan.clock, plan.max_stalled, self._on_end)
        plan.quota.on_end = self._on_quota
        self.presence = WorkerPresence(_workload(plan, self._supervisor, self.drain), plan.clock)
        self._supervisor.on_left = self.presence.end
        self._supervisor.on_finished = self._finish
        self._when_finished: Callable[[], None] | None = None
        self._threads: list[threading.Thread] = []
        self._loops: list[StepLoop] = []
        self._lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._pid = os.getpid()
        #: The permanent error that ended it, if one did.
        self.broken_by: Exception | None = None
        for subscription in plan.subscriptions:
            self._supervisor.add(subscription)
        self._watch = None
        if plan.patterns:
            self._watch = PatternWatch(plan.patterns, [one.name for one in self.queues], self._join, self._part)
            self._watch.look()

    def __repr__(self) -> str:
        """Its queues and their weights, its number of handler threads, and whether it runs."""
        ended = self._supervisor.finished.is_set()
        state = "ended" if ended else "running" if self._threads else "not started"
        return f"<Dispatcher of {self._served()} with {self._plan.pools.size} threads, {state}>"

    def _served(self) -> str:
        """Its queues, with the weights that are not 1."""
        return some(one.name if one.weight == 1 else f"{one.name}:{one.weight}" for one in self._subscriptions)

    @property
    def _subscriptions(self) -> tuple[Subscription, ...]:
        return self._supervisor.subscriptions

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
            if self._supervisor.finished.is_set():
                message = "this dispatcher was stopped before: build another one"
                raise Closed(message)
            if not self._threads:
                self._begin()
        return self

    def _begin(self) -> None:
        """Start every thread."""
        self._start_thread(self._supervisor.run, "steward")
        subscriptions = self._subscriptions
        log_event(
            logging.INFO,
            "ready",
            worker=some(one.queue.core.process.name for one in subscriptions),
            queues=self._served(),
            threads=self._plan.pools.size,
            tasks=some(sorted(set().union(*(one.tasks for one in subscriptions)))),
            store=_named(subscriptions[0].queue.store) if subscriptions else None,
        )
        for subscription in subscriptions:
            self._claim_for(subscription)
        self._plan.pools.start()
        if self._watch is not None:
            self._start_thread(self._watch.run, "queues")
        self._threads.append(self.presence.start())
        atexit.register(self._at_exit)

    def _start_thread(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=f"astyqueue:{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _claim_for(self, subscription: Subscription) -> None:
        """Have a thread claim for this queue, the same one all the time: a new one, while there are fewer than four."""
        task = subscription.start(functools.partial(self._on_end_of, subscription))
        self._loops = [loop for loop in self._loops if len(loop)]
        if len(self._loops) >= _CLAIM_THREADS and min(self._loops, key=len).add(task):
            return
        loop = StepLoop(self._plan.clock, [task])
        self._loops.append(loop)
        self._start_thread(loop.run, f"claim:{len(self._loops)}")

    def add_queue(
        self,
        queue: MessageQueue,
        call: Call | AsyncCall,
        *,
        weight: int = 1,
        threads: int | None = None,
        backlog: int | None = None,
        limit: int | None = None,
    ) -> None:
        """Serve one more queue with this handler, also while it runs. Closed once it was drained.

        The options are those of the builder's `queue`; the number of handler threads stays the same.
        """
        options = queue_options(weight, threads, backlog, limit)
        self._serve(self._plan.subscription(queue, self._plan.roster_of(call), options))

    def remove_queue(self, queue: MessageQueue) -> None:
        """Claim no more from this queue, also while it runs.

        Deliveries that wait for a handler are released; running handlers finish, and their outcomes are recorded.
        """
        for one in self._subscriptions:
            if one.queue is queue:
                self._supervisor.remove(one)

    def _serve(self, subscription: Subscription, **found: str) -> None:
        """Serve one more queue; the log says by what it was `found`."""
        with self._lock:
            if not self._supervisor.add(subscription):
                message = "this dispatcher was stopped before: build another one"
                raise Closed(message)
            if self._threads:  # logged before the claims begin, which log what they find, or that the queue is gone
                log_event(logging.INFO, "joined", queue=subscription.name, **found)
                self._claim_for(subscription)

    def _join(self, queue: MessageQueue, pattern: QueuePattern) -> None:
        """Serve a queue that a pattern has found."""
        self._serve(
            self._plan.subscription(queue, pattern.roster, pattern.options_of(queue.name)), pattern=pattern.pattern
        )

    def _part(self, name: str) -> None:
        """Serve a queue that a pattern had found no longer: it is not in the store any more."""
        for one in self._subscriptions:
            if one.name == name and one.followed:
                self._supervisor.remove(one)

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
        if self.broken_by is not None:
            raise self.broken_by

    def when_finished(self, call: Callable[[], None]) -> None:
        """Have any thread call this once all outcomes are recorded; at once if they are."""
        self._when_finished = call
        if self._supervisor.finished.is_set():
            call()

    def _finish(self) -> None:
        atexit.unregister(self._at_exit)
        if self._when_finished is not None:
            self._when_finished()

    def _on_end(self, error: Exception | None) -> None:
        """Stop: a queue can no longer be served, or too many handlers are stuck."""
        self.broken_by = self.broken_by or error
        self._supervisor.drain(0)

    def _on_end_of(self, subscription: Subscription, error: Exception | None) -> None:
        """Stop, or go on without a queue that was dropped and that a pattern had found."""
        if subscription.followed and self._watch is not None and isinstance(error, NotFound):
            self._supervisor.remove(subscription)
            self._watch.forget(subscription.name)
        else:
            self._on_end(error)

    def _on_quota(self) -> None:
        """Drain: the last message of the quota has ended."""
        self._supervisor.drain(as_microseconds(DRAINED_WITHIN))

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All its threads: one that supervises, one that reports, up to four that claim, and those that handle.

        One that finds queues is there if the dispatcher has patterns.
        """
        return (*self._threads, *self._plan.pools.threads)

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
                self._supervisor.finish()
        self.presence.drains()
        self._supervisor.drain(microseconds)
        if self._watch is not None:
            self._watch.end()
        if wait and threading.current_thread() not in self._threads and not self._plan.pools.run_here:
            self._supervisor.finished.wait()

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


def _named(store: Store) -> str:
    """The text of a store if its class defines one, else the name of its class."""
    return type(store).__name__ if type(store).__str__ is object.__str__ else str(store)


def _workload(plan: DispatcherPlan, supervisor: Supervisor, drain: Callable[..., None]) -> Workload:
    """What the presence of a dispatcher reports on."""

    def hold(held: bool) -> None:  # noqa: FBT001 - the presence calls it so
        plan.quota.held = held
        for one in supervisor.subscriptions:
            if held:
                one.queue.core.claimer.permit.stand_down()
            one.queue.core.claimer.wake()

    return Workload(
        queues=lambda: [one.queue for one in supervisor.subscriptions],
        limits=lambda: {one.name: one.limit for one in supervisor.subscriptions if one.limit is not None},
        slots=lambda: plan.pools.size,
        running=lambda: [
            (one.name, each)
            for one in supervisor.subscriptions
            for each in (*one.executions.under_way.all(), *one.executions.under_way.stuck)
            if each.leader is None
        ],
        held=lambda: sum(one.executions.under_way.slots_held for one in supervisor.subscriptions),
        hold=hold,
        drain=lambda: drain(wait=False),
    )
