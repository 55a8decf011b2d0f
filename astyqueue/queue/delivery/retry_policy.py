"""Decides what becomes of a delivery: the retry policy of a queue, and the reasons that are kept of failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput
from astyqueue.ids import moment
from astyqueue.model.settings import Settings
from astyqueue.protocol.claiming.selection import EXPIRED
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.settling.outcomes import Extend, Reject, Release
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.text import reason_of


class CurrentSettings(Protocol):
    """What knows the settings of a queue."""

    @property
    def settings(self) -> Settings:
        """The settings as this process last read them."""
        ...


class RetryPolicy:
    """Decides the outcomes of one queue by its clock, its backoff and its number of attempts."""

    def __init__(self, now: Callable[[], int], current: CurrentSettings, chance: Callable[[], float]) -> None:
        """`current` has the settings as this process last read them.

        `chance` gives numbers in [0, 1) for the jitter of backoffs.
        """
        self.now = now
        self._current = current
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
        behaviour = self._current.settings.behaviour
        delivery.failure = _reason(reason)
        if delivery.attempt >= (allowed or behaviour.attempts(delivery.attempts_allowed)):
            return Reject("failed", reason, delivery.attempt)
        pause = behaviour.backoff(delivery.attempt, self._chance()) if pause is None else pause
        return Release(self.now() + pause, delivery.attempt)

    def expired(self, delivery: BaseDelivery) -> Reject | None:
        """The outcome, which costs no attempt, of a delivery that expired before it was begun; None if it has not.

        It has expired by its own time, or by the `expires_cap` of the queue.
        """
        cap = self._current.settings.behaviour.expires_cap_us
        if delivery.expires_us is None and not cap:
            return None
        now = self.now()
        own = delivery.expires_us is not None and delivery.expires_us <= now
        capped = bool(cap) and moment(delivery.id) + cap <= now
        return Reject("expired", EXPIRED, delivery.attempt - 1) if own or capped else None

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


def error_text(error: BaseException | None) -> str:
    """An error as the reason of a failed attempt, in one line."""
    return (
        "the loop over deliveries was left before it was settled"
        if isinstance(error, GeneratorExit)
        else reason_of(error)
    )
