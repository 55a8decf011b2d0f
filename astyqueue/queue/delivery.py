"""A message in a user's hand, and the right to say what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from astyqueue.durations import Duration, as_microseconds
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.protocol.picking import Held
from astyqueue.queue.holding import Handed, Hold, Kind
from astyqueue.queue.terms import Terms, Together, raise_lost, rejected, told

Settler = Callable[[list[tuple[Handed, Settling]]], list[Handed]]


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
        self._settle(rejected(reason, self.attempt))

    def _settle(self, outcome: Settling) -> None:
        raise_lost(self._settler([(self, outcome)]))

    def __enter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Settle what was not settled inside."""
        self.error = error
        if not self.settled:
            self.ack() if kind is None else self.fail(told(error))


class Received(Together[Delivery]):
    """Deliveries that were received together; as a context manager they are settled together on leaving.

    Leaving cleanly, by `break` or `return` too, acks what was not settled inside; an error releases it as a failed attempt.
    Either is for the deliveries that were reached: those behind the one in hand are given back at once, uncounted. Reached is
    what the last loop over them came to, or what was taken by its place; if that is none, they are taken as a whole.
    """

    def __init__(self, deliveries: list[Delivery], settler: Settler, terms: Terms) -> None:
        """Hold what was received."""
        super().__init__(deliveries, terms)
        self._settler = settler

    def ack(self, deliveries: Iterable[Delivery] | None = None) -> None:
        """Ack these, or all that are not settled yet, together: one commit for what was claimed together.

        LeaseLost names those that were no longer held, and says nothing of the others, which are done.
        """
        if acks := self.acks(deliveries):
            raise_lost(self._settler(acks))

    @staticmethod
    def ack_if_unsettled(delivery: Delivery) -> None:
        """Take going on to the next for an ack."""
        if not delivery.settled:
            delivery.ack()

    def __enter__(self) -> Self:
        """Settle together on leaving."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ack, or give back, what was not settled inside; LeaseLost names what was no longer held."""
        outcomes = self.on_leaving(error)
        raise_lost(self._settler(outcomes) if outcomes else [], unless=error)
