"""When a worker is to end by itself: once its queues are empty."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from astyqueue.clock import SECOND
from astyqueue.errors import AstyqueueError, Closed
from astyqueue.queue.queue import MessageQueue
from astyqueue.wakeup import Wakeup


class WhenEmpty:
    """Calls for the end once nothing in these queues is due or being worked on, here or elsewhere.

    What is delayed, backing off or parked is not waited for, nor is a queue that is paused.
    """

    def __init__(self, queues: Iterable[MessageQueue], end: Callable[[], None]) -> None:
        """`end` is called once."""
        self._queues = list(queues)
        self._end = end

    def watch(self) -> threading.Thread:
        """Begin to look, in a thread of its own."""
        thread = threading.Thread(target=self._run, name="astyqueue:burst", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        clock = self._queues[0].clock
        wakeup = Wakeup(clock)
        pause = SECOND // 100
        try:
            while not self._empty():
                wakeup.wait(clock.monotonic() + pause)
                pause = min(2 * pause, SECOND // 4)
        except Closed:  # the worker has ended before
            return
        self._end()

    def _empty(self) -> bool:
        try:
            return all(map(_is_empty, self._queues))
        except Closed:
            raise
        except AstyqueueError:  # the dispatcher meets it too, tells of it and tries again
            return False


def _is_empty(queue: MessageQueue) -> bool:
    """Whether nothing is left to be done now. Looking for one message is cheap; all are counted only when there is none."""
    if queue.settings.behaviour.paused:
        return True
    if queue.peek(1, include="due"):
        return False
    counts = queue.counts()
    return not counts.waiting and not counts.in_flight
