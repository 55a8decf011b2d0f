"""The lines of a queue: its deliveries that wait, apart by what runs their handlers.

A store hands out the messages of a queue in one order, whatever their tasks, so a claim may bring some for a kind of
handlers that has no place. These wait in their line while the other lines go on; once a line holds more than it has
places, or 64, nothing is claimed until it shrinks. Tasks that often fill their kind deserve a queue of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from astyqueue.dispatch.execution.batch_execution import BatchExecutions
from astyqueue.dispatch.execution.delivery_execution import HandlerExecutions
from astyqueue.dispatch.flow_control import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.handlers.handler import TASK, Kind, LineKey
from astyqueue.dispatch.handlers.handler_registry import HandlerRegistry
from astyqueue.dispatch.running_executions import BegunExecution, Execution
from astyqueue.dispatch.slots import ClaimCredit, Executions, FreeSlots, ReadyDeliveries
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.queue.delivery.base_delivery import BaseDelivery, DeliveryFactory, Lease
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue

#: The most deliveries that wait for a kind without a free place, before nothing is claimed.
_OVERFLOW: Final = 64


class Pool(Protocol):
    """What runs the handlers of lines: slots that are threads, or coroutines."""

    @property
    def size(self) -> int:
        """How many handlers run at a time."""

    @property
    def free(self) -> FreeSlots:
        """Which of them have nothing to do."""

    @property
    def ended(self) -> bool:
        """Whether no delivery will be taken any more."""

    def add_line(self, line: WaitingLine, /) -> None:
        """Take deliveries of this line from now on."""

    def remove_line(self, line: WaitingLine, /) -> None:
        """Take no more of them."""

    def forget_line(self, line: WaitingLine, /) -> None:
        """Forget a line of which nothing runs any more."""

    def is_busy_with(self, line: WaitingLine, /) -> bool:
        """Whether a handler of this line runs, or may just begin."""


class Pools(Protocol):
    """The pools of a dispatcher."""

    def of(self, line: LineKey) -> Pool:
        """The pool that runs the handlers of such a line; one of its own for a batch handler."""

    def awaited(self, queue: MessageQueue) -> DeliveryFactory:
        """Makes the deliveries that `async def` handlers get."""

    def stack_of(self, execution: Execution, /) -> str:
        """The stack of what runs the handler of an execution."""

    def perform_batch(self, handling: HandlerExecutions, executions: list[BegunExecution], /) -> BaseException | None:
        """Call a batch handler; returns the error it raised, if any."""


@dataclass(slots=True, eq=False)
class WaitingLine:
    """The deliveries of one queue for handlers of one kind, or for one batch handler.

    `executions` is what a slot calls with a delivery; `handling` are the executions of the queue.
    """

    name: str
    weight: int
    handling: HandlerExecutions
    executions: Executions
    ready: ReadyDeliveries
    credit: ClaimCredit
    pool: Pool
    prefetch: AdaptivePrefetch

    @property
    def overflows(self) -> bool:
        """Whether the line exceeds both its bound and its pool's size."""
        return len(self.ready) > self.prefetch.bound + min(self.pool.size, _OVERFLOW)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How much of the slots a queue gets.

    `weight`: its turns while several queues have messages. `threads`: at most this number of slots run its handlers
    (None: all). `backlog`: how many deliveries wait for a slot (None: adapted to how quick the handlers are). `limit`:
    at most this number of its messages are in this process at the same time, whatever runs them (None: no limit). A
    queue `from_pattern` was found by a pattern, and leaves when it is dropped.
    """

    weight: int = 1
    threads: int | None = None
    backlog: int | None = None
    limit: int | None = None
    from_pattern: bool = False


class WaitingLines:
    """The lines of one queue. Each is made when a handler for it is known."""

    def __init__(
        self,
        queue: MessageQueue,
        registry: HandlerRegistry,
        pools: Pools,
        *,
        options: QueueOptions,
        quota: MessageQuota,
    ) -> None:
        """Nothing waits. All lines share the executions of the queue and the `quota` of the dispatcher."""
        self._queue = queue
        self._registry = registry
        self._pools = pools
        self._options = options
        self._quota = quota
        # Both also answer once the queue is closed: its claims may rest once more after that.
        self._scheduler, self._now = queue.core.scheduler, queue.core.process.now
        self._lock = threading.Lock()
        self._lines: dict[LineKey, WaitingLine] = {}
        self._started = self._shut = False
        size = pools.of(Kind.THREAD).size
        #: The most of its handlers that run in threads at a time.
        self.threads = min(options.threads or size, size)
        self._limit = None if self.threads == size else self.threads
        prefetch = AdaptivePrefetch(self.threads, queue.settings.behaviour.lease_us, options.backlog)
        self.executions = HandlerExecutions(queue, registry, prefetch, quota)
        self.executions.stack_of = pools.stack_of
        self._prefetches: dict[LineKey, AdaptivePrefetch] = {Kind.THREAD: prefetch}
        for key in registry.lines:
            # A batch handler has a thread in each of its queues: in those of a pattern only once it has a message.
            if not (options.from_pattern and registry.batch_of(key)):
                self._line(key)

    def _line(self, key: LineKey) -> WaitingLine:
        """The line for this key, which is made if need be."""
        with self._lock:
            if (line := self._lines.get(key)) is None:
                line = self._lines[key] = self._made(key)
                self._quota.count_line(line.ready)
                if self._shut:  # a claim was under way
                    _shut(line)
                if self._started:
                    line.pool.add_line(line)
            return line

    def _made(self, key: LineKey) -> WaitingLine:
        queue, pool, executions = self._queue, self._pools.of(key), self.executions
        batch = self._registry.batch_of(key)
        if (prefetch := self._prefetches.get(key)) is None:
            waiting = batch.size if batch else self._options.backlog
            prefetch = self._prefetches[key] = AdaptivePrefetch(pool.size, queue.settings.behaviour.lease_us, waiting)
            executions.line_took[key] = prefetch.took
        ready = ReadyDeliveries(queue.clock, prefetch, self._limit if key is Kind.THREAD else None)
        credit = ClaimCredit(pool.free, ready, prefetch, weight=self._options.weight, wake=queue.core.claimer.wake)
        perform = self._pools.perform_batch
        carries = BatchExecutions(executions, ready.manager, batch, queue.clock, perform) if batch else executions
        return WaitingLine(
            name=queue.name,
            weight=self._options.weight,
            handling=executions,
            executions=carries,
            ready=ready,
            credit=credit,
            pool=pool,
            prefetch=prefetch,
        )

    def __iter__(self) -> Iterator[WaitingLine]:
        """All lines there are."""
        return iter(tuple(self._lines.values()))

    def __len__(self) -> int:
        """The number of deliveries that wait."""
        return sum(len(line.ready) for line in self)

    @property
    def to_be_taken(self) -> int:
        """The number of deliveries that wait and that a pool will take, also once the pools were shut."""
        return sum(len(line.ready) for line in self if not line.pool.ended)

    @property
    def gathers(self) -> bool:
        """Whether a slot gathers a batch: its deliveries have left the line, and their executions have not begun."""
        return any(isinstance(line.executions, BatchExecutions) and line.executions.gathers for line in self)

    @property
    def held_by_batches(self) -> list[Pool]:
        """The pools whose slot a batch handler holds that was given up."""
        batches = ((line.pool, line.executions) for line in self)
        return [pool for pool, one in batches if isinstance(one, BatchExecutions) and one.given_up]

    @property
    def overflowing(self) -> list[LineKey]:
        """The lines that overflow beside others: nothing is claimed while there is one."""
        lines = tuple(self._lines.items())
        return [key for key, line in lines if line.overflows] if len(lines) > 1 else []

    def start(self) -> None:
        """Have the pools take deliveries."""
        with self._lock:
            self._started = True
            lines = [*self._lines.values()]
        for line in lines:
            line.pool.add_line(line)

    def credit(self) -> int:
        """How many messages may be claimed now: as many as all lines may, unless one of them overflows."""
        if not self._lines:  # the first message makes the line of a batch handler
            return 0 if self._shut else 1
        credits_ = [line.credit.credit() for line in self]
        return 0 if self.overflowing else sum(credits_)

    def accept(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Add claimed deliveries; returns those to give back because it was shut."""
        if (only := self._registry.only_line) is not None:
            return _accepted(self._line(only), deliveries)
        sorted_in: dict[LineKey, list[Delivery]] = {}
        for delivery in deliveries:
            sorted_in.setdefault(self._registry.line_of(delivery.headers.get(TASK)), []).append(delivery)
        return [late for key, found in sorted_in.items() for late in _accepted(self._line(key), found)]

    @property
    def delivery_factory(self) -> DeliveryFactory:
        """Makes deliveries: for `async def` handlers those whose calls are awaited, for all others those that block."""
        registry, plain = self._registry, self._queue.delivery
        awaited: DeliveryFactory | None = None

        def made(row: str, claimed: Sequence[ClaimedMessage], lease: Lease | None) -> list[BaseDelivery]:
            nonlocal awaited
            if not registry.awaited_lines:
                return plain(row, claimed, lease)
            awaited = awaited or self._pools.awaited(self._queue)
            deliveries: list[BaseDelivery] = []
            for one in claimed:
                line = registry.line_of((one.envelope.headers or {}).get(TASK))
                deliveries += (awaited if line in registry.awaited_lines else plain)(row, (one,), lease)
            return deliveries

        return made

    def hoarded(self) -> list[Delivery]:
        """The deliveries to give back because none of their line was taken for too long."""
        return [delivery for line in self for delivery in line.ready.hoarded()]

    def end_promises(self) -> None:
        """Release the slots that were promised: the claim thread has nothing to do for this queue now."""
        wants = not self._scheduler.has_nothing_due(self._now())
        for line in self:
            line.credit.end_promise(wants=wants)

    def shut(self) -> list[Delivery]:
        """Accept no more; returns the deliveries to give back. At-most-once ones stay, to be handled."""
        with self._lock:
            self._shut = True
        return [delivery for line in self for delivery in _shut(line)]

    def abandon(self) -> list[Delivery]:
        """Remove and return all waiting deliveries."""
        return [delivery for line in self for delivery in line.ready.abandon()]

    def forget(self) -> None:
        """Count no deliveries that wait any more."""
        for line in self:
            self._quota.forget_line(line.ready)


def _shut(line: WaitingLine) -> list[Delivery]:
    """Have a line accept no more; returns the deliveries to give back."""
    line.credit.shut()
    given_back = line.ready.shut()
    if isinstance(line.executions, BatchExecutions):
        line.executions.shut()
    return given_back


def _accepted(line: WaitingLine, deliveries: list[Delivery]) -> list[Delivery]:
    line.credit.arrived(len(deliveries))
    return line.ready.accept(deliveries)
