"""The queue of deliveries between the claim thread and the handler threads, and the credit for further claims."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from astyqueue.dispatch.backlog_size import AdaptivePrefetch
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.units import SECOND

#: Deliveries go back when no handler took one for this duration: another process may have a free handler.
_HOARDED: Final = 2 * SECOND


class Backlog:
    """A FIFO of deliveries. Taking one needs no lock; handlers sleep on a condition while it is empty.

    Credit is the free handlers plus the room below the bound. It is granted in gulps, when half of the bound is free,
    because each claim costs a commit, however few messages it returns.
    """

    def __init__(self, pace: AdaptivePrefetch, call: Callable[[], None]) -> None:
        """`call` makes the claim thread read the credit again."""
        self.on_idle: Callable[[], None] = _ignore
        self._pace = pace
        self._call = call
        self._waiting: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._shut = False
        self._refused = False
        self._call_at = 0
        self._granted = 0
        self._first: Delivery | None = None
        self._first_since = 0

    def __len__(self) -> int:
        """The number of waiting deliveries."""
        return len(self._waiting)

    def take(self) -> Delivery | None:
        """Wait for the oldest delivery; None once the backlog is shut and empty."""
        try:
            delivery: Delivery | None = self._waiting.popleft()
        except IndexError:
            delivery = self._wait()
        if self._refused and len(self._waiting) <= self._call_at:
            self._ask()
        return delivery

    def _wait(self) -> Delivery | None:
        with self._changed:
            self._idle += 1
            if self._refused:
                self._ask()
            while (delivery := self._pop()) is None and not self._shut:
                self._changed.wait()
            if delivery is not None:
                self._idle -= 1
        if delivery is None:
            self.on_idle()
        return delivery

    def idle(self, takers: int) -> bool:
        """Whether no delivery waits and at least `takers` handler threads are idle, or have left after the end."""
        with self._changed:
            return self._idle >= takers and not self._waiting

    def _pop(self) -> Delivery | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _ask(self) -> None:
        self._refused = False
        self._call()

    def credit(self) -> int:
        """How many more deliveries may come. A grant stays valid when part of it has arrived."""
        if self._shut:
            return 0
        self._pace.adapt()
        bound = self._pace.bound
        gulp = max(1, bound // 2)
        # Set before the backlog is measured: a handler that makes room after that sees them, and calls.
        self._call_at = bound - gulp
        self._refused = True
        room = bound + self._idle - len(self._waiting)
        if room >= gulp:
            self._granted = room
        credit = max(0, min(room, self._granted))
        if credit:
            self._refused = False
        return credit

    def accept(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Add these deliveries; returns those to give back because the backlog was shut."""
        with self._changed:
            late = [delivery for delivery in deliveries if not delivery.settled] if self._shut else []
            self._waiting.extend(deliveries if not late else [one for one in deliveries if one.settled])
            self._granted -= len(deliveries)
            self._changed.notify(min(self._idle, len(self._waiting)))
        return late

    def hoarded(self, now: int) -> list[Delivery]:
        """The deliveries to give back because every handler was busy and none was taken for two seconds."""
        first = self._head() if self._pace.adapts else None
        if first is not self._first:
            self._first, self._first_since = first, now
        if first is None or now - self._first_since < _HOARDED:
            return []
        self._pace.took(now - self._first_since)
        return self.give_back()

    def _head(self) -> Delivery | None:
        try:
            return self._waiting[0]
        except IndexError:
            return None

    def shut(self) -> list[Delivery]:
        """Accept no more; returns the deliveries to give back. At-most-once ones stay, to be handled."""
        with self._changed:
            self._shut = True
            self._changed.notify_all()
        return self.give_back()

    def give_back(self) -> list[Delivery]:
        """Remove and return the waiting deliveries that a process can claim again; at-most-once ones stay."""
        waiting = []
        while (delivery := self._pop()) is not None:
            waiting.append(delivery)
        with self._changed:
            self._waiting.extend(delivery for delivery in waiting if delivery.settled)
            self._changed.notify(min(self._idle, len(self._waiting)))
        return [delivery for delivery in waiting if not delivery.settled]

    def abandon(self) -> list[Delivery]:
        """Remove and return all waiting deliveries."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting


def _ignore() -> None:
    """The default of `on_idle`."""
