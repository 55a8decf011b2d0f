"""When a worker is to end by itself: once its queues are empty, or after so many messages."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable

from astyqueue.clock import SECOND
from astyqueue.dispatch.handlers import Call
from astyqueue.errors import Snooze, StoreError
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.wakeup import Wakeup


class AfterMessages:
    """Middleware that lets so many messages be worked on, then calls for the end; further ones go back, at no cost."""

    def __init__(self, most: int, end: Callable[[], None]) -> None:
        """`end` is called once, when the last of them is done."""
        self._most = most
        self._end = end
        self._begun = itertools.count(1)
        self._ended = itertools.count(1)

    def __call__(self, delivery: Delivery, call_next: Call) -> object:
        """Let it be worked on, or give it back."""
        if next(self._begun) > self._most:
            raise Snooze(0)
        try:
            return call_next(delivery)
        finally:
            if next(self._ended) == self._most:
                self._end()


class WhenEmpty:
    """Calls for the end once nothing in these queues is due or being worked on, here or elsewhere.

    What is delayed, backing off or parked is not waited for, nor is a queue that is paused.
    """

    def __init__(self, queues: Iterable[MessageQueue], end: Callable[[], None]) -> None:
        """`end` is called once."""
        self._queues = list(queues)
        self._end = end

    def watch(self) -> None:
        """Begin to look, in a thread of its own."""
        threading.Thread(target=self._run, name="astyqueue:burst", daemon=True).start()

    def _run(self) -> None:
        clock = self._queues[0].clock
        wakeup = Wakeup(clock)
        pause = SECOND // 100
        while not self._empty():
            wakeup.wait(clock.monotonic() + pause)
            pause = min(2 * pause, SECOND // 4)
        self._end()

    def _empty(self) -> bool:
        try:
            return all(map(_is_empty, self._queues))
        except StoreError:  # the dispatcher meets it too, tells of it and tries again
            return False


def _is_empty(queue: MessageQueue) -> bool:
    """Whether nothing is left to be done now. Looking for one message is cheap; all are counted only when there is none."""
    if queue.settings.behaviour.paused:
        return True
    if queue.peek(1, include="due"):
        return False
    counts = queue.counts()
    return not counts.waiting and not counts.in_flight
