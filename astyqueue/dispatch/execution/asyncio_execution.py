"""Runs `async def` handlers as tasks of one event loop: thousands at a time, in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from astyqueue.aio.queue import MessageQueue as AsyncQueue
from astyqueue.dispatch.consumers import ConsumerManager, MultiQueueConsumer
from astyqueue.dispatch.execution.delivery_execution import HandlerExecutions
from astyqueue.dispatch.execution.event_loop import LoopWatchdog, loop_for_handlers, loop_for_handlers_ends
from astyqueue.dispatch.execution.waiting_lines import WaitingLine
from astyqueue.dispatch.handlers.handler import AsyncCall, refuse_unfinished
from astyqueue.dispatch.running_executions import BegunExecution, Cancelled, Interrupted
from astyqueue.dispatch.slots import FreeSlots
from astyqueue.dispatch.stacks import stack_of_coroutine
from astyqueue.dispatch.worker_log import log_blocked
from astyqueue.queue.delivery.base_delivery import DeliveryFactory
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue

R = TypeVar("R")


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


class AwaitedBatch:
    """A batch whose handler runs on the event loop, while the slot that gathered it waits until it is `done`."""

    def __init__(self, handling: HandlerExecutions, executions: list[BegunExecution]) -> None:
        """`handling` are the executions of its queue; it has no task yet."""
        self.handling = handling
        self.executions = executions
        self.done: Future[BaseException | None] = Future()
        self.task: asyncio.Task[BaseException | None] | None = None
        self.interrupted = False

    async def call(self, deliveries: list[Delivery]) -> object:
        """Call its handler; Interrupted if it was given up before there was a task to cancel."""
        if self.handling.under_way.is_given_up(self.executions[0]):
            raise Interrupted
        return await self.executions[0].handler.call(deliveries)

    def interrupt(self) -> None:
        """Cancel its handler, the first time."""
        if self.task is not None and not self.interrupted:
            self.interrupted = True
            self.task.cancel()


class CoroutinePool:
    """The coroutines of a dispatcher: it takes deliveries while fewer than its limit are in flight.

    Each coroutine begins with its own copy of the context of its `CallersLoop`, or with an empty one, so none sees what
    another one set.
    """

    def __init__(self, in_flight: int, *, blocked_after: int, callers_loop: CallersLoop | None) -> None:
        """Nothing runs yet. Without `callers_loop`: in the loop of this process for handlers, in its own thread."""
        self.size = in_flight
        self.free = FreeSlots()
        #: Called when nothing of a line that leaves is in flight any more and, once it was shut, nothing at all.
        self.on_change: Callable[[], None] = lambda: None
        self.threads: list[threading.Thread] = []
        self.ended = False
        self._callers_loop = callers_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = callers_loop.context if callers_loop else Context()
        self._consumer: MultiQueueConsumer[Delivery] = MultiQueueConsumer(self._wake)
        self._lines: dict[ConsumerManager[Delivery], WaitingLine] = {}
        self._in_flight: dict[Delivery, InFlight] = {}
        #: How many deliveries of each line that leaves are in flight; None: the loop has not counted them yet.
        self._leaving: dict[WaitingLine, int | None] = {}
        self._batches: dict[Delivery, AwaitedBatch] = {}
        self._interrupted: set[Delivery] = set()
        self._ended = 0
        #: Whether it may have a delivery that has not begun.
        self.filling = self._called = self._shut = False
        self._watchdog = LoopWatchdog(
            lambda: len(self._in_flight) + len(self._batches), self._tell_blocked, blocked_after
        )
        self._watchdog.on_closed = partial(self._call, self._fill)

    def __repr__(self) -> str:
        """How many coroutines are in flight, of how many."""
        return f"<CoroutinePool: {len(self._in_flight)} of {self.size} in flight, {len(self._lines)} queues>"

    def move_to(self, callers_loop: CallersLoop) -> None:
        """Have the coroutines run there; called before the start."""
        self._callers_loop = callers_loop
        self._context = callers_loop.context

    def start(self) -> None:
        """Begin to take deliveries, once. If no loop can be started, that raises, and the next call tries again."""
        if self._loop is not None:
            return
        self._loop = self._callers_loop.loop if self._callers_loop else loop_for_handlers()
        self.free.add_free(self.size)
        self._wake()

    def add_line(self, line: WaitingLine) -> None:
        """Take deliveries of this line too, from now on."""
        self._lines[line.ready.manager] = line
        self._consumer.add_queue(line.ready.manager, weight=line.weight)

    def remove_line(self, line: WaitingLine) -> None:
        """Take no more deliveries of this line. Coroutines go on; `forget_line` follows once they ended."""
        if line not in self._leaving:
            self._consumer.remove_queue(line.ready.manager)
            self._leaving[line] = None
            if not self._call(self._count_leaving):
                self._leaving[line] = 0

    def _count_leaving(self) -> None:
        """Count, in the loop, what is in flight of lines that leave: nothing of them begins any more."""
        for line in [line for line, count in tuple(self._leaving.items()) if count is None]:
            count = self._leaving[line] = sum(one.line is line for one in self._in_flight.values())
            if not count:
                self.on_change()

    def forget_line(self, line: WaitingLine) -> None:
        """Forget a line of which nothing is in flight any more."""
        self._lines.pop(line.ready.manager, None)
        self._leaving.pop(line, None)

    def is_busy_with(self, line: WaitingLine) -> bool:
        """Whether a coroutine of this line, which was removed, may be in flight."""
        return self._leaving.get(line) != 0

    def is_idle(self) -> bool:
        """Whether nothing is in flight but what was given up."""
        return not self.filling and {*tuple(self._in_flight)} <= self._interrupted

    def shut(self) -> None:
        """Call `on_change` when the last coroutine has ended, and whenever it has taken what waits."""
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
        return task in (*(one.task for one in self._in_flight.values()), *(one.task for one in self._batches.values()))

    def _wake(self) -> None:
        """Take deliveries soon. Any thread may call this."""
        if not self._called:
            self._called = True
            self._call(self._fill)

    def _call(self, call: Callable[[], None]) -> bool:
        """Have the event loop call this; False, and nothing done, before the start, or if the loop was closed."""
        if self._loop is None:
            self._called = False
            return False
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            if self._callers_loop is not None and not self._shut:
                self._callers_loop.on_closed()
            return False
        return True

    def _fill(self) -> None:
        """Begin executions up to the limit."""
        self.filling, self._called = True, False
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
        self.filling = False
        if self._shut:
            self.on_change()

    def _begin(self, line: WaitingLine, delivery: Delivery) -> None:
        line.credit.taken()
        execution = line.handling.begin(delivery)
        if execution is None:
            self._on_end()
            return
        try:
            task = self._task(execution.handler.call, execution.delivery)
        except Exception as error:  # noqa: BLE001 - a task factory may raise anything: the attempt has failed
            line.handling.end(execution, error)
            self._on_end()
            return
        self._in_flight[execution.delivery] = InFlight(line, execution, task)
        task.add_done_callback(partial(self._end, line, execution))

    def _task(self, call: AsyncCall, given: Delivery | list[Delivery]) -> asyncio.Task[BaseException | None]:
        loop = asyncio.get_running_loop()
        self._watchdog.watch(loop)
        return _task_in(self._context.copy(), loop, perform_awaited(call, given))

    def _end(self, line: WaitingLine, execution: BegunExecution, task: asyncio.Task[BaseException | None]) -> None:
        """Settle what a coroutine came to."""
        delivery = execution.delivery
        error = self._error_of(task, interrupted=delivery in self._interrupted)
        if isinstance(error, Cancelled):
            line.handling.give_back(execution)
        else:
            line.handling.end(execution, error)
        del self._in_flight[delivery]
        self._interrupted.discard(delivery)
        if count := self._leaving.get(line):
            self._leaving[line] = count - 1
            if count == 1:
                self.on_change()
        self._on_end()

    def _error_of(self, task: asyncio.Task[BaseException | None], *, interrupted: bool) -> BaseException | None:
        """What a handler raised; Interrupted or Cancelled if it was cancelled, here or by something else."""
        error = asyncio.CancelledError() if task.cancelled() else task.result()
        if not isinstance(error, asyncio.CancelledError):
            return error
        if interrupted:
            return Interrupted()
        # As a loop does to all its tasks when it ends: that of a caller, or that of the process at the exit.
        ends = self._callers_loop is not None or loop_for_handlers_ends()
        return Cancelled() if ends and task.cancelling() else error

    def perform_batch(self, handling: HandlerExecutions, executions: list[BegunExecution]) -> BaseException | None:
        """Have the event loop run a batch handler, and wait for it; returns the error it raised, if any.

        The slot that gathered the batch calls this, in its thread. It is not counted among those in flight.
        """
        batch = AwaitedBatch(handling, executions)
        return batch.done.result() if self._call(partial(self._begin_batch, batch)) else Cancelled()

    def _begin_batch(self, batch: AwaitedBatch) -> None:
        deliveries = [execution.delivery for execution in batch.executions]
        try:
            batch.task = self._task(batch.call, deliveries)
        except Exception as error:  # noqa: BLE001 - a task factory may raise anything: the attempts have failed
            batch.done.set_result(error)
            return
        self._batches.update(dict.fromkeys(deliveries, batch))
        batch.task.add_done_callback(partial(self._end_batch, batch))

    def _end_batch(self, batch: AwaitedBatch, task: asyncio.Task[BaseException | None]) -> None:
        for execution in batch.executions:
            del self._batches[execution.delivery]
            self._interrupted.discard(execution.delivery)
        batch.done.set_result(self._error_of(task, interrupted=batch.interrupted))

    def _on_end(self) -> None:
        """Take others soon; those that end at the same time are counted together."""
        self._ended += 1
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._fill)

    def stack_of(self, delivery: Delivery) -> str:
        """Where the coroutine of a delivery waits. Any thread may call this."""
        running = self._in_flight.get(delivery) or self._batches.get(delivery)
        return "" if running is None or running.task is None else stack_of_coroutine(running.task.get_coro())

    def interrupt(self, delivery: Delivery) -> None:
        """Cancel the coroutine of a delivery that was given up. Any thread may call this."""
        self._interrupted.add(delivery)
        self._call(partial(self._cancel, delivery))

    def _cancel(self, delivery: Delivery) -> None:
        if (in_flight := self._in_flight.get(delivery)) is not None:
            in_flight.task.cancel()
        elif (batch := self._batches.get(delivery)) is not None:
            batch.interrupt()
        else:
            self._interrupted.discard(delivery)

    def _tell_blocked(self, running: asyncio.Task[object] | None, lasts: int, stack: str) -> None:
        """Log what keeps the event loop: the handler of one of these coroutines, or another task of the loop."""
        for line, execution, task in tuple(self._in_flight.values()):
            if task is running:
                line.handling.log.blocking(execution.delivery, execution.handler, lasts=lasts, stack=stack)
                return
        for batch in tuple(self._batches.values()):
            if batch.task is running:
                first = batch.executions[0]
                batch.handling.log.blocking(first.delivery, first.handler, lasts=lasts, stack=stack)
                return
        name = None if running is None else getattr(running.get_coro(), "__qualname__", None)
        log_blocked(lasts, stack, task=name)


def _task_in(context: Context, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
    """A task that runs in this context; a task factory of the loop that raises leaves no coroutine open."""
    try:
        # Not `create_task(..., context=)`: the task factory of a caller's loop may take only loop and coroutine.
        return context.run(loop.create_task, coroutine)
    except BaseException:
        coroutine.close()
        raise


async def perform_awaited(call: AsyncCall, delivery: Delivery | list[Delivery]) -> BaseException | None:
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
