"""Triggers of elapsed time, whatever zones and clock changes do: one occurrence, or one at each interval."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import ClassVar, Final

from astyqueue.durations import LATEST, Duration, as_microseconds, instant_of
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger, not_anchored, wrong_end
from astyqueue.units import SECOND

#: The shortest interval: more frequent occurrences would be late before a process could fire them.
SHORTEST_US: Final = SECOND // 1_000

_DRAWN_BITS: Final = 64


@dataclass(frozen=True, slots=True, init=False)
class Once(Trigger):
    """One occurrence: at a moment, or at a delay after the trigger is anchored."""

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


@dataclass(frozen=True, slots=True, init=False)
class Every(Trigger):
    """An occurrence at `start` and at each whole number of intervals after it, without drift.

    With `jitter` each occurrence is delayed by a part of it, derived from the seed and the occurrence: the same in
    every process, and never beyond the next occurrence. `count` is the total number of occurrences, fired or not; none
    is later than `end`, or than the last valid instant.
    """

    kind: ClassVar[str] = "every"

    interval_us: int
    start_us: int | None
    delay_us: int | None
    end_us: int | None
    count: int | None
    jitter_us: int | None
    seed: str | None

    def __init__(
        self,
        interval: Duration,
        *,
        start: datetime | None = None,
        delay: Duration | None = None,
        end: datetime | None = None,
        count: int | None = None,
        jitter: Duration = 0,
        seed: str | None = None,
    ) -> None:
        """Start at `start`, or `delay` (Default: 0) after the trigger is anchored."""
        self._fill(
            interval_us=as_microseconds(interval), count=count, seed=seed, jitter_us=as_microseconds(jitter) or None
        )
        self._fill(
            start_us=None if start is None else instant_of(start), end_us=None if end is None else instant_of(end)
        )
        self._fill(delay_us=None if delay is None else as_microseconds(delay))
        if problem := self._problem():
            raise BadInput(problem)

    def after(self, moment: int) -> int | None:
        """The first occurrence strictly later than `moment`."""
        if self.start_us is None:
            raise not_anchored(self, "start=")
        number = max(0, (moment - self.start_us) // self.interval_us)
        if self._occurrence(self.start_us, number) <= moment:
            number += 1
        occurrence = self._occurrence(self.start_us, number)
        counted_out = self.count is not None and number >= self.count
        return None if counted_out or occurrence > (LATEST if self.end_us is None else self.end_us) else occurrence

    def anchored(self, moment: int, *, seed: str = "") -> Every:
        """The same starting at `moment` plus its delay, unless it has a start; `seed` is for jitter without one."""
        start_us = moment + (self.delay_us or 0) if self.start_us is None else self.start_us
        drawn_with = seed if self.jitter_us is not None and self.seed is None else self.seed
        return self.but(start_us=start_us, delay_us=None, seed=drawn_with)

    def _occurrence(self, start_us: int, number: int) -> int:
        """The moment of an occurrence by its number, from zero."""
        even = start_us + number * self.interval_us
        return even if self.jitter_us is None else even + drawn(self.seed or "", even, below=self.jitter_us)

    def _problem(self) -> str:
        """The problem of the arguments, or empty."""
        if self.interval_us < SHORTEST_US:
            return "the interval of Every is at least a millisecond"
        if self.count is not None and (type(self.count) is not int or self.count < 1):
            return f"count is {self.count!r}: give the number of occurrences, at least one"
        if (self.jitter_us or 0) > self.interval_us:
            return "jitter is at most the interval, so that no occurrence overtakes the next"
        if self.start_us is not None and self.delay_us is not None:
            return "Every starts at a moment (start=) or after a delay, not both"
        return wrong_end(self.start_us, self.end_us)


def drawn(seed: str, occurrence: int, *, below: int) -> int:
    """A pseudo-random number of at least zero and less than `below`, the same in every process and release."""
    digest = blake2b(f"{seed}\0{occurrence}".encode(), digest_size=_DRAWN_BITS // 8).digest()
    return int.from_bytes(digest) * below >> _DRAWN_BITS
