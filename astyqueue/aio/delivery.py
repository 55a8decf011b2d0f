# Written by `make aio` from astyqueue/queue/delivery/delivery.py: change that, or tools/async_classes/twins.py.
"""Deliveries and batches of them, for tasks of an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from astyqueue.durations import Duration, as_microseconds
from astyqueue.model.message import Message, as_message
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.settling.outcomes import ACK, Outcome
from astyqueue.queue.delivery.base_delivery import BaseDelivery, DeliveryFactory, Lease
from astyqueue.queue.delivery.batch import DeliveryBatch, raise_lost
from astyqueue.queue.delivery.follow_ups import Destination, FollowUpQueue, follow_ups_of
from astyqueue.queue.delivery.retry_policy import RetryPolicy, error_text, rejected

Settler = Callable[[list[tuple[BaseDelivery, Outcome]]], Awaitable[list[BaseDelivery]]]


class Delivery(BaseDelivery):
    """One delivery of a message. A settle is durable when its call returns; LeaseLost if the receipt is not current."""

    __slots__ = ("_queue", "_retry_policy", "_settler")

    _settler: Settler
    _retry_policy: RetryPolicy
    _queue: FollowUpQueue

    @classmethod
    def settled_by(cls, settler: Settler, retry_policy: RetryPolicy, queue: FollowUpQueue) -> DeliveryFactory:
        """A factory of deliveries of `queue` that `settler` settles under the policy `retry_policy`."""

        def handed(row: str, claimed: Sequence[ClaimedMessage], lease: Lease | None) -> list[BaseDelivery]:
            deliveries: list[BaseDelivery] = []
            for one in claimed:
                delivery = cls(row, one, lease)
                delivery._settler = settler
                delivery._retry_policy = retry_policy
                delivery._queue = queue
                deliveries.append(delivery)
            return deliveries

        return handed

    async def ack(self) -> None:
        """Ack: the message is done and is removed."""
        await self._settle(ACK)

    async def release(self, delay: Duration | None = None) -> None:
        """Give it back for redelivery at once or after `delay`; this costs no attempt."""
        await self._settle(self._retry_policy.release(self, delay))

    async def fail(self, reason: str = "failed", delay: Duration | None = None) -> None:
        """Count a failed attempt and redeliver after `delay` (default: the queue's backoff).

        The last attempt makes a dead letter.
        """
        pause = None if delay is None else as_microseconds(delay)
        await self._settle(self._retry_policy.failed(self, reason, pause=pause))

    async def extend(self, by: Duration) -> datetime | None:
        """Extend the lease to `by` from now (it is never shortened); returns the end of the lease."""
        await self._settle(self._retry_policy.extend(by))
        return self.lease_until

    async def reject(self, reason: str = "rejected") -> None:
        """Make it a dead letter with this reason."""
        await self._settle(rejected(reason, self.attempt))

    def then(
        self,
        body: object,
        *,
        queue: Destination | None = None,
        key: str | None = None,
        group: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
    ) -> None:
        """Have a message (a body, or a `Message`) sent when this delivery is acked, and only then; call it before.

        In the same row of this queue it is sent in the commit of the ack: both happen, or neither. In another row, or
        in `queue`, one of the same connection, it is sent before the ack, at least once: a later attempt that calls
        `then` alike sends no second message, unless the two differ in body, options or moment. The options are those
        of `send`, `delay` counts from this call, and there are no unique keys.
        """
        options = Message(
            body=None,
            key=key,
            group=group,
            delay=delay,
            at=at,
            priority=priority,
            headers=headers,
            expires=expires,
            lease=lease,
            max_attempts=max_attempts,
        )
        self._add_follow_up(as_message(body, options), queue)

    def _add_follow_up(self, message: Message, queue: Destination | None) -> None:
        self.add_follow_up(message, self._queue, self._queue if queue is None else follow_ups_of(queue))

    async def _settle(self, outcome: Outcome) -> None:
        raise_lost(await self._settler([(self, outcome)]))

    async def __aenter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack, or fail after an error, unless it was settled inside."""
        self.error = error
        if not self.settled:
            await self.ack() if kind is None else await self.fail(error_text(error))


class Received(DeliveryBatch[Delivery]):
    """Deliveries that were received together; as a context manager it settles them together on leaving.

    Leaving without an error, also by `break` or `return`, acks the deliveries that were reached and not settled inside;
    an error counts as a failed attempt of each. Those that were not reached are given back at once and lose no attempt.
    A delivery is reached if the last loop came to it or if it was taken by its index; if none was, all count as
    reached.
    """

    def __init__(
        self,
        deliveries: list[Delivery],
        settler: Settler,
        retry_policy: RetryPolicy,
        give_back: Callable[[BaseDelivery], None],
    ) -> None:
        """`settler` commits outcomes; `retry_policy` decides on retries; `give_back`: see `DeliveryBatch`."""
        super().__init__(deliveries, retry_policy, give_back)
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
