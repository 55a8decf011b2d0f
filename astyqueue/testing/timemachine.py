"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Self

from astyqueue.clock import instant, microseconds
from astyqueue.durations import Duration, as_microseconds

#: Where a machine starts unless it is told: a round moment that no test should depend on.
START: Final = microseconds(datetime(2026, 1, 1, tzinfo=UTC))
#: Far from zero and from any wall time, so that a test finds code that takes one clock for the other.
_FIRST_MONOTONIC: Final = 1_000_000_000


class TimeMachine:
    """A `Clock` held in the hand; whoever waits on it, thread or task, wakes at every move and looks again.

    `advance` is time passing: both clocks go on. `set` is somebody setting the machine's wall clock, to any instant,
    backwards too: the monotonic clock stays, as it does on a real machine. Safe from any thread.
    """

    def __init__(self, start: datetime | int | None = None) -> None:
        """Start at an aware datetime, at microseconds since 1970, or at 2026-01-01T00:00Z."""
        self._wall = START if start is None else _moment(start)
        self._monotonic = _FIRST_MONOTONIC
        self._changed = threading.Condition()
        self._watches: dict[object, Callable[[], None]] = {}

    def now(self) -> int:
        """The wall clock, in microseconds since 1970 UTC."""
        with self._changed:
            return self._wall

    def monotonic(self) -> int:
        """Microseconds that passed by `advance`, and a constant."""
        with self._changed:
            return self._monotonic

    def blocking_seconds(self, until: int) -> float | None:
        """Zero once the monotonic moment has come; None before, for then only a move of this clock brings it nearer."""
        return 0 if self.monotonic() >= until else None

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called after every move, in the thread that moves; what is returned ends that."""
        watch = object()
        with self._changed:
            self._watches[watch] = wake
            self._changed.notify_all()
        return lambda: self._unwatch(watch)

    def advance(self, duration: Duration) -> Self:
        """Let time pass: seconds, a `timedelta` or text like "10s"."""
        passed = as_microseconds(duration)
        with self._changed:
            self._wall += passed
            self._monotonic += passed
        return self._moved()

    def set(self, moment: datetime | int) -> Self:
        """Set the wall clock to an aware datetime or to microseconds since 1970, earlier or later."""
        wall = _moment(moment)
        with self._changed:
            self._wall = wall
        return self._moved()

    @property
    def instant(self) -> datetime:
        """The wall clock as an aware UTC datetime."""
        return instant(self.now())

    @property
    def waiters(self) -> int:
        """How many threads and tasks wait on this clock."""
        with self._changed:
            return len(self._watches)

    def when_waiting(self, count: int = 1, timeout: float = 10) -> Self:
        """Block until at least `count` threads and tasks wait on this clock, then go on at once.

        A move after this is seen by all of them. Raises `TimeoutError` after `timeout` real seconds. It blocks the
        thread: a test that runs an event loop calls it from another one.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._watches) >= count, timeout):
                message = f"{len(self._watches)} of {count} wait on this clock after {timeout} s"
                raise TimeoutError(message)
        return self

    def __repr__(self) -> str:
        """Where the machine stands."""
        return f"TimeMachine({self.instant.isoformat()})"

    def _moved(self) -> Self:
        """Wake everybody; outside the lock, because they read this clock."""
        with self._changed:
            wakes = tuple(self._watches.values())
        for wake in wakes:
            wake()
        return self

    def _unwatch(self, watch: object) -> None:
        with self._changed:
            self._watches.pop(watch, None)


def _moment(given: datetime | int) -> int:
    return microseconds(given) if isinstance(given, datetime) else given
