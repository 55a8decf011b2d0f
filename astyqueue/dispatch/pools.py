"""The pools of a dispatcher: what runs its handlers, one pool for each kind of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from astyqueue.clock import Clock
from astyqueue.dispatch.execution.batch_execution import perform_batch
from astyqueue.dispatch.execution.delivery_execution import HandlerExecutions
from astyqueue.dispatch.execution.waiting_lines import Pool, WaitingLines
from astyqueue.dispatch.handlers.handler import Kind, LineKey
from astyqueue.dispatch.running_executions import BegunExecution, Execution
from astyqueue.dispatch.slots import FreeSlots, SlotPool
from astyqueue.dispatch.stacks import stack_of
from astyqueue.durations import as_microseconds
from astyqueue.errors import ThreadsDied
from astyqueue.queue.delivery.base_delivery import DeliveryFactory
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue

if TYPE_CHECKING:
    import asyncio

    from astyqueue.dispatch.execution.asyncio_execution import CallersLoop, CoroutinePool
    from astyqueue.dispatch.processes.children import ProcessChildren

#: The default number of coroutines in flight.
IN_FLIGHT: Final = 1_000
#: A coroutine that keeps the event loop for longer than this is logged, unless another time is given.
BLOCKED_AFTER: Final = "1s"


@dataclass(frozen=True, slots=True)
class CoroutineOptions:
    """How many coroutines are in flight at most, and for how long one may keep the event loop (microseconds)."""

    in_flight: int = IN_FLIGHT
    blocked_after: int = as_microseconds(BLOCKED_AFTER)


class HandlerPools:
    """The threads of a dispatcher, its coroutines and its processes; and a thread for each batch handler of a queue.

    A pool other than that of the threads is made when a queue first has a handler for it.
    """

    def __init__(
        self,
        threads: int,
        clock: Clock,
        *,
        coroutines: CoroutineOptions | None = None,
        children: ProcessChildren | None = None,
    ) -> None:
        """Nothing runs yet. `children` run handlers for processes."""
        self.clock = clock
        self.threads_of_handlers: SlotPool = SlotPool(threads, FreeSlots(), clock)
        self._options = coroutines or CoroutineOptions()
        self._children = children
        self._lock = threading.Lock()
        self._slots: list[SlotPool] = [self.threads_of_handlers]
        self._processes: SlotPool | None = None
        self._coroutines: CoroutinePool | None = None
        self._callers_loop: CallersLoop | None = None
        self._on_change: Callable[[], None] | None = None
        self._started = self._shut = False

    def __repr__(self) -> str:
        """Its pools."""
        return f"<HandlerPools: {', '.join(map(repr, self))}>"

    def __iter__(self) -> Iterator[SlotPool | CoroutinePool]:
        """All pools there are."""
        yield from tuple(self._slots)
        if self._coroutines is not None:
            yield self._coroutines

    @property
    def size(self) -> int:
        """The number of threads that handlers share."""
        return self.threads_of_handlers.size

    @property
    def sizes(self) -> dict[str, int]:
        """How many handlers of each kind can run at a time, of those for which there is a pool."""
        with self._lock:
            sizes = {Kind.THREAD.value: self.size}
            if self._coroutines is not None:
                sizes[Kind.ASYNCIO.value] = self._coroutines.size
            if self._processes is not None:
                sizes[Kind.PROCESS.value] = self._processes.size
            batches = [pool for pool in self._slots if pool not in (self.threads_of_handlers, self._processes)]
            return sizes | ({"batch": len(batches)} if batches else {})

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All threads in which handlers run."""
        return tuple(thread for pool in self for thread in pool.threads)

    def of(self, line: LineKey) -> Pool:
        """The pool that runs the handlers of such a line; a new one for a batch handler."""
        with self._lock:
            match line:
                case Kind.THREAD:
                    return self.threads_of_handlers
                case Kind.ASYNCIO:
                    return self._coroutine_pool()
                case Kind.PROCESS:
                    return self._process_pool()
            return self._added(SlotPool(1, FreeSlots(), self.clock))

    def _process_pool(self) -> SlotPool:
        if self._processes is None:
            count = self._children.count if self._children is not None else 1
            self._processes = self._added(SlotPool(count, FreeSlots(), self.clock))
        return self._processes

    def _added(self, pool: SlotPool) -> SlotPool:
        self._slots.append(pool)
        self._begin(pool)
        return pool

    def _coroutine_pool(self) -> CoroutinePool:
        if self._coroutines is None:
            from astyqueue.dispatch.execution.asyncio_execution import CoroutinePool  # noqa: PLC0415 - asyncio costs 50 ms

            options = self._options
            self._coroutines = CoroutinePool(
                options.in_flight, blocked_after=options.blocked_after, callers_loop=self._callers_loop
            )
            self._begin(self._coroutines)
        return self._coroutines

    def _begin(self, pool: SlotPool | CoroutinePool) -> None:
        if self._on_change is not None:
            pool.on_change = self._on_change
        if self._started:
            try:
                pool.start()
            except RuntimeError:  # no thread can be started: the monitor tries again, and says why it cannot
                pool.on_change()
        if self._shut:  # the last claim of a queue has brought the first message for it
            pool.shut()

    def perform_batch(self, handling: HandlerExecutions, executions: list[BegunExecution]) -> BaseException | None:
        """Call a batch handler, in this thread or on the event loop; returns the error it raised, if any."""
        if executions[0].handler.kind is not Kind.ASYNCIO:
            return perform_batch(executions)
        with self._lock:
            coroutines = self._coroutine_pool()
        return coroutines.perform_batch(handling, executions)

    @staticmethod
    def awaited(queue: MessageQueue) -> DeliveryFactory:
        """Makes the deliveries that `async def` handlers get."""
        from astyqueue.dispatch.execution.asyncio_execution import awaited_deliveries  # noqa: PLC0415 - asyncio costs 50 ms

        return awaited_deliveries(queue)

    def move_to(self, callers_loop: CallersLoop) -> None:
        """Run coroutines in this event loop, and not in that of the process; called before the start."""
        with self._lock:
            self._callers_loop = callers_loop
            if self._coroutines is not None:
                self._coroutines.move_to(callers_loop)

    @property
    def run_here(self) -> bool:
        """Whether a handler runs in this thread, or all coroutines do: it must not wait for the end of handlers."""
        return threading.current_thread() in self.threads or (
            self._coroutines is not None and self._coroutines.loops_here
        )

    def runs(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this task runs a handler."""
        return self._coroutines is not None and self._coroutines.runs(task)

    def interrupt(self, delivery: Delivery) -> None:
        """Cancel the coroutine of a delivery."""
        if self._coroutines is not None:
            self._coroutines.interrupt(delivery)

    def stack_of(self, execution: Execution) -> str:
        """The stack of what runs the handler of an execution; empty for one in a child process."""
        kind = execution.handler.kind if execution.handler else Kind.THREAD
        match kind:
            case Kind.ASYNCIO:
                return self._coroutines.stack_of(execution.delivery) if self._coroutines is not None else ""
            case Kind.PROCESS:
                return ""
        return stack_of(execution.thread)

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this when a thread died and, once they were shut, when one has left or the last coroutine has ended."""
        with self._lock:
            self._on_change = on_change
            for pool in self:
                pool.on_change = on_change

    def start(self) -> None:
        """Start the pools, and the processes."""
        with self._lock:
            self._started = True
            if self._children is not None:
                self._children.start()
            for pool in reversed([*self]):  # coroutines first: a slot that gathered a batch may call for one
                pool.start()

    def replace_dead(self) -> ThreadsDied | None:
        """Start a thread for each that died or is missing; an error at the eleventh death of a pool within a minute."""
        errors = [pool.replace_dead() for pool in tuple(self._slots)]
        with self._lock:
            if self._started and self._coroutines is not None:
                self._coroutines.start()
        return next(filter(None, errors), None)

    def is_idle(self, held: Mapping[Pool, int]) -> bool:
        """Whether no handler runs in any pool, except in the threads that are `held` by handlers that were given up."""
        slots_are_idle = all(pool.is_idle(held.get(pool, 0)) for pool in tuple(self._slots))
        return slots_are_idle and (self._coroutines is None or self._coroutines.is_idle())

    def is_beginning(self, begun: Container[int]) -> bool:
        """Whether a delivery was taken whose execution has not begun; `begun` are the threads of those that have."""
        filling = self._coroutines is not None and self._coroutines.filling
        return filling or any(pool.is_beginning(begun) for pool in tuple(self._slots))

    @staticmethod
    def is_busy_with(lines: WaitingLines) -> bool:
        """Whether a handler of this queue runs, or may just begin."""
        return any(line.pool.is_busy_with(line) for line in lines)

    @staticmethod
    def remove_queue(lines: WaitingLines) -> None:
        """Take no more deliveries of this queue."""
        for line in lines:
            line.pool.remove_line(line)

    def forget_queue(self, lines: WaitingLines) -> None:
        """Forget a queue of which nothing runs any more, and end the threads of its batch handlers."""
        for line in lines:
            line.pool.forget_line(line)
            if isinstance(line.pool, SlotPool) and line.pool not in (self.threads_of_handlers, self._processes):
                line.pool.shut()
                self._slots.remove(line.pool)

    def shut(self) -> None:
        """Have all threads end when they find nothing to take."""
        with self._lock:
            self._shut = True
            pools = [*self]
        for pool in pools:
            pool.shut()

    def close(self) -> None:
        """End the processes, and the watch over the event loop."""
        if self._coroutines is not None:
            self._coroutines.close()
        if self._children is not None:
            self._children.close()
