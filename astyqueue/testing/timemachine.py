"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Self

from astyqueue.clock import instant, microseconds
from astyqueue.durations import Duration, as_microseconds
from astyqueue.units import BEGINNING, MonotonicUs

#: The default start: a round moment that no test should depend on.
START: Final = microseconds(datetime(2026, 1, 1, tzinfo=UTC))
#: Far from zero and from any wall time, so that a test finds code that takes one clock for the other.
_FIRST_MONOTONIC: Final = BEGINNING + 1_000_000_000


class TimeMachine:
    """A `Clock` that only a test moves; every move wakes the threads and tasks that wait on it.

    `advance` simulates time passing: both clocks go on. `set` simulates an operator who sets the wall clock, to any
    instant, backwards too: the monotonic clock stays, as on a real machine. Thread-safe.
    """

    def __init__(self, start: datetime | int | None = None) -> None:
        """Start at an aware datetime, at microseconds since 1970, or at 2026-01-01T00:00Z."""
        self._wall = START if start is None else _moment(start)
        self._monotonic = _FIRST_MONOTONIC
        self._changed = threading.Condition()
        self._watches: dict[object, Callable[[], None]] = {}
        self._woken: set[object] = set()

    def now(self) -> int:
        """The wall clock, in microseconds since 1970 UTC."""
        return self._wall

    def monotonic(self) -> MonotonicUs:
        """The sum of all `advance` in microseconds, and a constant."""
        return self._monotonic

    def blocking_seconds(self, until: MonotonicUs) -> float | None:
        """Zero once the monotonic clock has reached `until`; None before, because only a move of it can reach that."""
        return 0 if self.monotonic() >= until else None

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after every move, in the thread that moves the clock; returns a function that ends that."""
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
        """The number of threads and tasks that wait on this clock. One that a move woke counts when it waits again."""
        with self._changed:
            return self._waiters()

    def _waiters(self) -> int:
        return len(self._watches) - len(self._woken)

    def when_waiting(self, count: int = 1, timeout: float = 10) -> Self:
        """Block until at least `count` threads and tasks wait on this clock, since its last move.

        A move after this wakes all of them, so a loop of both lets them see each moment. Raises `TimeoutError` after
        `timeout` real seconds. It blocks the thread, so a test that runs an event loop must call it from another one.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiters() >= count, timeout):
                message = f"{self._waiters()} of {count} wait on this clock after {timeout} s"
                raise TimeoutError(message)
        return self

    def __repr__(self) -> str:
        """The wall clock."""
        return f"TimeMachine({self.instant.isoformat()})"

    def _moved(self) -> Self:
        """Wake all waiters, outside the lock, because they read this clock."""
        with self._changed:
            self._woken.update(self._watches)
            wakes = tuple(self._watches.values())
        for wake in wakes:
            wake()
        return self

    def _unwatch(self, watch: object) -> None:
        with self._changed:
            self._watches.pop(watch, None)
            self._woken.discard(watch)


def _moment(given: datetime | int) -> int:
    return microseconds(given) if isinstance(given, datetime) else given
