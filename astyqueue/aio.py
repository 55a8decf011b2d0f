"""The same queue, awaited: the names of `astyqueue`, and what talks to a store is a coroutine.

It runs the very steps that threads run, so the two may share a store, a process and a queue.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar, cast

from astyqueue.clock import Clock, SystemClock
from astyqueue.model.durations import Duration, as_microseconds
from astyqueue.model.outgoing import Message
from astyqueue.model.settings import Settings
from astyqueue.protocol.picking import Held
from astyqueue.protocol.settings import list_queues
from astyqueue.protocol.settle import ACK, Reject, Settling
from astyqueue.protocol.steps import Steps, arun
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.core import Core, Taking
from astyqueue.queue.holding import Handed, Hold, Seat
from astyqueue.queue.producer import SendReport, Sent, as_message
from astyqueue.queue.stats import Stats
from astyqueue.queue.terms import Terms, Together, raise_lost, told
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.stores.threaded import Threaded

T = TypeVar("T")
Settler = Callable[[list[tuple[Handed, Settling]]], Awaitable[list[Handed]]]


class Delivery(Handed):
    """One handing-over of a message. What settles it is durable when it returns; a receipt no longer current raises LeaseLost."""

    __slots__ = ("_settler", "_terms")

    def __init__(self, row: str, held: Held, hold: Hold | None, *, settler: Settler, terms: Terms) -> None:
        """Hand over a message that `settler` settles."""
        super().__init__(row, held, hold)
        self._settler = settler
        self._terms = terms

    async def ack(self) -> None:
        """Done: the message goes."""
        await self._settle(ACK)

    async def release(self, delay: Duration | None = None) -> None:
        """Give it back, to be handed out again at once or after a delay; this costs no attempt."""
        await self._settle(self._terms.release(self, delay))

    async def fail(self, reason: str = "failed", delay: Duration | None = None) -> None:
        """Give it back after a failed attempt: after a delay, or the queue's backoff; the last attempt makes a dead letter."""
        pause = None if delay is None else as_microseconds(delay)
        await self._settle(self._terms.failed(self, reason, pause=pause))

    async def extend(self, by: Duration) -> datetime | None:
        """Keep it for so long from now (a lease is never shortened); until when it is held then."""
        await self._settle(self._terms.extend(by))
        return self.lease_until

    async def reject(self, reason: str = "rejected") -> None:
        """Make it a dead letter, with this reason."""
        await self._settle(Reject("rejected", reason, self.attempt))

    async def _settle(self, outcome: Settling) -> None:
        raise_lost(await self._settler([(self, outcome)]))

    async def __aenter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Settle what was not settled inside."""
        if not self.settled:
            await (self.ack() if error is None else self.fail(told(error)))


class Received(Together[Delivery]):
    """Deliveries that were received together; `async with` settles them together on leaving, as in `astyqueue`."""

    def __init__(self, deliveries: list[Delivery], settler: Settler, terms: Terms) -> None:
        """Hold what was received."""
        super().__init__(deliveries, terms)
        self._settler = settler

    async def __aenter__(self) -> Self:
        """Settle together on leaving."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ack, or give back, what was not settled inside; LeaseLost names what was no longer held."""
        outcomes = self.on_leaving(error)
        raise_lost(await self._settler(outcomes) if outcomes else [], unless=error)


class MessageQueue:
    """A queue for tasks of an event loop; see `astyqueue.MessageQueue` for what it promises."""

    def __init__(self, core: Core, store: Store, *, owns_store: bool = False) -> None:
        """Use `MessageQueue.builder()` or `(await connect(url)).queue(name)`."""
        self.store = Threaded(store)
        self._core = core
        self._owns_store = owns_store

    @staticmethod
    def builder() -> QueueBuilder[Awaitable[MessageQueue]]:
        """Say what queue you want, then `await ….build()` it."""
        return QueueBuilder(_build)

    @property
    def core(self) -> Core:
        """The parts at work in this process; for those who build on a queue."""
        self._core = self._core.here()
        return self._core

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._core.settings.name

    @property
    def settings(self) -> Settings:
        """How the queue is laid out and how it behaves, as far as this process knows (within ten seconds)."""
        return self._core.settings

    @property
    def stats(self) -> Stats:
        """What this process did with the queue."""
        return self._core.claimer.stats

    async def run(self, steps: Steps[T]) -> T:
        """Carry out steps against this queue's store, in this task."""
        return await arun(steps, self.store)

    async def send(
        self,
        body: object,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
    ) -> Sent:
        """Send one message (a body, or a `Message` with its own options); it is not lost any more when this returns."""
        options = Message(None, key, delay, at, priority, headers, expires, lease, max_attempts)
        return await self.run(self.core.send(as_message(body, options)))

    async def send_many(
        self, items: Iterable[object], *, priority: int = 0, delay: Duration | None = None, headers: Mapping[str, str] | None = None
    ) -> SendReport:
        """Send bodies, or `Message`s with options of their own, in bounded memory; the ids come back in order."""
        options = Message(None, delay=delay, priority=priority, headers=headers)
        return await self.run(self.core.send_many(items, options))

    async def receive(self, limit: int = 1, wait: Duration | None = None) -> Received:
        """Up to `limit` deliveries that are due; with `wait`, at least one unless that long passes without any."""
        return Received(await self._take(limit, 0 if wait is None else as_microseconds(wait)), self._settle, self._core.terms)

    async def deliveries(self, *, ahead: int = 1) -> AsyncIterator[Delivery]:
        """Endless deliveries, their leases renewed while held, up to `ahead` of them claimed together.

        Going on to the next acks the one before, if it was not settled. Close the iterator (`contextlib.aclosing`) to give
        back at once what is in hand when you leave the loop early.
        """
        keeper = asyncio.create_task(self.run(self.core.claimer.serve(Seat(lambda: 0, _nobody), lambda: False)))
        try:
            while True:
                async with await self._received(ahead) as received:
                    for delivery in received:
                        yield delivery
                        await self._ack_if_unsettled(delivery)
        finally:
            keeper.cancel()

    async def _received(self, limit: int) -> Received:
        return Received(await self._take(limit, None, renew=True), self._settle, self._core.terms)

    @staticmethod
    async def _ack_if_unsettled(delivery: Delivery) -> None:
        if not delivery.settled:
            await delivery.ack()

    async def _take(self, limit: int, wait: int | None, *, renew: bool = False) -> list[Delivery]:
        kind = functools.partial(Delivery, settler=self._settle, terms=self._core.terms)
        return cast("list[Delivery]", await self.run(self.core.take(Taking(limit, wait, kind, renew))))

    async def _settle(self, outcomes: list[tuple[Handed, Settling]]) -> list[Handed]:
        return await self.run(self.core.claimer.settle(outcomes))

    async def close(self) -> None:
        """Commit what was handed in, and let go; what is still held is handed out again when its lease runs out."""
        if self._core.closed:
            return
        try:
            await self.run(self.core.claimer.flush())
        finally:
            self._core.closed = True
            if self._owns_store:
                await self.store.close()

    async def __aenter__(self) -> Self:
        """Close the queue on leaving the block."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `close`."""
        await self.close()


def _nobody(_: list[Handed]) -> None:
    """Take nothing: this seat is there so that somebody renews leases."""


async def _build(builder: QueueBuilder[Awaitable[MessageQueue]]) -> MessageQueue:
    store = await asyncio.to_thread(builder.open_store)
    core = await arun(builder.opening(), Threaded(store))
    return MessageQueue(core, store, owns_store=builder.owns_store)


class Connection:
    """An open store and the queues in it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Use `await connect(url)`."""
        self._blocking = store
        self.store = Threaded(store)
        self._clock = clock

    async def queue(self, name: str, **settings: object) -> MessageQueue:
        """The queue of this name, created if it is new; settings are those of `MessageQueue.builder().options(...)`."""
        return await MessageQueue.builder().store(self._blocking).clock(self._clock).name(name).options(**settings).build()

    async def queues(self) -> list[str]:
        """The names of the queues in this store."""
        return await arun(list_queues(), self.store)

    async def close(self) -> None:
        """Close the store, and with it every queue of this connection."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        """Close on leaving the block."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `close`."""
        await self.close()


async def connect(url: str, *, clock: Clock | None = None) -> Connection:
    """Open the store at a URL; see `astyqueue.connect`."""
    clock = clock or SystemClock()
    return Connection(await asyncio.to_thread(functools.partial(open_store, url, clock=clock)), clock)
