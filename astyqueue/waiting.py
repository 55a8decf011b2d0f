"""The only place that waits: until a time or a signal, in a thread or a task.

A signal before the wait is not lost: the next wait returns at once. A clock moved by hand wakes all waits on it, so
that every waiter checks its condition again.

asyncio is imported by the first task that waits: it brings 36 modules, which a program for threads does without.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from astyqueue.clock import Clock
from astyqueue.units import MonotonicUs

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

#: Seconds after which a thread looks again whether a lock is free, doubled each time up to the second figure. The
#: holder goes on with the interpreter lock, which another thread that computes gives up after 5 ms.
_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.005
#: The most threads that make calls for tasks.
_THREADS: Final = 32


class Wakeup:
    """One signal. `set` wakes all threads and tasks that wait now; if none waits, the next one returns at once."""

    def __init__(self, clock: Clock) -> None:
        """`clock` decides when a wait times out; `moves` counts how often it was moved by hand during a wait."""
        self.moves = 0
        self._clock = clock
        # A handler of signals that raises, as Ctrl-C does, may run between the taking of a lock and its block if `with`
        # calls a function of Python for that, as with a Condition.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._signals = 0
        self._seen = 0
        self._tasks: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._calls: list[Callable[[], None]] = []

    def set(self) -> None:
        """Wake all threads and tasks that wait. Safe from any thread."""
        with self._lock:
            self._signals += 1
            self._changed.notify_all()
            tasks = tuple(self._tasks)
            calls, self._calls = self._calls, []
        for call in calls:
            call()
        for loop, event in tasks:
            with contextlib.suppress(RuntimeError):  # that loop was closed, so no task waits there
                loop.call_soon_threadsafe(event.set)

    @property
    def seen(self) -> int:
        """The number of signals until the last wait ended: the same as before it if no signal ended it."""
        return self._seen

    @property
    def signalled(self) -> bool:
        """Whether there was a signal that no wait has seen, so that the next wait returns at once."""
        return self._signals != self._seen

    def _on_move(self) -> None:
        self.moves += 1
        self.set()

    def wait(self, until: MonotonicUs | None = None) -> None:
        """Block this thread until a signal, a move of the clock, or the monotonic moment `until` (microseconds)."""
        with self._lock:
            entered = self._seen
        stop_watching = self._clock.on_move(self._on_move)
        try:
            self._block(entered, until)
        finally:
            stop_watching()

    def _block(self, entered: int, until: MonotonicUs | None) -> None:
        with self._lock:
            while self._signals == entered and (left := self._left(until)) != 0:
                self._changed.wait(left)
            self._seen = self._signals

    def call_when_set(self, call: Callable[[], None]) -> bool:
        """Have the thread that sets the next signal call this, once, without waiting here.

        Returns False, and will not call it, if there was a signal that no wait has seen. It must be followed by
        `end_wait` before the next wait.
        """
        with self._lock:
            if self._signals != self._seen:
                self._seen = self._signals
                return False
            self._calls.append(call)
            return True

    def end_wait(self, call: Callable[[], None]) -> None:
        """End a wait that `call_when_set` began: signals until now are seen, and `call` will not be called."""
        with self._lock:
            self._seen = self._signals
            if call in self._calls:
                self._calls.remove(call)

    async def wait_in_task(self, until: MonotonicUs | None = None) -> None:
        """As `wait`, for a task: the event loop keeps running."""
        import asyncio  # noqa: PLC0415 - a program for threads does without it

        waiting = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._tasks.add(waiting)
            entered = self._seen
        stop_watching = self._clock.on_move(self._on_move)
        try:
            while self._signals == entered and (left := self._left(until)) != 0:
                await _wait_for(waiting[1], left)
            with self._lock:  # not in finally: the signal of a cancelled task is for the next waiter
                self._seen = self._signals
        finally:
            stop_watching()
            with self._lock:
                self._tasks.discard(waiting)

    def _left(self, until: MonotonicUs | None) -> float | None:
        """Seconds to block; zero once the moment has passed."""
        if until is None:
            return None
        return 0 if self._clock.monotonic() >= until else self._clock.blocking_seconds(until)


async def _wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, for at most `seconds`."""
    import asyncio  # noqa: PLC0415 - as in `Wakeup.wait_in_task`

    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


#: For each process the threads of `in_thread`: a fork copies none. They are not those of an event loop, which a program
#: may have wait for something that only these calls bring about, such as the end of a queue.
_threads: Final[dict[int, ThreadPoolExecutor]] = {}


async def in_thread(call: Callable[[], T]) -> T:
    """The result of a call that blocks, made in a thread: the event loop keeps running.

    It must end by itself, because there are at most 32 threads for all tasks of the process.
    """
    import asyncio  # noqa: PLC0415 - as in `Wakeup.wait_in_task`
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - as asyncio

    if (threads := _threads.get(os.getpid())) is None:
        made = ThreadPoolExecutor(_THREADS, thread_name_prefix="astyqueue-task")
        threads = _threads.setdefault(os.getpid(), made)
    return await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, call)


class DeferredCancellation:
    """Defers the cancellation of a task until the work that it waits for has ended."""

    def __init__(self) -> None:
        """Start without a cancellation."""
        self._cancelled: asyncio.CancelledError | None = None

    async def wait_for(self, work: Coroutine[object, object, T]) -> T:
        """Wait for this work to end, through cancellations, and return its result."""
        import asyncio  # noqa: PLC0415 - as in `Wakeup.wait_in_task`

        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as cancelled:
                self._cancelled = self._cancelled or cancelled
        return task.result()

    def raise_if_cancelled(self) -> None:
        """Raise the cancellation that came meanwhile, if any; it takes precedence over other errors."""
        if self._cancelled is not None:
            raise self._cancelled


class BargingLock:
    """A lock for short sections that many threads enter often. A thread that runs enters before those that wait.

    Which thread gets a `threading.Lock` next is the system's choice. One that waits takes it without the interpreter
    lock, so it may own it before it can run. Each thread that comes meanwhile has to wait as well: after the first wait
    every section costs a change of threads (a lock convoy). We measured that on Linux
    (docs/decisions/0057-slots-share-locks-that-barge.md). Here a thread that finds the lock taken looks again a little
    later: the order is not fair. It is not reentrant, and only for `with`.

    A handler of signals may raise, as that of Ctrl-C does, and the lock is free after the block also then: `with` looks
    up both ends before it takes the lock, and what they are is written in C. So no handler runs between the taking of
    the lock and the block, or between the block and its release. (Python 3.14 may run one there, for each lock:
    https://github.com/python/cpython/issues/148874.)
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        """Not locked."""
        self._lock = threading.Lock()

    @property
    def __enter__(self) -> Callable[[], bool]:
        """What takes the lock, once it was seen free. Another thread may be ahead even so: then that waits in C."""
        pause = _FIRST_PAUSE
        while self._lock.locked():
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302, PYI036 - a property, whose value takes the arguments
        """What releases the lock."""
        return self._lock.__exit__


class Rest(NamedTuple):
    """A request of steps to wait until `until` (monotonic microseconds) or until `wakeup` is set."""

    wakeup: Wakeup
    until: MonotonicUs | None
