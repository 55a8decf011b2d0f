"""A trigger with a single slot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from astyqueue.durations import Duration, as_microseconds, instant_of
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger, not_anchored


@dataclass(frozen=True, slots=True, init=False)
class Once(Trigger):
    """One slot: at a moment, or at a delay after the trigger is anchored."""

    kind: ClassVar[str] = "once"

    at_us: int | None
    delay_us: int | None

    def __init__(self, at: datetime | None = None, *, delay: Duration | None = None) -> None:
        """Give an aware datetime or a delay; BadInput unless exactly one is given."""
        if (at is None) == (delay is None):
            problem = "Once takes a moment (at=) or a delay, one of the two"
            raise BadInput(problem)
        self._fill(
            at_us=None if at is None else instant_of(at), delay_us=None if delay is None else as_microseconds(delay)
        )

    def after(self, moment: int) -> int | None:
        """The moment itself if it is later than `moment`, else None."""
        if self.at_us is None:
            raise not_anchored(self, "at=")
        return self.at_us if self.at_us > moment else None

    def anchored(self, moment: int, *, seed: str = "") -> Once:  # noqa: ARG002 - nothing is drawn
        """The same with a delay replaced by the moment at which it ends."""
        return self if self.delay_us is None else self.but(at_us=moment + self.delay_us, delay_us=None)
