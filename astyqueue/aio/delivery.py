"""A message in a task's hand, and the right to say what became of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Self

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.protocol.picking import Held
from astyqueue.queue.holding import Handed, Hold, Kind
from astyqueue.queue.terms import Terms, Together, raise_lost, rejected, told

Settler = Callable[[list[tuple[Handed, Settling]]], Awaitable[list[Handed]]]
Receive = Callable[[], Awaitable["Received"]]
Keep = Callable[[], Coroutine[None, None, None]]


class Later(NamedTuple):
    """Acks that nobody waits for: how one is handed in, and how all that were are committed."""

    ack: Callable[[Delivery], None]
    flush: Callable[[], Awaitable[None]]


class Delivery(Handed):
    """One handing-over of a message. What settles it is durable when it returns; a receipt no longer current raises LeaseLost."""

    __slots__ = ("_settler", "_terms")

    _settler: Settler
    _terms: Terms

    @classmethod
    def settled_by(cls, settler: Settler, terms: Terms) -> Kind:
        """Makes deliveries that this settler settles on these terms."""

        def handed(row: str, held: Held, hold: Hold | None) -> Handed:
            delivery = cls(row, held, hold)
            delivery._settler = settler
            delivery._terms = terms
            return delivery

        return handed

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
        await self._settle(rejected(reason, self.attempt))

    async def _settle(self, outcome: Settling) -> None:
        raise_lost(await self._settler([(self, outcome)]))

    async def __aenter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Settle what was not settled inside."""
        if not self.settled:
            self.error = error
            await (self.ack() if error is None else self.fail(told(error)))


class Received(Together[Delivery]):
    """Deliveries that were received together; `async with` settles them together on leaving, as in `astyqueue`.

    That is, those that were reached; what lies behind a `break` or an error is given back.
    """

    def __init__(self, deliveries: list[Delivery], settler: Settler, terms: Terms) -> None:
        """Hold what was received."""
        super().__init__(deliveries, terms)
        self._settler = settler

    async def ack(self, deliveries: Iterable[Delivery] | None = None) -> None:
        """Ack these, or all that are not settled yet, together: one commit for what was claimed together.

        LeaseLost names those that were no longer held, and says nothing of the others, which are done.
        """
        if acks := self.acks(deliveries):
            raise_lost(await self._settler(acks))

    @staticmethod
    async def ack_if_unsettled(delivery: Delivery) -> None:
        """Take going on to the next for an ack."""
        if not delivery.settled:
            await delivery.ack()

    async def __aenter__(self) -> Self:
        """Settle together on leaving."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ack, or give back, what was not settled inside; LeaseLost names what was no longer held."""
        outcomes = self.on_leaving(error)
        raise_lost(await self._settler(outcomes) if outcomes else [], unless=error)


class Deliveries:
    """An endless `async for` over deliveries of a queue; it ends when the queue is closed.

    One that is forgotten, as by leaving its loop early, is closed soon after by the event loop.
    """

    def __init__(self, receive: Receive, keep: Keep, later: Later | None) -> None:
        """`receive` waits for the next deliveries; `keep` renews leases until it is cancelled; without `later` each ack is waited for."""
        self._stream = _Stream(receive, keep, later)

    def __aiter__(self) -> Self:
        """Go on from where it is."""
        return self

    async def __anext__(self) -> Delivery:
        """Ack the delivery before, if it was not settled, and wait for the next."""
        if self._stream.over:
            raise StopAsyncIteration
        try:
            return await self._stream.following()
        except Closed as closed:
            raise StopAsyncIteration from closed

    async def aclose(self) -> None:
        """Give back what is in hand; the delivery that was being worked on counts as a failed attempt."""
        await self._stream.close()

    def __del__(self) -> None:
        """Have the event loop close it."""
        self._stream.forget()


class _Stream:
    """What outlives endless deliveries that are forgotten: those in hand, and who renews them."""

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
        """Close in the event loop, from whatever thread; with the loop everything ends that would renew."""
        if self._loop and not self.over:
            with contextlib.suppress(RuntimeError):  # that loop was closed before
                self._loop.call_soon_threadsafe(self._close_soon)

    def _close_soon(self) -> None:
        self._closing = asyncio.ensure_future(self.close())
