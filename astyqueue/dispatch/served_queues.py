"""The queues of a dispatcher, also those that join or leave while it runs, and the threads that claim for them."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable
from typing import Final

from astyqueue.dispatch.builder import DispatcherPlan
from astyqueue.dispatch.execution.waiting_lines import QueueOptions
from astyqueue.dispatch.handler_monitor import HandlerMonitor
from astyqueue.dispatch.handlers.handler_registry import HandlerRegistry
from astyqueue.dispatch.queue_patterns import FoundQueue, PatternWatch
from astyqueue.dispatch.step_loop import StepLoop
from astyqueue.dispatch.subscription import QueueIdentity, Subscription
from astyqueue.dispatch.worker_log import log_event, some
from astyqueue.errors import BadSetting, Closed, NotFound
from astyqueue.queue.queue import MessageQueue

#: The most threads that claim: more would only wait for the interpreter lock, or for the lock of an SQLite file.
_CLAIM_THREADS: Final = 4


class ServedQueues:
    """Serves the queues of a plan, and those that are added or found later. Safe from any thread."""

    def __init__(
        self,
        plan: DispatcherPlan,
        monitor: HandlerMonitor,
        start_thread: Callable[[Callable[[], None], str], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        """Nothing is claimed before `start`. `start_thread` starts a daemon of this name.

        `on_end` is called when a queue that was not found by a pattern can no longer be served.
        """
        self._plan = plan
        self._monitor = monitor
        self._start_thread = start_thread
        self._on_end = on_end
        #: While a thread holds it, no queue joins, and none is removed.
        self.lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._loops: list[StepLoop] = []
        self._started = False
        for subscription in plan.subscriptions:
            monitor.add(subscription)
        self._watch = None
        if plan.patterns:
            named = [one.identity for one in plan.subscriptions]
            self._watch = PatternWatch(plan.patterns, named, self._join, self._leave)
            self._watch.look()

    def __str__(self) -> str:
        """The names, with the weights that are not 1."""
        return some(one.name if one.weight == 1 else f"{one.name}:{one.weight}" for one in self._monitor.subscriptions)

    def start(self) -> None:
        """Claim for the queues, and look for those that match patterns."""
        with self.lock:
            self._started = True
            for subscription in self._monitor.staying:  # one may have been removed before the start
                self._claim_for(subscription)

    def look(self) -> None:
        """Look for queues that match patterns from now on."""
        if self._watch is not None:
            self._start_thread(self._watch.run, "queues")

    def end(self) -> None:
        """Look for no more queues."""
        if self._watch is not None:
            self._watch.end()

    def close_found(self) -> None:
        """Close the queues that patterns have found; nothing of them runs any more."""
        if self._watch is not None:
            for subscription in self._monitor.subscriptions:
                subscription.on_left()
            self._watch.close_left()

    def close_unused(self, *, wait: bool) -> None:
        """Close the queues that patterns have found for a dispatcher that was never started.

        A caller that does not `wait` may be a signal handler, in a thread that holds a lock of a queue, so a new thread
        closes them; where none can be started, the end of the process does.
        """
        if wait:
            self.close_found()
        elif self._watch is not None:
            with contextlib.suppress(RuntimeError):
                self._start_thread(self.close_found, "close")

    def _claim_for(self, subscription: Subscription) -> None:
        """Have a thread claim for this queue, the same one all the time: a new one, while there are fewer than four."""
        task = subscription.start(functools.partial(self._on_end_of, subscription))
        self._loops = [loop for loop in self._loops if len(loop)]
        if len(self._loops) >= _CLAIM_THREADS and min(self._loops, key=len).add(task):
            return
        loop = StepLoop(self._plan.clock, [task])
        try:
            self._start_thread(loop.run, f"claim:{len(self._loops) + 1}")
        except RuntimeError:  # no thread can be started now
            if not any(other.add(task) for other in sorted(self._loops, key=len)):
                subscription.claims_nothing()
                raise
        else:
            self._loops.append(loop)

    def add(self, queue: MessageQueue, registry: HandlerRegistry, options: QueueOptions) -> None:
        """Serve one more queue, which patterns leave alone. BadSetting if it is served, Closed after a drain."""
        identity = QueueIdentity.of(queue)
        with self.lock:
            if self._monitor.serves(identity):
                message = f"queue {queue.name!r} is served here already: remove it first, or leave it as it is"
                raise BadSetting(message)
            self._serve(self._plan.subscription(queue, registry, options))
            if self._watch is not None:
                self._watch.leave_out(identity)

    def remove(self, queue: MessageQueue) -> None:
        """Claim no more from a queue; NotFound if it is not served."""
        if not self._remove(QueueIdentity.of(queue)):
            message = f"queue {queue.name!r} is not served here: this dispatcher serves {self}"
            raise NotFound(message)

    def _remove(self, queue: QueueIdentity, *, only_from_pattern: bool = False) -> bool:
        """Have a queue leave; False if it is not served, or not `from_pattern`."""
        with self.lock:
            found = [one for one in self._monitor.subscriptions if one.identity == queue]
            removed = [one for one in found if one.from_pattern or not only_from_pattern]
            for one in removed:
                self._monitor.remove(one)
        return bool(removed)

    def _serve(self, subscription: Subscription, **found: str) -> None:
        """Serve one more queue; the log says by what it was `found`."""
        if not self._monitor.add(subscription):
            message = "this dispatcher was stopped before: build another one"
            raise Closed(message)
        if self._started:  # logged before the claims begin, which log what they find, or that the queue is gone
            log_event(logging.INFO, "joined", queue=subscription.name, **found)
            try:
                self._claim_for(subscription)
            except BaseException:
                self._monitor.remove(subscription)
                raise

    def _join(self, found: FoundQueue) -> None:
        """Serve a queue that a pattern has found, unless another thread has just added it by name."""
        queue, pattern = found.queue, found.pattern
        try:
            with self.lock:
                if not self._monitor.serves(QueueIdentity.of(queue)):
                    subscription = self._plan.subscription(queue, pattern.registry, found.options)
                    subscription.on_left = functools.partial(self._close_soon, found)
                    self._serve(subscription, pattern=pattern.pattern)
        finally:
            if all(one.queue is not queue for one in self._monitor.subscriptions):
                self._close_soon(found)

    def _close_soon(self, found: FoundQueue) -> None:
        if self._watch is not None:
            self._watch.close_soon(found)

    def _leave(self, queue: QueueIdentity) -> None:
        """Serve a queue that a pattern had found no longer: it is not in the store any more."""
        self._remove(queue, only_from_pattern=True)

    def _on_end_of(self, subscription: Subscription, error: Exception | None) -> None:
        """Report the end, or go on without a queue that was dropped and that a pattern had found."""
        if subscription.from_pattern and self._watch is not None and isinstance(error, NotFound):
            self._monitor.remove(subscription)
            self._watch.forget(subscription.identity)
        else:
            self._on_end(error)
