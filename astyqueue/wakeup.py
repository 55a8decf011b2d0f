"""The only place that waits: until a time or a signal, whichever is first, as a thread or as a task.

A signal that comes before the wait is not lost: the next wait returns at once. A clock that is moved by hand wakes
whoever waits on it, so every waiter looks again at what it waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import NamedTuple, TypeVar

from astyqueue.clock import Clock

T = TypeVar("T")


class Wakeup:
    """One signal. Several may wait for it; one `set` lets each of those that wait now go on, or the next to come."""

    def __init__(self, clock: Clock) -> None:
        """Waits end by `clock`."""
        self._clock = clock
        self._changed = threading.Condition()
        self._signals = 0
        self._seen = 0
        self._tasks: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def set(self) -> None:
        """Let whoever waits go on. Safe from any thread."""
        with self._changed:
            self._signals += 1
            self._changed.notify_all()
            tasks = tuple(self._tasks)
        for loop, event in tasks:
            with contextlib.suppress(RuntimeError):  # that loop was closed since: nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    def wait(self, until: int | None = None) -> None:
        """Block this thread until a signal, a move of the clock, or the monotonic moment `until` (microseconds)."""
        with self._changed:
            entered = self._seen
        stop_watching = self._clock.on_move(self.set)
        try:
            self._block(entered, until)
        finally:
            stop_watching()

    def _block(self, entered: int, until: int | None) -> None:
        with self._changed:
            while self._signals == entered and (left := self._left(until)) != 0:
                self._changed.wait(left)
            self._seen = self._signals

    async def awaited(self, until: int | None = None) -> None:
        """As `wait`, for a task: the event loop goes on meanwhile."""
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            self._tasks.add(waiting)
            entered = self._seen
        stop_watching = self._clock.on_move(self.set)
        try:
            while self._signals == entered and (left := self._left(until)) != 0:
                await _wait_for(waiting[1], left)
            with self._changed:  # only here: a signal that finds a task cancelled is the next waiter's
                self._seen = self._signals
        finally:
            stop_watching()
            with self._changed:
                self._tasks.discard(waiting)

    def _left(self, until: int | None) -> float | None:
        """Seconds that may be blocked; zero once the time has come."""
        if until is None:
            return None
        return 0 if self._clock.monotonic() >= until else self._clock.blocking_seconds(until)


async def _wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, for so long at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


class Finishing:
    """Finishes what a task has begun, though it be cancelled meanwhile, and then lets it hear of that."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._cancelled: asyncio.CancelledError | None = None

    async def wait_for(self, work: Coroutine[object, object, T]) -> T:
        """What comes of this work, waited for whatever comes."""
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as cancelled:
                self._cancelled = self._cancelled or cancelled
        return task.result()

    def go_on(self) -> None:
        """Raise the cancellation that came, if one did, in the place of whatever else there is to tell."""
        if self._cancelled is not None:
            raise self._cancelled


class Rest(NamedTuple):
    """Asked for by steps that have nothing to do before `until` (monotonic microseconds) unless `wakeup` is set."""

    wakeup: Wakeup
    until: int | None
