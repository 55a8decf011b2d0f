"""The event loop that a process has for its handlers, and the watch over one that is kept busy for too long.

Between two awaits a coroutine has its event loop for itself, and all others wait.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.dispatch.stacks import stack_of
from astyqueue.dispatch.worker_log import log_event
from astyqueue.log_throttle import MINUTE, RateLimitedLog
from astyqueue.text import reason_of
from astyqueue.units import MonotonicUs
from astyqueue.waiting import Wakeup

#: Seconds that the interpreter's exit waits for coroutines that it cancelled.
_ENDED_WITHIN: Final = 1.0
#: A loop is asked for a sign of life this number of times within the time that it may be blocked for.
_ASKED: Final = 4
#: A block is logged again after this time.
_AGAIN: Final = MINUTE


class _HandlerLoop:
    """One event loop in a thread, from the first need of it to the end of the process."""

    def __init__(self) -> None:
        """No loop runs yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: Whether the process exits, so that what still runs is cancelled.
        self.ends = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """The thread of the loop is not copied by a fork: a child begins with a loop of its own."""
        self._lock = threading.Lock()
        self._loop = self._thread = None

    def running(self) -> asyncio.AbstractEventLoop:
        """The loop, started if need be; RuntimeError if the system starts no thread for it, or opens no files."""
        with self._lock:
            if self._loop is None:
                self._loop = self._started()
                atexit.register(self._stop)
            return self._loop

    def _started(self) -> asyncio.AbstractEventLoop:
        made: Future[asyncio.AbstractEventLoop] = Future()
        thread = threading.Thread(target=self._run, args=(made,), name="astyqueue:loop", daemon=True)
        try:
            thread.start()
            loop = made.result()
        except (OSError, RuntimeError) as error:
            message = (
                f"the event loop for handlers could not be started ({reason_of(error)}): "
                "raise the limits of open files and threads (ulimit -n, -u)"
            )
            raise RuntimeError(message) from error
        self._thread = thread
        return loop

    @staticmethod
    def _run(made: Future[asyncio.AbstractEventLoop]) -> None:
        """Make a loop and run it until it is stopped; what still runs then is cancelled."""
        with contextlib.ExitStack() as stack:
            try:
                loop = stack.enter_context(asyncio.Runner()).get_loop()
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the loop
                made.set_exception(error)
                return
            made.set_result(loop)
            loop.run_forever()

    def _stop(self) -> None:
        self.ends = True
        if self._loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it was closed
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_ENDED_WITHIN)


_handlers: Final = _HandlerLoop()


def loop_for_handlers() -> asyncio.AbstractEventLoop:
    """The one event loop of this process for handlers; it runs in a thread of its own."""
    return _handlers.running()


def loop_for_handlers_ends() -> bool:
    """Whether it cancels what still runs, because the process exits."""
    return _handlers.ends


class LoopWatchdog:
    """A thread that notices when an event loop does not come to its callbacks, and reports what keeps it.

    It asks the loop for a sign of life four times in `limit`, while coroutines are in flight. A block of 1.25 times the
    limit is always noticed.
    """

    def __init__(
        self,
        in_flight: Callable[[], int],
        tell: Callable[[asyncio.Task[object] | None, int, str], None],
        limit: int,
    ) -> None:
        """`tell` gets the task that keeps the loop, how long it has so far (microseconds), and the stack."""
        self._in_flight = in_flight
        self._tell = tell
        #: Called if the loop is closed although coroutines are in flight.
        self.on_closed: Callable[[], object] = lambda: None
        self._limit = limit
        self._clock = SystemClock()
        self._wakeup = Wakeup(self._clock)
        self._thread: threading.Thread | None = None
        self._watching = False
        self._closed = False
        self._answered = True
        self._late = False
        self._failures = RateLimitedLog()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch this loop, in whose thread this is called, until nothing is in flight any more."""
        if self._watching:
            return
        self._watching = self._thread is not None or self._started(loop)
        self._wakeup.set()

    def _started(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Start the thread; False if that fails: coroutines run without a watch then, and the next one tries again."""
        arguments = (loop, threading.get_ident())
        thread = threading.Thread(target=self._run, args=arguments, name="astyqueue:watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if self._failures.may_say("unwatched", self._clock.monotonic()):
                log_event(logging.WARNING, "unwatched", error=reason_of(error))
            return False
        self._thread = thread
        return True

    def close(self) -> None:
        """End the watch."""
        self._closed = True
        self._wakeup.set()

    def _run(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._closed:
            if not self._watching:
                self._wakeup.wait()
                continue
            asked = self._clock.monotonic()
            self._answered = False
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                self.on_closed()
                return
            self._rest_until(asked + self._limit // _ASKED)
            if not self._answered:
                self._await_answer(loop, thread, asked)

    def _answer(self) -> None:
        """Give the sign of life, in the thread of the loop, as `watch`: so no beginning is missed."""
        self._watching = bool(self._in_flight())
        self._answered = True
        if self._late:
            self._wakeup.set()

    def _await_answer(self, loop: asyncio.AbstractEventLoop, thread: int, asked: MonotonicUs) -> None:
        """Wait for the sign of life; report what keeps the loop after the limit, and once a minute from then on."""
        self._late = True
        pause = self._limit
        while not (self._answered or self._closed):
            self._wakeup.wait(asked + pause)
            lasts = self._clock.monotonic() - asked
            if not self._answered and lasts >= pause:
                self._tell(asyncio.current_task(loop), lasts, stack_of(thread))
                pause = lasts + _AGAIN
        self._late = False

    def _rest_until(self, until: MonotonicUs) -> None:
        while self._clock.monotonic() < until and not self._closed:
            self._wakeup.wait(until)
