"""Deliveries that were received together: the part that is the same for threads and for tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, overload

from astyqueue.errors import BadInput, LeaseLost
from astyqueue.protocol.settling.outcomes import ACK, Outcome
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.retry_policy import RetryPolicy, error_text

D = TypeVar("D", bound=BaseDelivery)


class DeliveryBatch(Sequence[D]):
    """Deliveries that were received together, and which of them the caller reached.

    A delivery that a loop came to, or that was taken by its index, counts as reached; a new loop starts from none. If
    none was ever reached, the caller counts as having handled them all.
    """

    def __init__(
        self, deliveries: list[D], retry_policy: RetryPolicy, give_back: Callable[[BaseDelivery], None]
    ) -> None:
        """`retry_policy` decides on retries; `give_back` keeps an at-most-once message for the next consumer here."""
        self._deliveries = deliveries
        self._retry_policy = retry_policy
        self._give_back = give_back
        self._reached: set[int] = set()

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[D]: ...
    def __getitem__(self, index: int | slice) -> D | Sequence[D]:
        """One delivery, or a slice of them; they count as reached."""
        places = range(len(self._deliveries))[index]
        self._reached.update(places if isinstance(places, range) else (places,))
        return self._deliveries[index]

    def __len__(self) -> int:
        """The number of deliveries."""
        return len(self._deliveries)

    def __iter__(self) -> Iterator[D]:
        """Each in turn; those returned count as reached, and those of an earlier loop no longer do."""
        self._reached.clear()
        for place, delivery in enumerate(self._deliveries):
            self._reached.add(place)
            yield delivery

    def __contains__(self, delivery: object) -> bool:
        """Whether it is one of them; it does not count as reached by that."""
        return delivery in self._deliveries

    def acks(self, deliveries: Iterable[D] | None) -> list[tuple[BaseDelivery, Outcome]]:
        """An ack of each of these (default: of all that are not settled yet)."""
        chosen = [one for one in self._deliveries if not one.settled] if deliveries is None else list(deliveries)
        if strange := [one for one in chosen if not isinstance(one, BaseDelivery)]:
            kind = type(strange[0]).__name__
            problem = f"an object of type {kind} is not a delivery: ack takes the deliveries that were received"
            raise BadInput(problem)
        return [(one, ACK) for one in chosen]

    def on_leaving(self, error: BaseException | None) -> list[tuple[BaseDelivery, Outcome]]:
        """The outcomes of the deliveries that are not settled when their block is left.

        At-most-once messages that were not reached are given back to this process: they are in no store any more.
        """
        unreached = [one for place, one in enumerate(self._deliveries) if self._reached and place not in self._reached]
        for delivery in unreached:
            if delivery.lease is None:
                self._give_back(delivery)
        released = {*unreached}
        return [
            (one, self._retry_policy.release(one, None) if one in released else self._on_leaving(one, error))
            for one in self._deliveries
            if not one.settled
        ]

    def _on_leaving(self, delivery: D, error: BaseException | None) -> Outcome:
        if error is None:
            return ACK
        delivery.error = error
        return self._retry_policy.failed(delivery, error_text(error))


def raise_lost(lost: Sequence[BaseDelivery], unless: BaseException | None = None) -> None:
    """Raise LeaseLost for deliveries whose leases were lost, unless the error `unless` is already being raised."""
    if lost and unless is None:
        raise LeaseLost([str(delivery.receipt) for delivery in lost])
