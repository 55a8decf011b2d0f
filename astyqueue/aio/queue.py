"""The queue for tasks of an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, cast

from astyqueue.aio.delivery import Deliveries, Delivery, Later, Received
from astyqueue.aio.operations import Operations
from astyqueue.durations import Duration, as_microseconds
from astyqueue.model.checks import check_count
from astyqueue.model.outgoing import Message
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.protocol.steps import arun
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.core import Core, Taking
from astyqueue.queue.holding import Handed
from astyqueue.queue.keeper import keep
from astyqueue.queue.producer import SendReport, Sent, as_message
from astyqueue.queue.scheduling import Scheduling, own_policies, policies_without_trigger
from astyqueue.queue.stats import Stats
from astyqueue.store import Store
from astyqueue.stores.threaded import Threaded
from astyqueue.triggers import Trigger


class MessageQueue(Operations):
    """A queue for tasks of an event loop; see `astyqueue.MessageQueue` for what it promises."""

    def __init__(self, core: Core, store: Store, *, owns_store: bool = False) -> None:
        """Use `MessageQueue.builder()` or `(await connect(url)).queue(name)`."""
        super().__init__(core, Threaded(store))
        self._owns_store = owns_store

    @staticmethod
    def builder() -> QueueBuilder[Awaitable[MessageQueue]]:
        """Say what queue you want, then `await ….build()` it."""
        return QueueBuilder(_build)

    @property
    def stats(self) -> Stats:
        """What this process did with the queue."""
        return self._core.claimer.stats

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
        unique: str | None = None,
        trigger: Trigger | None = None,
        misfire: str | None = None,
        overlap: str | None = None,
    ) -> Sent:
        """Send one message (a body, or a `Message` with its own options); it is not lost any more when this returns.

        Of the messages that are sent with `unique`, at most one has this key. What becomes of this one while another has it:
        "reject" raises KeyTaken; "keep" sends nothing and returns the other's id, with `new` False; "replace" and "debounce"
        cancel the other, and the new one is due when that was, or as it says itself. One that is worked on is never
        cancelled: KeyTaken is raised. OutcomeUnknown says that it may have been sent.

        With a `trigger` it comes again at each slot, one run after the other, until the trigger ends, or `delete` of the id
        of any run or `stop` of its key ends it; a unique key is its own until then. Without `unique`, ScheduleTaken is raised
        if its key is the name of a schedule. Slots that were missed, or that come while the run before has not ended, are made up for
        one after the other; `misfire` and `overlap` say otherwise, in the words of schedules.
        """
        message = as_message(body, Message(None, key, delay, at, priority, headers, expires, lease, max_attempts, unique))
        if trigger is not None:
            return await self.run(Scheduling(self.core).send(message, trigger, own_policies(message, misfire, overlap)))
        if misfire is not None or overlap is not None:
            raise policies_without_trigger()
        return await self.run(self.core.send(message))

    async def send_many(
        self, items: Iterable[object], *, priority: int = 0, delay: Duration | None = None, headers: Mapping[str, str] | None = None
    ) -> SendReport:
        """Send bodies, or `Message`s with options of their own, in bounded memory; the ids come back in order."""
        options = Message(None, delay=delay, priority=priority, headers=headers)
        return await self.run(self.core.send_many(items, options))

    async def receive(self, limit: int = 1, wait: Duration | None = None) -> Received:
        """Up to `limit` deliveries that are due; with `wait`, at least one unless that long passes without any.

        They come from one row, so they may be fewer although more are due, and never more than 200; ask again for the rest. `ack()` of
        the result settles them together.
        """
        return Received(await self._take(limit, 0 if wait is None else as_microseconds(wait)), self._settle, self._core.terms)

    def deliveries(self, *, ahead: int = 1) -> Deliveries:
        """Endless deliveries, their leases renewed while held, up to `ahead` of them claimed together.

        Going on to the next acks the one before, if it was not settled: it is done when the next one comes, or with more than one
        `ahead` a few milliseconds later, many in one commit (then `stats.lost` and hooks tell of leases that were lost, and nothing is
        raised). Leaving the loop, by an error or otherwise, counts as a failed attempt of the one in hand unless it was settled, and
        those behind it are given back: before the loop is left if that is done under `contextlib.aclosing`, otherwise soon after, as
        the event loop closes what was forgotten.
        """
        several = check_count(ahead, "deliveries cannot be received") > 1
        return Deliveries(functools.partial(self._received, ahead), self._keep, self._later if several else None)

    async def _keep(self) -> None:
        await self.run(keep(self.core.claimer, self.core.clock, lambda: False))

    @property
    def _later(self) -> Later:
        """How outcomes are handed in that nobody waits for."""

        async def flush() -> None:
            await self.run(self.core.claimer.flush())

        return Later(lambda delivery: self.core.claimer.settle_later(delivery, ACK), flush)

    async def _received(self, limit: int) -> Received:
        return Received(await self._take(limit, None, renew=True), self._settle, self._core.terms)

    async def _take(self, limit: int, wait: int | None, *, renew: bool = False) -> list[Delivery]:
        core = self.core
        order = Taking(limit, wait, Delivery.settled_by(self._settle, core.terms), renew)
        try:
            return cast("list[Delivery]", await self.run(core.take(order)))
        except asyncio.CancelledError:
            core.give_back(order)
            raise

    async def _settle(self, outcomes: list[tuple[Handed, Settling]]) -> list[Handed]:
        return await self.run(self.core.claimer.settle(outcomes))

    async def close(self) -> None:
        """Commit what was handed in, and let go; what is still held is handed out again when its lease runs out."""
        if self._core.closed:
            return
        try:
            await self.run(self.core.claimer.flush())
        finally:
            self._core.close()
            if self._owns_store:
                await self.store.close()

    async def __aenter__(self) -> Self:
        """Close the queue on leaving the block."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `close`."""
        await self.close()


async def _build(builder: QueueBuilder[Awaitable[MessageQueue]]) -> MessageQueue:
    store = await asyncio.to_thread(builder.open_store)
    try:
        core = await arun(builder.opening(store.spread), Threaded(store))
    except BaseException:
        if builder.owns_store:
            await asyncio.to_thread(store.close)
        raise
    return MessageQueue(core, store, owns_store=builder.owns_store)
