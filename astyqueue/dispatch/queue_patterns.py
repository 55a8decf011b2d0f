"""The queues of a store whose names match a pattern: they join a dispatcher while it runs, and leave when dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Protocol

from astyqueue.clock import Clock
from astyqueue.dispatch.handlers import HandlerRegistry
from astyqueue.dispatch.subscription import QueueOptions
from astyqueue.dispatch.worker_log import log_event, log_mistake
from astyqueue.errors import AstyqueueError, BadInput, Closed
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import reason_of
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: The queues of the store are listed this often: one read for all patterns that have the same directory.
EVERY: Final = 5 * SECOND


class QueueDirectory(Protocol):
    """A store whose queues can be listed and opened, such as a connection."""

    @property
    def clock(self) -> Clock:
        """The clock of its queues."""

    def queues(self) -> list[str]:
        """The names of the queues in the store."""

    def queue(self, name: str) -> MessageQueue:
        """The queue of this name, opened."""


def _without_limit(_: str) -> None:
    """The limit of a queue that has none."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuePattern:
    """A shell-style pattern of names, where to look for them, and the handlers of the queues that match."""

    pattern: str
    directory: QueueDirectory
    roster: HandlerRegistry
    options: QueueOptions
    limit_of: Callable[[str], int | None] = _without_limit

    def options_of(self, queue: str) -> QueueOptions:
        """The options of a queue of this name."""
        return replace(self.options, limit=self.limit_of(queue))


class QueueLimits:
    """How many messages of a queue a process may have at the same time, by names and patterns of queues.

    A name counts before a pattern, and of several patterns the first.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        """`limits` are numbers by name or shell-style pattern."""
        self._limits = dict(limits)

    def of(self, queue: str) -> int | None:
        """The limit of a queue, or None."""
        if queue in self._limits:
            return self._limits[queue]
        return next((limit for pattern, limit in self._limits.items() if fnmatchcase(queue, pattern)), None)

    def check_served(self, served: Collection[str]) -> None:
        """BadInput for the limit of a queue that is not served, by its name or by a pattern."""
        for name in self._limits:
            if not (is_pattern(name) or name in served or any(fnmatchcase(name, one) for one in served)):
                message = f"queue {name!r} has a limit and is not served here: this worker serves {', '.join(served)}"
                raise BadInput(message)


def is_pattern(name: str) -> bool:
    """Whether this stands for several queues: no name of a queue has such characters."""
    return any(character in name for character in "*?[")


class PatternWatch:
    """Looks for queues that match, every five seconds, in the thread that calls `run`.

    A queue that several patterns match is the first one's; those that were named are not looked for.
    """

    def __init__(
        self,
        patterns: Iterable[QueuePattern],
        named: Iterable[str],
        join: Callable[[MessageQueue, QueuePattern], None],
        leave: Callable[[str], None],
    ) -> None:
        """`join` gets each queue that appeared, `leave` the name of each that is not in the store any more."""
        self._patterns = tuple(patterns)
        self._named = frozenset(named)
        self._join = join
        self._leave = leave
        self._joined: set[str] = set()
        self._over = False
        self._clock = self._patterns[0].directory.clock
        self._wakeup = Wakeup(self._clock)

    def look(self) -> None:
        """Look once; raises what a store raises."""
        there = self._matching()
        for name in self._joined - there.keys():
            self._joined.discard(name)
            self._leave(name)
        for name, pattern in there.items():
            if name not in self._joined:
                self._let_join(name, pattern)

    def _let_join(self, name: str, pattern: QueuePattern) -> None:
        queue = pattern.directory.queue(name)
        self._joined.add(name)  # before it joins: if it is dropped at once, another thread forgets it
        try:
            self._join(queue, pattern)
        except BaseException:
            self._joined.discard(name)
            raise

    def _matching(self) -> dict[str, QueuePattern]:
        listed = {one.directory: one.directory.queues() for one in self._patterns}
        found: dict[str, QueuePattern] = {}
        for pattern in self._patterns:
            for name in listed[pattern.directory]:
                if name not in self._named and fnmatchcase(name, pattern.pattern):
                    found.setdefault(name, pattern)
        return found

    def forget(self, name: str) -> None:
        """A queue has left: it joins again if it is found again."""
        self._joined.discard(name)

    def run(self) -> None:
        """Look until `end`. Errors are logged, and the next look follows all the same."""
        while not self._over:
            self._wakeup.wait(self._clock.monotonic() + EVERY)
            if self._over:
                return
            try:
                self.look()
            except Closed:
                return
            except Exception as error:  # noqa: BLE001 - the queues found before are served
                log_event(logging.ERROR, "unlisted", error=reason_of(error))
                if not isinstance(error, AstyqueueError):
                    log_mistake(error, queue="")

    def end(self) -> None:
        """End the looks soon, from any thread."""
        self._over = True
        self._wakeup.set()
