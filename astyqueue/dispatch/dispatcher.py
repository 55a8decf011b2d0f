"""Running handlers for the messages of queues, in threads."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from itertools import chain
from types import TracebackType
from typing import Final, Self

from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.pace import Quota
from astyqueue.dispatch.steward import Steward
from astyqueue.dispatch.subscription import Subscription
from astyqueue.dispatch.telling import tell
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.store import Store

#: How long running handlers get to finish unless it is said.
DRAINED_WITHIN: Final = "30s"
#: As many tasks are named in the line that says that a dispatcher is ready.
_NAMED: Final = 20


class Dispatcher:
    """Claims messages, runs their handlers in threads, and settles what comes of them in batches.

    All its methods may be called from any thread and more than once. Called by one of its own handlers, `drain` and `stop`
    return at once and the rest happens when that handler has ended. A dispatcher that is forgotten does not keep the
    interpreter from exiting: it is stopped then, which records every outcome that was handed in.
    """

    def __init__(self, subscriptions: tuple[Subscription, ...], quota: Quota, max_stalled: int | None) -> None:
        """Use `Dispatcher.builder()`."""
        self._subscriptions = subscriptions
        self._steward = Steward(subscriptions, subscriptions[0].queue.clock, max_stalled, self._on_end)
        quota.on_end = self._on_quota
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._pid = os.getpid()
        self._broken_by: Exception | None = None

    @staticmethod
    def builder() -> DispatcherBuilder[Dispatcher]:
        """Say which queues and which handlers, then `build()`."""
        return DispatcherBuilder(Dispatcher)

    def start(self) -> Self:
        """Begin, in threads of its own. A dispatcher that was drained before raises Closed: build another one."""
        self._check_process()
        with self._lock:
            if self._steward.finished.is_set():
                message = "this dispatcher was stopped before: build another one"
                raise Closed(message)
            if not self._threads:
                self._begin()
        return self

    def _begin(self) -> None:
        """Start every thread."""
        steward = threading.Thread(target=self._steward.run, name="astyqueue:steward", daemon=True)
        steward.start()
        self._threads.append(steward)
        first = self._subscriptions[0].queue
        tell(
            logging.INFO,
            "ready",
            worker=",".join(one.queue.core.process.name for one in self._subscriptions),
            queues=",".join(f"{one.queue.name}:{one.slots}" for one in self._subscriptions),
            threads=sum(one.slots for one in self._subscriptions),
            tasks=_some(sorted(set().union(*(one.tasks for one in self._subscriptions)))),
            store=_named(first.store),
        )
        for subscription in self._subscriptions:
            subscription.start(self._on_end)
        atexit.register(self._at_exit)

    def run(self) -> None:
        """Begin, and block until somebody drains or stops it; interrupted (Ctrl-C), it stops and passes that on.

        An error that no waiting mends, such as threads that die again and again, stops it too, and is raised here.
        """
        self.start()
        try:
            self._steward.finished.wait()
        except BaseException:
            self.stop()
            raise
        if self._broken_by is not None:
            raise self._broken_by

    def _on_end(self, error: Exception | None) -> None:
        """One of the queues cannot be served any more."""
        self._broken_by = self._broken_by or error
        self._steward.drain(0)

    def _on_quota(self) -> None:
        """The last message that was to be worked on has ended."""
        self._steward.drain(as_microseconds(DRAINED_WITHIN))

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Its threads, by name: one claims for each queue, some handle, one looks after them."""
        return (*self._threads, *chain.from_iterable(one.threads for one in self._subscriptions))

    @property
    def running(self) -> bool:
        """Whether it was started and has not finished."""
        return bool(self._threads) and not self._steward.finished.is_set()

    def drain(self, timeout: Duration | None = DRAINED_WITHIN, *, wait: bool = True) -> None:
        """Claim nothing more and finish what runs; return when that is done and recorded.

        What waits for a handler is given back at once, and what still runs after `timeout` (None: as long as it takes)
        then; neither costs an attempt, and what such a handler does later is ignored. A second call can only make it
        shorter. With `wait=False` it is only asked for, as a signal handler should.
        """
        self._check_process()
        microseconds = None if timeout is None else as_microseconds(timeout)
        with self._lock:
            if not self._threads:
                self._steward.finished.set()
        self._steward.drain(microseconds)
        if wait and threading.current_thread() not in self.threads:
            self._steward.finished.wait()
            atexit.unregister(self._at_exit)

    def stop(self, *, wait: bool = True) -> None:
        """Drain without waiting for the handlers that run: their messages are given back, and every outcome handed in is recorded."""
        self.drain(0, wait=wait)

    def __enter__(self) -> Self:
        """Begin; drain on leaving the block, or stop if it raised."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `drain`, or as `stop` after an error."""
        self.drain(DRAINED_WITHIN if kind is None else 0)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.stop()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            message = (
                f"this dispatcher belongs to process {self._pid}, and this is a fork of it ({os.getpid()}), to which its threads "
                "did not come along: build another one here"
            )
            raise Closed(message)


def _some(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - _NAMED
    return ",".join([*names[:_NAMED], f"and {more} more"] if more > 0 else names)


def _named(store: Store) -> str:
    """What a store calls itself, if it does; else its kind."""
    return type(store).__name__ if type(store).__str__ is object.__str__ else str(store)
