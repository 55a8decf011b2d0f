"""Runs `async def` handlers as tasks of one event loop: thousands at a time, in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Final, NamedTuple

from astyqueue.aio.queue import MessageQueue as AsyncQueue
from astyqueue.dispatch.consumers import ConsumerManager, MultiQueueConsumer
from astyqueue.dispatch.deliveries_by_pool import WaitingLine
from astyqueue.dispatch.event_loop import LoopWatchdog, loop_for_handlers
from astyqueue.dispatch.handlers import AsyncCall, refuse_unfinished
from astyqueue.dispatch.running_executions import BegunExecution, Interrupted
from astyqueue.dispatch.slots import FreeSlots
from astyqueue.dispatch.worker_log import log_blocked
from astyqueue.queue.delivery.base_delivery import DeliveryFactory
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.units import SECOND

#: The default number of coroutines in flight.
IN_FLIGHT: Final = 1_000
#: A handler that keeps the event loop for longer than this (microseconds) is named in the log.
BLOCKED_AFTER: Final = SECOND


class CallersLoop(NamedTuple):
    """The event loop of a caller, in which coroutines run, and the context that each of them begins with.

    `on_closed` is called, by any thread, when the loop turns out to be closed.
    """

    loop: asyncio.AbstractEventLoop
    context: Context
    on_closed: Callable[[], object]


class InFlight(NamedTuple):
    """An execution that began, the line it came from, and the task that runs its handler."""

    line: WaitingLine
    execution: BegunExecution
    task: asyncio.Task[BaseException | None]


class CoroutinePool:
    """The coroutines of a dispatcher: it takes deliveries while fewer than its limit are in flight.

    Each coroutine begins with its own copy of the context of its `CallersLoop`, or with an empty one, so none sees what
    another one set.
    """

    def __init__(
        self,
        in_flight: int = IN_FLIGHT,
        *,
        blocked_after: int = BLOCKED_AFTER,
        callers_loop: CallersLoop | None = None,
    ) -> None:
        """Nothing runs yet. Default: the loop that this process has for handlers, in a thread of its own."""
        self.size = in_flight
        self.free = FreeSlots()
        #: Called, once it was shut, when nothing is in flight any more.
        self.on_change: Callable[[], None] = _ignore
        self.threads: list[threading.Thread] = []
        self._callers_loop = callers_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = callers_loop.context if callers_loop else Context()
        self._consumer: MultiQueueConsumer[Delivery] = MultiQueueConsumer(self._wake)
        self._lines: dict[ConsumerManager[Delivery], WaitingLine] = {}
        self._in_flight: dict[Delivery, InFlight] = {}
        self._interrupted: set[Delivery] = set()
        self._ended = 0
        self._called = False
        self._filling = False
        self._shut = False
        self._watchdog = LoopWatchdog(lambda: len(self._in_flight), self._tell_blocked, blocked_after)

    def __repr__(self) -> str:
        """How many coroutines are in flight, of how many."""
        return f"<CoroutinePool: {len(self._in_flight)} of {self.size} in flight, {len(self._lines)} queues>"

    def move_to(self, callers_loop: CallersLoop) -> None:
        """Have the coroutines run there; called before the start."""
        self._callers_loop = callers_loop
        self._context = callers_loop.context

    def start(self) -> None:
        """Begin to take deliveries."""
        self._loop = self._callers_loop.loop if self._callers_loop else loop_for_handlers()
        self.free.add_free(self.size)
        self._wake()

    def add_queue(self, line: WaitingLine) -> None:
        """Take deliveries of this line too, from now on."""
        self._lines[line.ready.manager] = line
        self._consumer.add_queue(line.ready.manager, weight=line.weight)

    def remove_queue(self, line: WaitingLine) -> None:
        """Take no more deliveries of this line. Coroutines go on; `forget_queue` follows once they ended."""
        self._consumer.remove_queue(line.ready.manager)

    def forget_queue(self, line: WaitingLine) -> None:
        """Forget a line of which nothing is in flight any more."""
        self._lines.pop(line.ready.manager, None)

    def is_busy_with(self, line: WaitingLine) -> bool:
        """Whether a coroutine of this line is in flight, or may just begin."""
        return self._filling or any(one.line is line for one in tuple(self._in_flight.values()))

    def is_idle(self, but: int = 0) -> bool:
        """Whether nothing is in flight but what was given up; `but` counts threads, and is not used."""
        del but
        return not self._filling and len(self._in_flight) <= len(self._interrupted)

    def shut(self) -> None:
        """Call `on_change` when the last coroutine has ended."""
        self._shut = True
        self._wake()

    def close(self) -> None:
        """End the watch over the event loop; coroutines that were given up go on until they end."""
        self._consumer.close()
        self._watchdog.close()

    @property
    def loops_here(self) -> bool:
        """Whether this thread runs its event loop, which must not be made to wait for handlers."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # no loop runs here
            return False

    def runs(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this task is one of its coroutines."""
        return any(one.task is task for one in tuple(self._in_flight.values()))

    @staticmethod
    def replace_dead() -> None:
        """Nothing: no thread of its own can die."""

    def _wake(self) -> None:
        """Take deliveries soon. Any thread may call this."""
        if not self._called:
            self._called = True
            self._call(self._fill)

    def _call(self, call: Callable[[], None]) -> None:
        """Have the event loop call this; nothing is done before the start, or if the loop was closed, as at exit."""
        if self._loop is None:
            self._called = False
            return
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            if self._callers_loop is not None and not self._shut:
                self._callers_loop.on_closed()

    def _fill(self) -> None:
        """Begin executions up to the limit."""
        self._filling, self._called = True, False
        ended, self._ended = self._ended, 0
        if ended:
            self.free.add_free(ended)
        begun, room = 0, self.size - len(self._in_flight)
        while begun < room and (pulled := self._consumer.pull()) is not None:
            begun += 1
            self._begin(self._lines[pulled.manager], pulled.ready.message)
        if begun:
            self.free.take_free(begun)
            self.free.offer()
        self._filling = False
        if self._shut and not self._in_flight:
            self.on_change()

    def _begin(self, line: WaitingLine, delivery: Delivery) -> None:
        line.credit.taken()
        execution = line.handling.begin(delivery)
        if execution is None:
            self._on_end()
            return
        handled = perform_awaited(execution.handler.call, execution.delivery)
        loop = asyncio.get_running_loop()
        task = loop.create_task(handled, context=self._context.copy())
        self._in_flight[execution.delivery] = InFlight(line, execution, task)
        task.add_done_callback(partial(self._end, line, execution))
        self._watchdog.watch(loop)

    def _end(self, line: WaitingLine, execution: BegunExecution, task: asyncio.Task[BaseException | None]) -> None:
        """Settle what a coroutine came to."""
        delivery = execution.delivery
        error = asyncio.CancelledError() if task.cancelled() else task.result()
        if not isinstance(error, asyncio.CancelledError):
            line.handling.end(execution, error)
        elif delivery in self._interrupted:
            line.handling.end(execution, Interrupted())
        elif self._callers_loop is not None and task.cancelling():  # as the loop does to all its tasks when it ends
            line.handling.give_back(execution)
        else:
            line.handling.end(execution, error)
        del self._in_flight[delivery]
        self._interrupted.discard(delivery)
        self._on_end()

    def _on_end(self) -> None:
        """Take others soon; those that end at the same time are counted together."""
        self._ended += 1
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._fill)

    def interrupt(self, delivery: Delivery) -> None:
        """Cancel the coroutine of a delivery that was given up. Any thread may call this."""
        self._interrupted.add(delivery)
        self._call(partial(self._cancel, delivery))

    def _cancel(self, delivery: Delivery) -> None:
        if (in_flight := self._in_flight.get(delivery)) is not None:
            in_flight.task.cancel()
        else:
            self._interrupted.discard(delivery)

    def _tell_blocked(self, running: asyncio.Task[object] | None, lasts: int, stack: str) -> None:
        """Log what keeps the event loop: the handler of one of these coroutines, or another task of the loop."""
        for line, execution, task in tuple(self._in_flight.values()):
            if task is running:
                verdicts = line.handling.verdicts
                verdicts.blocking(execution.delivery, execution.handler, lasts=lasts, stack=stack)
                return
        name = None if running is None else getattr(running.get_coro(), "__qualname__", None)
        log_blocked(lasts, stack, task=name)


async def perform_awaited(call: AsyncCall, delivery: Delivery) -> BaseException | None:
    """Run an `async def` handler and return the error it raised, if any; also one that would end the event loop."""
    try:
        result = await call(delivery)
        if result is not None:
            refuse_unfinished(result)
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: the loop goes on
        return error
    return None


def awaited_deliveries(queue: MessageQueue) -> DeliveryFactory:
    """Makes the deliveries that `async def` handlers get: what settles them is awaited."""
    return AsyncQueue(queue.core, queue.store).delivery


def _ignore() -> None:
    """The default of `on_change`."""
