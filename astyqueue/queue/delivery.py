"""Deliveries, batches of them, and the retry policy that follows from the queue's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeVar, overload

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, LeaseLost
from astyqueue.model.settings import Behaviour
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.settling.outcomes import ACK, Extend, Outcome, Reject, Release
from astyqueue.queue.leases import BaseDelivery, DeliveryFactory, Lease

Settler = Callable[[list[tuple[BaseDelivery, Outcome]]], list[BaseDelivery]]


D = TypeVar("D", bound=BaseDelivery)
#: Characters of an error's text that are kept in a reason: what a person reads in one line.
_REASON: Final = 1_000


class RetryPolicy:
    """Decides the outcomes of one queue by its clock, its backoff and its number of attempts."""

    def __init__(self, now: Callable[[], int], behaviour: Callable[[], Behaviour], chance: Callable[[], float]) -> None:
        """`chance` gives numbers in [0, 1) for the jitter of backoffs."""
        self.now = now
        self._behaviour = behaviour
        self._chance = chance

    def release(self, delivery: BaseDelivery, delay: Duration | None) -> Release:
        """The outcome that gives a delivery back after `delay` (default: at once); it costs no attempt."""
        pause = 0 if delay is None else as_microseconds(delay)
        return Release(self.now() + pause, delivery.attempt - 1, State.SNOOZED)

    def failed(
        self, delivery: BaseDelivery, reason: str, *, pause: int | None = None, allowed: int | None = None
    ) -> Release | Reject:
        """The outcome of a failed attempt: redelivery after `pause`, or a dead letter if it was the last attempt.

        `pause` is in microseconds (default: the queue's backoff); `allowed` is the number of attempts (default: as the
        message or the queue says).
        """
        behaviour = self._behaviour()
        delivery.failure = _reason(reason)
        if delivery.attempt >= (allowed or behaviour.attempts(delivery.attempts_allowed)):
            return Reject("failed", reason, delivery.attempt)
        pause = behaviour.backoff(delivery.attempt, self._chance()) if pause is None else pause
        return Release(self.now() + pause, delivery.attempt)

    def extend(self, by: Duration) -> Extend:
        """The outcome that extends a lease to `by` from now."""
        return Extend(self.now() + as_microseconds(by))


def rejected(reason: str, attempt: int) -> Reject:
    """The outcome that makes a dead letter, with the consumer's reason; BadInput if that is not text."""
    return Reject("rejected", _reason(reason), attempt)


def _reason(reason: object) -> str:
    """The text of a reason. It may contain lone surrogates, as error texts do: they are escaped when it is stored."""
    if not isinstance(reason, str):
        problem = f"a reason must be text, not {reason!r:.80}; str() makes text of an error"
        raise BadInput(problem)
    return reason


class DeliveryBatch(Sequence[D]):
    """Deliveries that were received together, and which of them the caller reached.

    A delivery that a loop came to, or that was taken by its index, counts as reached; a new loop starts from none. If
    none was ever reached, the caller counts as having handled them all.
    """

    def __init__(self, deliveries: list[D], terms: RetryPolicy) -> None:
        """`terms` decides on retries."""
        self._deliveries = deliveries
        self._terms = terms
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
            problem = f"{strange[0]!r} is not a delivery: ack takes the deliveries that were received"
            raise BadInput(problem)
        return [(one, ACK) for one in chosen]

    def on_leaving(self, error: BaseException | None) -> list[tuple[BaseDelivery, Outcome]]:
        """The outcomes of the deliveries that are not settled when their block is left."""
        waiting = [(place, delivery) for place, delivery in enumerate(self._deliveries) if not delivery.settled]
        return [(delivery, self._on_leaving(place, delivery, error)) for place, delivery in waiting]

    def _on_leaving(self, place: int, delivery: D, error: BaseException | None) -> Outcome:
        if self._reached and place not in self._reached:
            return self._terms.release(delivery, None)
        if error is None:
            return ACK
        delivery.error = error
        return self._terms.failed(delivery, error_text(error))


def raise_lost(lost: Sequence[BaseDelivery], unless: BaseException | None = None) -> None:
    """Raise LeaseLost for deliveries whose leases were lost, unless the error `unless` is already being raised."""
    if lost and unless is None:
        raise LeaseLost([str(delivery.receipt) for delivery in lost])


def error_text(error: BaseException | None) -> str:
    """An error as the reason of a failed attempt, in one line."""
    return (
        "the loop over deliveries was left before it was settled"
        if isinstance(error, GeneratorExit)
        else reason_of(error)
    )


def reason_of(error: BaseException | None) -> str:
    """An error in one line: its type, and its text if it has one."""
    try:
        text = one_line(str(error))
    except Exception:  # noqa: BLE001 - an error whose __str__ raises is still the reason
        text = "(its text is not available: its __str__ raised)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: object) -> str:
    """Text without line breaks, at most 1000 characters of it."""
    return " ".join(str(text).split())[:_REASON]


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

    def ack(self) -> None:
        """Ack: the message is done and is removed."""
        self._settle(ACK)

    def release(self, delay: Duration | None = None) -> None:
        """Give it back for redelivery at once or after `delay`; this costs no attempt."""
        self._settle(self._terms.release(self, delay))

    def fail(self, reason: str = "failed", delay: Duration | None = None) -> None:
        """Count a failed attempt and redeliver after `delay` (default: the queue's backoff).

        The last attempt makes a dead letter.
        """
        pause = None if delay is None else as_microseconds(delay)
        self._settle(self._terms.failed(self, reason, pause=pause))

    def extend(self, by: Duration) -> datetime | None:
        """Extend the lease to `by` from now (it is never shortened); returns the end of the lease."""
        self._settle(self._terms.extend(by))
        return self.lease_until

    def reject(self, reason: str = "rejected") -> None:
        """Make it a dead letter with this reason."""
        self._settle(rejected(reason, self.attempt))

    def _settle(self, outcome: Outcome) -> None:
        raise_lost(self._settler([(self, outcome)]))

    def __enter__(self) -> Self:
        """Ack on leaving the block, or count a failed attempt if it raised."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack, or fail after an error, unless it was settled inside."""
        self.error = error
        if not self.settled:
            self.ack() if kind is None else self.fail(error_text(error))


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

    def ack(self, deliveries: Iterable[Delivery] | None = None) -> None:
        """Ack these (default: all that are not settled yet) together: one commit for messages claimed together.

        LeaseLost names those whose leases were lost; the others are acked.
        """
        if acks := self.acks(deliveries):
            raise_lost(self._settler(acks))

    @staticmethod
    def ack_if_unsettled(delivery: Delivery) -> None:
        """Ack a delivery unless it is settled."""
        if not delivery.settled:
            delivery.ack()

    def __enter__(self) -> Self:
        """Settle together on leaving."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack or give back what was not settled inside; LeaseLost names the deliveries whose leases were lost."""
        outcomes = self.on_leaving(error)
        raise_lost(self._settler(outcomes) if outcomes else [], unless=error)
