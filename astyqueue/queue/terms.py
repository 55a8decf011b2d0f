"""What becomes of deliveries: how outcomes are worked out, the same for threads and for tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar, overload

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, LeaseLost
from astyqueue.model.settings import Behaviour
from astyqueue.protocol.columns import State
from astyqueue.protocol.outcomes import ACK, Extend, Reject, Release, Settling
from astyqueue.queue.holding import Handed

D = TypeVar("D", bound=Handed)
#: As much of an error's text as a person reads in one line.
_REASON: Final = 1_000


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
        delivery.failure = _reason(reason)
        if delivery.attempt >= (allowed or behaviour.attempts(delivery.attempts_allowed)):
            return Reject("failed", reason, delivery.attempt)
        pause = behaviour.backoff(delivery.attempt, self._chance()) if pause is None else pause
        return Release(self.now() + pause, delivery.attempt)

    def extend(self, by: Duration) -> Extend:
        """Keep for so long from now."""
        return Extend(self.now() + as_microseconds(by))


def rejected(reason: str, attempt: int) -> Reject:
    """To the dead letters, for a reason that whoever had the delivery gives; what is no text raises BadInput."""
    return Reject("rejected", _reason(reason), attempt)


def _reason(reason: object) -> str:
    """The text of a reason. Lone surrogates may be in it, as an error's text may have them: they are written out when it is stored."""
    if not isinstance(reason, str):
        problem = f"a reason is text for people, and {reason!r:.80} is not; str() makes text of an error"
        raise BadInput(problem)
    return reason


class Together(Sequence[D]):
    """Deliveries that were received together, and how far the work on them came.

    What was gone through, or taken by its place, counts as reached; going through them anew starts from none. If none was
    ever reached, they are taken to have been handled as a whole.
    """

    def __init__(self, deliveries: list[D], terms: Terms) -> None:
        """Hold what was received."""
        self._deliveries = deliveries
        self._terms = terms
        self._reached: set[int] = set()

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[D]: ...
    def __getitem__(self, index: int | slice) -> D | Sequence[D]:
        """One of the deliveries, or some."""
        places = range(len(self._deliveries))[index]
        self._reached.update(places if isinstance(places, range) else (places,))
        return self._deliveries[index]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._deliveries)

    def __iter__(self) -> Iterator[D]:
        """Each in turn; remembers how far the work came."""
        self._reached.clear()
        for place, delivery in enumerate(self._deliveries):
            self._reached.add(place)
            yield delivery

    def __contains__(self, delivery: object) -> bool:
        """Whether it is one of them; nothing is reached by asking."""
        return delivery in self._deliveries

    def acks(self, deliveries: Iterable[D] | None) -> list[tuple[Handed, Settling]]:
        """An ack of each of these, or of all that are not settled yet."""
        chosen = [one for one in self._deliveries if not one.settled] if deliveries is None else deliveries
        return [(one, ACK) for one in chosen]

    def on_leaving(self, error: BaseException | None) -> list[tuple[Handed, Settling]]:
        """What becomes of those that were not settled when their block is left."""
        waiting = [(place, delivery) for place, delivery in enumerate(self._deliveries) if not delivery.settled]
        return [(delivery, self._on_leaving(place, delivery, error)) for place, delivery in waiting]

    def _on_leaving(self, place: int, delivery: D, error: BaseException | None) -> Settling:
        if self._reached and place not in self._reached:
            return self._terms.release(delivery, None)
        if error is None:
            return ACK
        delivery.error = error
        return self._terms.failed(delivery, told(error))


def raise_lost(lost: Sequence[Handed], unless: BaseException | None = None) -> None:
    """Raise LeaseLost for deliveries that were no longer held, unless another error is on its way already."""
    if lost and unless is None:
        raise LeaseLost([str(delivery.receipt) for delivery in lost])


def told(error: BaseException | None) -> str:
    """An error in one line, as a dead letter's reason."""
    return "the loop over deliveries was left before it was settled" if isinstance(error, GeneratorExit) else reason_of(error)


def reason_of(error: BaseException | None) -> str:
    """An error in one line: its type and what it says, if it says anything."""
    try:
        text = one_line(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot even be told is still the reason
        text = "(its text cannot be told)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: object) -> str:
    """Text without line breaks, not too long."""
    return " ".join(str(text).split())[:_REASON]
