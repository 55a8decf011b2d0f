"""The only place that reads a clock.

Everything else gets a `Clock`, so that tests can control time. Instants inside astyqueue are whole microseconds since
1970 UTC (`_us`); datetimes appear only in what callers pass in or read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from astyqueue.units import SECOND, MonotonicUs

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class Clock(Protocol):
    """The wall clock, the monotonic clock, and how long a thread may block to wait for a moment."""

    def now(self) -> int:
        """The wall clock, in microseconds since 1970 UTC; it may jump, also backwards."""
        ...

    def monotonic(self) -> MonotonicUs:
        """Microseconds since an arbitrary moment in the past; it never goes back."""
        ...

    def blocking_seconds(self, until: MonotonicUs) -> float | None:
        """How long to block for the monotonic moment `until`: real seconds, or None to wait for `on_move` alone."""
        ...

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever a test moves this clock by hand; call the returned function to stop."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> MonotonicUs:
        """Microseconds since an arbitrary moment, such as the start of the machine."""
        return time.monotonic_ns() // 1000  # type: ignore[return-value]  # the source of such moments

    def blocking_seconds(self, until: MonotonicUs) -> float | None:
        """The seconds left until the monotonic moment, zero when it has passed."""
        return max(0, until - self.monotonic()) / SECOND

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - never moved by hand
        """Do nothing: real time passes by itself, and `blocking_seconds` bounds each wait."""
        return _nothing


class Comparison(NamedTuple):
    """A comparison of clocks: the monotonic moment, and how far the machine's wall clock was ahead of it."""

    at: MonotonicUs
    shift: int


class CorrectedClock(SystemClock):
    """The clock of this machine plus `ahead` microseconds, so that it agrees with a clock elsewhere."""

    def __init__(self) -> None:
        """Agree with this machine until `ahead` is set."""
        self.ahead = 0
        self.compared: Comparison | None = None

    def comparison(self) -> Comparison:
        """A comparison made now; its shift changes when the machine's clock is set."""
        monotonic = self.monotonic()
        return Comparison(monotonic, self.machine() - int(monotonic))

    def machine(self) -> int:
        """Microseconds since 1970 UTC by this machine's clock."""
        return super().now()

    def now(self) -> int:
        """Microseconds since 1970 UTC by the other clock."""
        return time.time_ns() // 1000 + self.ahead  # as `machine`, in one call: it is read twice for each message


def _nothing() -> None:
    """What `SystemClock.on_move` returns."""


def instant(moment: int) -> datetime:
    """The aware UTC datetime of these microseconds since 1970, clamped to the range of `datetime`."""
    try:
        return _EPOCH + timedelta(microseconds=moment)
    except OverflowError:
        return _LAST if moment > 0 else _FIRST


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime; a naive one raises ValueError."""
    if moment.utcoffset() is None:
        message = f"{moment!r} has no time zone: give an aware datetime, for example datetime.now(UTC)"
        raise ValueError(message)
    return (moment - _EPOCH) // _MICROSECOND


class Stamps:
    """Write times in µs, strictly increasing, so that of two sends by one store the later always wins."""

    def __init__(self, clock: Clock) -> None:
        """Stamp by `clock`; while it is set back, stamps increase by 1 µs."""
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        """A stamp greater than all before it."""
        with self._lock:
            self._last = max(self._clock.now(), self._last + 1)
            return self._last
