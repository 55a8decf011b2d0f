"""Deliveries and batches of them, for tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.settling.outcomes import ACK, Outcome
from astyqueue.queue.delivery import DeliveryBatch, RetryPolicy, error_text, raise_lost, rejected
from astyqueue.queue.leases import BaseDelivery, DeliveryFactory, Lease

Settler = Callable[[list[tuple[BaseDelivery, Outcome]]], Awaitable[list[BaseDelivery]]]
Receive = Callable[[], Awaitable["Received"]]
Keep = Callable[[], Coroutine[None, None, None]]


class Later(NamedTuple):
    """Acks that no task waits for: `ack` buffers one, `flush` commits all that are buffered."""

    ack: Callable[[Delivery], None]
    flush: Callable[[], Awaitable[None]]


class Delivery(BaseDelivery):
    """One delivery of a message. A settle is durable when its call returns; LeaseLost if the receipt is not current."""

    __slots__ = ("_settler", "_terms")

    _settler: Settler
    _terms: RetryPolicy

    @classmethod
    def settled_by(cls, settler: Settler, terms: RetryPolicy) -> DeliveryFactory:
        """A factory of deliveries that `settler` settles under the policy `terms`."""

        def handed(row: str, claimed: Sequence[ClaimedMessage], hold: Lease | None) -> list[BaseDelivery]:
            deliveries: list[BaseDelivery] = []
            for one in claimed:
                delivery = cls(row, one, hold)
                delivery._settler = settler
                delivery._terms = terms
                deliveries.append(delivery)
            return deliveries

        return handed

    async def ack(self) -> None:
        """Ack: the message is done and is removed."""
        await self._settle(ACK)

    async def release(self, delay: Duration | None = None) -> None:
        """Give it back for redelivery at once or after `delay`; this costs no attempt."""
        await self._settle(self._terms.release(self, delay))

    async def fail(self, reason: str = "failed", delay: Duration | None = None) -> None:
        """Count a failed attempt and redeliver after `delay` (default: the queue's backoff).

        The last attempt makes a dead letter.
        """
        pause = None if delay is None else as_microseconds(delay)
        await self._settle(self._terms.failed(self, reason, pause=pause))

    async def extend(self, by: Duration) -> datetime | None:
        """Extend the lease to `by` from now (it is never shortened); returns the end of the lease."""
        await self._settle(self._terms.extend(by))
        return self.lease_until

    async def reject(self, reason: str = "rejected") -> None:
        """Make it a dead letter with this reason."""
        await self._settle(rejected(reason, self.attempt))

    async def _settle(self, outcome: Outcome) -> None:
        raise_lost(await self._settler([(self, outcome)]))

    async def __aenter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack, or fail after an error, unless it was settled inside."""
        if not self.settled:
            self.error = error
            await (self.ack() if error is None else self.fail(error_text(error)))


class Received(DeliveryBatch[Delivery]):
    """Deliveries that were received together; as a context manager it settles them together on leaving.

    Leaving without an error, also by `break` or `return`, acks the deliveries that were reached and not settled inside;
    an error counts as a failed attempt of each. Those that were not reached are given back at once and lose no attempt.
    A delivery is reached if the last loop came to it or if it was taken by its index; if none was, all count as
    reached.
    """

    def __init__(self, deliveries: list[Delivery], settler: Settler, terms: RetryPolicy) -> None:
        """`settler` commits outcomes; `terms` decides on retries."""
        super().__init__(deliveries, terms)
        self._settler = settler

    async def ack(self, deliveries: Iterable[Delivery] | None = None) -> None:
        """Ack these (default: all that are not settled yet) together: one commit for messages claimed together.

        LeaseLost names those whose leases were lost; the others are acked.
        """
        if acks := self.acks(deliveries):
            raise_lost(await self._settler(acks))

    @staticmethod
    async def ack_if_unsettled(delivery: Delivery) -> None:
        """Ack a delivery unless it is settled."""
        if not delivery.settled:
            await delivery.ack()

    async def __aenter__(self) -> Self:
        """Settle together on leaving."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack or give back what was not settled inside; LeaseLost names the deliveries whose leases were lost."""
        outcomes = self.on_leaving(error)
        raise_lost(await self._settler(outcomes) if outcomes else [], unless=error)


class Deliveries:
    """An endless `async for` over deliveries of a queue; it ends when the queue is closed.

    One that is garbage-collected before that, as after its loop was left early, is closed soon after by the event loop.
    """

    def __init__(self, receive: Receive, keep: Keep, later: Later | None) -> None:
        """`receive` waits for the next deliveries; `keep` renews leases until it is cancelled.

        Without `later`, each ack is committed before the next delivery is returned.
        """
        self._stream = _Stream(receive, keep, later)

    def __aiter__(self) -> Self:
        """The iterator itself: a second loop continues after the first."""
        return self

    async def __anext__(self) -> Delivery:
        """Ack the previous delivery unless it was settled, and wait for the next."""
        if self._stream.over:
            raise StopAsyncIteration
        try:
            return await self._stream.following()
        except Closed as closed:
            raise StopAsyncIteration from closed

    async def aclose(self) -> None:
        """Settle what is open: the current delivery as a failed attempt; those behind it are given back."""
        await self._stream.close()

    def __del__(self) -> None:
        """Have the event loop call `aclose`."""
        self._stream.forget()


class _Stream:
    """The state that outlives a garbage-collected `Deliveries`: its open deliveries and the task that renews them."""

    def __init__(self, receive: Receive, keep: Keep, later: Later | None) -> None:
        self.over = False
        self._receive = receive
        self._keep = keep
        self._later = later
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._received: Received | None = None
        self._turns: Iterator[Delivery] = iter(())
        self._in_hand: Delivery | None = None

    async def following(self) -> Delivery:
        self._loop = asyncio.get_running_loop()
        self._keeper = self._keeper or asyncio.create_task(self._keep())
        if self._in_hand and self._later is None:
            await Received.ack_if_unsettled(self._in_hand)
        elif self._in_hand and self._later and not self._in_hand.settled:
            self._later.ack(self._in_hand)
        self._in_hand = await self._next()
        return self._in_hand

    async def _next(self) -> Delivery:
        while (following := next(self._turns, None)) is None:
            self._received = await self._receive()
            self._turns = iter(self._received)
        return following

    async def close(self) -> None:
        self.over = True
        if self._keeper:
            self._keeper.cancel()
        received, self._received = self._received, None
        if received is not None:
            await received.__aexit__(GeneratorExit, GeneratorExit(), None)
            if self._later:
                await self._later.flush()

    def forget(self) -> None:
        """Close in the event loop, from any thread; if that loop is closed, the task that renews has ended with it."""
        if self._loop and not self.over:
            with contextlib.suppress(RuntimeError):  # that loop was closed before
                self._loop.call_soon_threadsafe(self._close_soon)

    def _close_soon(self) -> None:
        self._closing = asyncio.ensure_future(self.close())
