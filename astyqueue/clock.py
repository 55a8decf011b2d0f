"""The only place that reads a clock.

Everything else is handed a `Clock`, so that a test can hold time in its hand. Instants inside astyqueue are whole
microseconds since 1970 UTC (`_us`); datetimes appear only where people hand them in or look at them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

SECOND: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class Clock(Protocol):
    """What time it is, and how long a thread may really block to wait for a time."""

    def now(self) -> int:
        """The wall clock, in microseconds since 1970 UTC; it may jump, also backwards."""
        ...

    def monotonic(self) -> int:
        """Microseconds since some moment of the past; it never goes back."""
        ...

    def blocking_seconds(self, until: int) -> float | None:
        """How long to block for the monotonic moment `until`: real seconds, or None when only `on_move` can tell."""
        ...

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called whenever somebody moves this clock by hand; what is returned ends that."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        """Microseconds since the machine started, more or less."""
        return time.monotonic_ns() // 1000

    def blocking_seconds(self, until: int) -> float | None:
        """The seconds left until the monotonic moment, zero when it has passed."""
        return max(0, until - self.monotonic()) / SECOND

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - nobody moves this clock
        """Nothing to watch: real time passes by itself, and `blocking_seconds` says for how long."""
        return _nothing


class Comparison(NamedTuple):
    """When a clock was compared with another: the monotonic moment, and how far its wall clock was ahead of that then."""

    at: int
    shift: int


class CorrectedClock(SystemClock):
    """The clock of this machine, shown `ahead` by so many microseconds, so that it agrees with one elsewhere."""

    def __init__(self) -> None:
        """Agree with this machine until something else is known."""
        self.ahead = 0
        self.compared: Comparison | None = None

    def comparison(self) -> Comparison:
        """What a comparison made now would be remembered as; its shift is another one once the machine's clock was set."""
        monotonic = self.monotonic()
        return Comparison(monotonic, super().now() - monotonic)

    def now(self) -> int:
        """Microseconds since 1970 UTC, as the other clock has it."""
        return super().now() + self.ahead


def _nothing() -> None:
    """End a watch that never began."""


def instant(moment: int) -> datetime:
    """The aware UTC datetime of these microseconds since 1970; one that no datetime can show becomes the nearest that can be shown."""
    try:
        return _EPOCH + timedelta(microseconds=moment)
    except OverflowError:
        return _LAST if moment > 0 else _FIRST


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime; a naive one raises ValueError."""
    if moment.tzinfo is None:
        message = f"{moment!r} has no time zone: give an aware datetime, for example datetime.now(UTC)"
        raise ValueError(message)
    return (moment - _EPOCH) // _MICROSECOND
