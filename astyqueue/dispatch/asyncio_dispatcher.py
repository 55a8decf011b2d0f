"""A dispatcher for tasks of an event loop: `async def` handlers run in the loop of the caller.

It is the dispatcher for threads, with the coroutines in another loop. Claims, renewals and settles stay in threads: so
leases are renewed also while something keeps the loop, and the watchdog says what that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Self

from astyqueue.aio.connection import Connection
from astyqueue.aio.queue import MessageQueue
from astyqueue.dispatch.builder import DispatcherBuilder, DispatcherPlan
from astyqueue.dispatch.dispatcher import DRAINED_WITHIN
from astyqueue.dispatch.dispatcher import Dispatcher as Blocking
from astyqueue.dispatch.execution.asyncio_execution import CallersLoop
from astyqueue.dispatch.handlers.handler import AsyncCall, BatchCall, Call, Factory
from astyqueue.dispatch.queue_patterns import QueueDirectory
from astyqueue.durations import Duration
from astyqueue.queue.queue import MessageQueue as BlockingQueue


class Dispatcher:
    """Claims messages, runs their handlers, and settles their outcomes in batches.

    `async def` handlers run as tasks of the event loop in which it is started, each in a copy of the context of the
    start; others run in threads or processes. A handler that something else cancels, as `asyncio.run` does at its end,
    gives its message back without an attempt. Its methods are called in that loop.
    """

    def __init__(self, plan: DispatcherPlan, blocking: Blocking) -> None:
        """Use `Dispatcher.builder()`."""
        #: The dispatcher for threads that does the work.
        self.blocking = blocking
        #: What it reports to the store about itself.
        self.presence = blocking.presence
        self._pools = plan.pools
        self._started = False
        self._finished = asyncio.Event()

    def __repr__(self) -> str:
        """Its queues and their weights, its number of handler threads, and whether it runs."""
        return repr(self.blocking)

    @staticmethod
    def builder() -> AwaitedBuilder:
        """Start a builder: give it queues and handlers, then `await ….build()`."""
        return AwaitedBuilder(_build)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it serves now."""
        return [MessageQueue(queue.core, queue.store) for queue in self.blocking.queues]

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All its threads: one monitors, one reports, up to four claim, others handle, and find and close queues."""
        return self.blocking.threads

    @property
    def running(self) -> bool:
        """Whether it was started and has not finished."""
        return self.blocking.running

    @property
    def abandoned(self) -> bool:
        """Whether it gave up a handler that still ran, past its timeout or at the end of a drain.

        A thread in which such a handler runs, or for which it waits, may go on for any time. Once True it stays so,
        whatever becomes of the handler.
        """
        return self.blocking.abandoned

    async def start(self) -> Self:
        """Begin, with coroutines in this event loop. Closed if it was drained before: build another one."""
        if not self._started:
            loop = asyncio.get_running_loop()
            self._pools.move_to(CallersLoop(loop, copy_context(), partial(self.blocking.stop, wait=False)))
            self.blocking.when_finished(partial(_tell, loop, self._finished.set))
        self._started = True
        try:
            await asyncio.to_thread(self.blocking.start)
        except asyncio.CancelledError:  # the thread starts it nevertheless
            self.blocking.stop(wait=False)
            raise
        return self

    def add_queue(
        self,
        queue: MessageQueue | BlockingQueue,
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
        self.blocking.add_queue(
            _blocking(queue),
            call,
            task=task,
            kind=kind,
            batch=batch,
            timeout=timeout,
            max_attempts=max_attempts,
            factory=factory,
            tasks=tasks,
            weight=weight,
            threads=threads,
            backlog=backlog,
            limit=limit,
        )

    def remove_queue(self, queue: MessageQueue | BlockingQueue) -> None:
        """Claim no more from this queue, also while it runs. NotFound for a queue that it does not serve.

        Deliveries that wait for a handler are released; running handlers finish, and their outcomes are recorded. Any
        object for the queue will do that has the same store.
        """
        self.blocking.remove_queue(_blocking(queue))

    async def run(self) -> None:
        """Begin, and wait until another task or a handler drains or stops it. Cancelling this stops it.

        A permanent error, such as threads that die repeatedly, also stops it and is raised here.
        """
        try:
            await self.start()
            await self._finished.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise
        if self.blocking.broken_by is not None:
            raise self.blocking.broken_by

    async def drain(self, timeout: Duration | None = DRAINED_WITHIN, *, wait: bool = True) -> None:  # noqa: ASYNC109 - how long handlers may run, as for threads
        """Stop claiming, let running handlers finish, and return when all outcomes are recorded.

        Deliveries that wait for a handler are released at once, and those still running after `timeout` (None: no
        limit) at that time; neither costs an attempt, and such handlers are cancelled. A second call can only shorten
        the timeout, and cancelling this shortens it to nothing. With `wait=False`, and in one of its own handlers, the
        drain is only requested.
        """
        self.blocking.drain(timeout, wait=False)
        if wait and self._started and not self._pools.runs(asyncio.current_task()):
            try:
                await self._finished.wait()
            except asyncio.CancelledError:
                self.blocking.stop(wait=False)
                raise

    async def stop(self, *, wait: bool = True) -> None:
        """Drain without waiting for running handlers: release their messages and record every outcome handed in."""
        await self.drain(0, wait=wait)

    async def __aenter__(self) -> Self:
        """Begin; drain on leaving the block, or stop if it raised."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain, or stop after an error."""
        await self.drain(DRAINED_WITHIN if kind is None else 0)


class AwaitedBuilder(DispatcherBuilder[Awaitable[Dispatcher]]):
    """Collects queues and their handlers; `await ….build()` returns the dispatcher.

    It is the builder for threads, and takes queues and connections of `astyqueue.aio` too.
    """

    def queue(
        self,
        queue: MessageQueue | BlockingQueue,
        *,
        weight: int = 1,
        threads: int | None = None,
        backlog: int | None = None,
        limit: int | None = None,
    ) -> Self:
        """Take messages from this queue; one of weight 3 gets three turns for each of weight 1 while both have some.

        At most `limit` of its messages are here at the same time, whatever the kinds of their handlers.
        """
        return super().queue(_blocking(queue), weight=weight, threads=threads, backlog=backlog, limit=limit)

    def queues(
        self,
        pattern: str,
        directory: Connection | QueueDirectory,
        *,
        weight: int = 1,
        threads: int | None = None,
        backlog: int | None = None,
        limit: int | Callable[[str], int | None] | None = None,
    ) -> Self:
        """Take messages from all queues of a connection whose names match a shell-style pattern, such as "mail.*".

        See `astyqueue.Dispatcher`.
        """
        found = directory.blocking if isinstance(directory, Connection) else directory
        return super().queues(pattern, found, weight=weight, threads=threads, backlog=backlog, limit=limit)


def _blocking(queue: MessageQueue | BlockingQueue) -> BlockingQueue:
    return queue.blocking if isinstance(queue, MessageQueue) else queue


async def _build(plan: DispatcherPlan) -> Dispatcher:
    """Patterns are looked up in the store, which blocks."""
    return Dispatcher(plan, await asyncio.to_thread(Blocking, plan))


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed before the dispatcher had ended
        loop.call_soon_threadsafe(call)
