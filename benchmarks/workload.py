"""The messages that are measured with, and the count of those that were handled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from pydantic_core import to_json

from astyqueue.clock import Clock
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: A measurement that takes longer than this has failed.
_PATIENCE: Final = 300 * SECOND

Body = dict[str, int | str]


class NotMeasured(Exception):
    """What was to be measured did not happen as it must; no number of this run means anything."""


def body(number: int, size: int, **more: int) -> Body:
    """A body that is `size` bytes as JSON, with a number that distinguishes it from the others."""
    bare: Body = {"number": number, **more, "text": ""}
    return {**bare, "text": "x" * max(0, size - len(to_json(bare)))}


def bodies(count: int, size: int) -> Iterator[Body]:
    """The bodies of `count` messages."""
    return (body(number, size) for number in range(count))


class Tally:
    """Counts handled messages, from any thread, and notes which they were."""

    def __init__(self, expected: int, clock: Clock) -> None:
        """`expected` messages are to come, numbered from zero."""
        self._expected = expected
        self._clock = clock
        self._seen = bytearray(expected)
        self._numbers = itertools.count(1)
        self._complete = Wakeup(clock)
        #: Whether as many were handled as were expected.
        self.is_complete = False

    def mark(self, number: int) -> None:
        """Count one more handled message."""
        self._seen[number] = 1
        if next(self._numbers) == self._expected:
            self.is_complete = True
            self._complete.set()

    def wait(self) -> None:
        """Block until as many were handled as were expected; NotMeasured if that takes too long."""
        until = self._clock.monotonic() + _PATIENCE
        while not self.is_complete and self._clock.monotonic() < until:
            self._complete.wait(until)
        self.check_seen()

    def check_seen(self) -> None:
        """Check that each was handled."""
        if missing := self._expected - sum(self._seen):
            message = f"{missing} of {self._expected} messages were not handled"
            raise NotMeasured(message)

    def check(self) -> None:
        """Check that each was handled exactly once; this ends the counting."""
        self.check_seen()
        if (count := next(self._numbers) - 1) != self._expected:
            message = f"{self._expected} messages were handled {count} times"
            raise NotMeasured(message)
