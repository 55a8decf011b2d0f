"""Where whoever claims hands deliveries to the handlers, and how many more there may be: all that the two share."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.dispatch.pace import Pace
from astyqueue.queue.delivery import Delivery

#: A delivery that waited so long behind busy handlers is given back: others may have a free one.
_HOARDED: Final = 2 * SECOND


class Backlog:
    """One line of deliveries. Taking one needs no lock; a condition is there only to sleep on.

    Credit follows the free handlers and the room in the line. It is asked for in gulps, when half of the bound is free,
    because a claim costs a commit however little it brings.
    """

    def __init__(self, pace: Pace, call: Callable[[], None]) -> None:
        """`call` has whoever claims ask for the credit again."""
        self.on_idle: Callable[[], None] = _nobody
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
        """How many wait."""
        return len(self._waiting)

    def take(self) -> Delivery | None:
        """The oldest delivery, waited for; None once the backlog is shut and empty."""
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
        """Whether nothing waits and so many takers have nothing to do: they wait, or were told that nothing more comes."""
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
        """How many more may come. What was granted is not taken back because part of it has come."""
        if self._shut:
            return 0
        self._pace.adapt()
        bound = self._pace.bound
        gulp = max(1, bound // 2)
        # These two before the line is measured: whoever makes room after that sees them, and calls.
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
        """Let these be taken; those that come after the backlog was shut come back."""
        with self._changed:
            late = [delivery for delivery in deliveries if not delivery.settled] if self._shut else []
            self._waiting.extend(deliveries if not late else [one for one in deliveries if one.settled])
            self._granted -= len(deliveries)
            self._changed.notify(min(self._idle, len(self._waiting)))
        return late

    def hoarded(self, now: int) -> list[Delivery]:
        """What is to be given back because nothing was taken for a while, every handler being busy."""
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
        """Take in nothing more; what was not begun comes back. What is handed out at most once stays, to be handled."""
        with self._changed:
            self._shut = True
            self._changed.notify_all()
        return self.give_back()

    def give_back(self) -> list[Delivery]:
        """Everything that waits and can be claimed again by somebody else."""
        waiting = []
        while (delivery := self._pop()) is not None:
            waiting.append(delivery)
        with self._changed:
            self._waiting.extend(delivery for delivery in waiting if delivery.settled)
            self._changed.notify(min(self._idle, len(self._waiting)))
        return [delivery for delivery in waiting if not delivery.settled]

    def abandon(self) -> list[Delivery]:
        """Everything that waits, whatever becomes of it."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting


def _nobody() -> None:
    """Nobody wants to know when a taker has nothing to do."""
