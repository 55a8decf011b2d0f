"""A message in a user's hand, and the right to say what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, overload

from astyqueue.errors import LeaseLost
from astyqueue.model.durations import Duration, as_microseconds
from astyqueue.model.settings import Behaviour
from astyqueue.protocol.columns import State
from astyqueue.protocol.picking import Held
from astyqueue.protocol.settle import ACK, Extend, Reject, Release, Settling
from astyqueue.queue.holding import Handed, Hold

Settler = Callable[[list[tuple[Handed, Settling]]], list[Handed]]


class Terms:
    """How outcomes are worked out for one queue: its time, its backoff, its number of attempts."""

    def __init__(self, now: Callable[[], int], behaviour: Callable[[], Behaviour], chance: Callable[[], float]) -> None:
        """`chance` gives numbers in [0, 1) for the jitter of backoffs."""
        self.now = now
        self._behaviour = behaviour
        self._chance = chance

    def release(self, delivery: Handed, delay: Duration | None) -> Release:
        """Give back: after this delay, or at once; it costs no attempt."""
        pause = 0 if delay is None else as_microseconds(delay)
        return Release(self.now() + pause, delivery.attempt - 1, State.SNOOZED)

    def failed(self, delivery: Handed, reason: str, *, pause: int | None = None, allowed: int | None = None) -> Release | Reject:
        """A failed attempt: back after a pause (microseconds; by default the queue's backoff), or a dead letter if it was the last."""
        behaviour = self._behaviour()
        if delivery.attempt >= (allowed or delivery.attempts_allowed or behaviour.max_attempts):
            return Reject("failed", reason, delivery.attempt)
        pause = behaviour.backoff(delivery.attempt, self._chance()) if pause is None else pause
        return Release(self.now() + pause, delivery.attempt)

    def extend(self, by: Duration) -> Extend:
        """Keep for so long from now."""
        return Extend(self.now() + as_microseconds(by))


class Delivery(Handed):
    """One handing-over of a message. What settles it is durable when it returns; a receipt no longer current raises LeaseLost."""

    __slots__ = ("_settler", "_terms")

    def __init__(self, row: str, held: Held, hold: Hold | None, *, settler: Settler, terms: Terms) -> None:
        """Hand over a message that `settler` settles."""
        super().__init__(row, held, hold)
        self._settler = settler
        self._terms = terms

    def ack(self) -> None:
        """Done: the message goes."""
        self._settle(ACK)

    def release(self, delay: Duration | None = None) -> None:
        """Give it back, to be handed out again at once or after a delay; this costs no attempt."""
        self._settle(self._terms.release(self, delay))

    def fail(self, reason: str = "failed", delay: Duration | None = None) -> None:
        """Give it back after a failed attempt: after a delay, or the queue's backoff; the last attempt makes a dead letter."""
        pause = None if delay is None else as_microseconds(delay)
        self._settle(self._terms.failed(self, reason, pause=pause))

    def extend(self, by: Duration) -> datetime | None:
        """Keep it for so long from now (a lease is never shortened); until when it is held then."""
        self._settle(self._terms.extend(by))
        return self.lease_until

    def reject(self, reason: str = "rejected") -> None:
        """Make it a dead letter, with this reason."""
        self._settle(Reject("rejected", reason, self.attempt))

    def _settle(self, outcome: Settling) -> None:
        if self._settler([(self, outcome)]):
            raise LeaseLost([str(self.receipt)])

    def __enter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Settle what was not settled inside."""
        if not self.settled:
            self.ack() if kind is None else self.fail(told(error))


class Received(Sequence[Delivery]):
    """Deliveries that were received together; as a context manager they are settled together on leaving.

    Leaving cleanly acks what was not settled inside; an error releases it, with the queue's backoff for the delivery in
    hand and at once, uncounted, for those after it.
    """

    def __init__(self, deliveries: list[Delivery], settler: Settler, terms: Terms) -> None:
        """Hold what was received."""
        self._deliveries = deliveries
        self._settler = settler
        self._terms = terms
        self._reached = len(deliveries)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | Sequence[Delivery]:
        """One of the deliveries, or some."""
        return self._deliveries[index]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._deliveries)

    def __iter__(self) -> Iterator[Delivery]:
        """Each in turn; remembers how far the work came."""
        for reached, delivery in enumerate(self._deliveries):
            self._reached = reached
            yield delivery
        self._reached = len(self._deliveries)

    def __enter__(self) -> Self:
        """Settle together on leaving."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ack, or give back, what was not settled inside; LeaseLost names what was no longer held."""
        waiting = [(place, delivery) for place, delivery in enumerate(self._deliveries) if not delivery.settled]
        outcomes: list[tuple[Handed, Settling]] = [(delivery, self._outcome(place, delivery, error)) for place, delivery in waiting]
        lost = self._settler(outcomes) if outcomes else []
        if lost and kind is None:
            raise LeaseLost([str(delivery.receipt) for delivery in lost])

    def _outcome(self, place: int, delivery: Delivery, error: BaseException | None) -> Settling:
        if error is None:
            return ACK
        if place > self._reached:
            return self._terms.release(delivery, None)
        return self._terms.failed(delivery, told(error))


def told(error: BaseException | None) -> str:
    """An error in one line, as a dead letter's reason."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
