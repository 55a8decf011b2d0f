"""The queues of a store whose names match a pattern: they join a dispatcher while it runs, and leave when dropped."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Protocol

from astyqueue.clock import Clock
from astyqueue.dispatch.execution.waiting_lines import QueueOptions
from astyqueue.dispatch.handlers.handler_registry import HandlerRegistry
from astyqueue.dispatch.subscription import QueueIdentity
from astyqueue.dispatch.worker_log import log_event, log_unexpected_error, store_text
from astyqueue.errors import AstyqueueError, BadInput, Closed, NotFound
from astyqueue.log_throttle import RateLimitedLog
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Store
from astyqueue.text import reason_of
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: The queues of the store are listed this often: one read for all patterns that have the same directory.
EVERY: Final = 5 * SECOND


class QueueDirectory(Protocol):
    """A store whose queues can be listed, opened and closed, such as a connection."""

    @property
    def clock(self) -> Clock:
        """The clock of its queues."""

    @property
    def store(self) -> Store:
        """The store that its queues are in."""

    def queues(self) -> list[str]:
        """The names of the queues in the store."""

    def existing_queue(self, name: str) -> MessageQueue:
        """The queue of this name, opened; NotFound if it was dropped since it was listed: nothing is created."""

    def release(self, queue: MessageQueue) -> None:
        """A queue from `existing_queue` is not served any more: close it, unless something else has it."""


def _without_limit(_: str) -> None:
    """The limit of a queue that has none."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuePattern:
    """A shell-style pattern of names, where to look for them, and the handlers of the queues that match."""

    pattern: str
    directory: QueueDirectory
    registry: HandlerRegistry
    options: QueueOptions
    limit_of: Callable[[str], int | None] = _without_limit

    def found(self, name: str) -> FoundQueue | None:
        """The queue of this name, opened; None if it was dropped since it was listed."""
        options = replace(self.options, limit=self.limit_of(name))  # first: it may raise, and then nothing is opened
        try:
            return FoundQueue(self.directory.existing_queue(name), self, options)
        except NotFound:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class FoundQueue:
    """A queue that a pattern has found, opened for the dispatcher, and its options."""

    queue: MessageQueue
    pattern: QueuePattern
    options: QueueOptions

    @property
    def has_spool(self) -> bool:
        """Whether it is open, and its end forwards what is in a spool."""
        try:
            return self.queue.core.spooling is not None
        except Closed:
            return False

    def close(self) -> None:
        """Have its directory close it."""
        self.pattern.directory.release(self.queue)


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

    A queue that several patterns match is the first one's; those that were named are not looked for. One that cannot be
    opened, or whose limit cannot be found, is logged once a minute and tried again with each look; it hides no other.
    Nor does a store that cannot be listed, whose queues stay. Queues that have left are closed by that thread, as what
    is in a spool is forwarded first; those that are left at the end of the dispatcher by the thread that ends it.
    """

    def __init__(
        self,
        patterns: Iterable[QueuePattern],
        named: Iterable[QueueIdentity],
        join: Callable[[FoundQueue], None],
        leave: Callable[[QueueIdentity], None],
    ) -> None:
        """`join` gets each queue that appeared, `leave` each that is not in the store any more.

        `join` has each queue closed at its end by `close_soon`.
        """
        self._patterns = tuple(patterns)
        #: Those that can be listed, as far as this is known: no connection that was closed.
        self._directories = list(dict.fromkeys(one.directory for one in self._patterns))
        self._named = set(named)
        self._join = join
        self._leave = leave
        self._joined: set[QueueIdentity] = set()
        self._to_close: deque[FoundQueue] = deque()
        self._closing = threading.Lock()
        self._over = False
        self._clock = self._patterns[0].directory.clock
        self._wakeup = Wakeup(self._clock)
        self._failures = RateLimitedLog()

    def look(self) -> None:
        """Look once; raises what listing the queues raises, and Closed once the dispatcher was stopped."""
        self.close_left()
        self._follow({one: one.queues() for one in self._directories})

    def _follow(self, listed: Mapping[QueueDirectory, list[str]]) -> None:
        """Have queues join and leave, as far as their stores were listed."""
        there = self._matching(listed)
        unlisted = {id(one.directory.store) for one in self._patterns if one.directory not in listed}
        for queue in (one for one in self._joined - there.keys() if one.store not in unlisted):
            self._joined.discard(queue)
            self._leave(queue)
        for queue, pattern in there.items():
            if queue not in self._joined:
                self._try_to_join(queue, pattern)

    def _try_to_join(self, found: QueueIdentity, pattern: QueuePattern) -> None:
        try:
            if (queue := pattern.found(found.name)) is None:
                return
            self._joined.add(found)  # before it joins: if it is dropped at once, another thread forgets it
            self._join(queue)
        except Exception as error:  # the other queues are served, and this one is tried again
            if isinstance(error, Closed) and found in self._joined:  # not of the queue: the dispatcher was stopped
                raise
            self._joined.discard(found)
            if self._failures.may_say(found.name, self._clock.monotonic()):
                _log_failure("queue_not_joined", error, queue=found.name)

    def _matching(self, listed: Mapping[QueueDirectory, list[str]]) -> dict[QueueIdentity, QueuePattern]:
        found: dict[QueueIdentity, QueuePattern] = {}
        for pattern in self._patterns:
            store = id(pattern.directory.store)
            for name in listed.get(pattern.directory, ()):
                queue = QueueIdentity(store, name)
                if queue not in self._named and fnmatchcase(name, pattern.pattern):
                    found.setdefault(queue, pattern)
        return found

    def leave_out(self, queue: QueueIdentity) -> None:
        """Look for this queue no longer: it was named."""
        self._named.add(queue)

    def close_soon(self, queue: FoundQueue) -> None:
        """Close a queue that has left, or did not join, with the next look. Any thread may call this."""
        self._to_close.append(queue)

    def close_left(self) -> None:
        """Close the queues that `close_soon` was called with, and wait for that. Any thread may call this.

        Those with spools are closed at the same time: with the store away this takes as long as for one queue.
        """
        with self._closing:
            threads = []
            while self._to_close:
                left = self._to_close.pop()
                thread = threading.Thread(target=_close, args=(left,), name="astyqueue:close", daemon=True)
                if left.has_spool and _has_started(thread):
                    threads.append(thread)
                else:
                    _close(left)
            for thread in threads:
                thread.join()

    def forget(self, queue: QueueIdentity) -> None:
        """A queue has left: it joins again if it is found again."""
        self._joined.discard(queue)

    def run(self) -> None:
        """Look until `end`. Errors are logged, and the next look follows all the same."""
        while self._directories and not self._over:
            self._wakeup.wait(self._clock.monotonic() + EVERY)
            if self._over:
                break
            self.close_left()
            try:
                self._follow(self._listed())
            except Closed:
                break
            except Exception as error:  # noqa: BLE001 - the queues found before are served
                _log_failure("queue_listing_failed", error)
        self.close_left()  # one that was found while the dispatcher ended

    def _listed(self) -> dict[QueueDirectory, list[str]]:
        """The queues of each directory that can be listed now; errors are logged."""
        listed: dict[QueueDirectory, list[str]] = {}
        for one in tuple(self._directories):
            try:
                listed[one] = one.queues()
            except Closed:
                self._directories.remove(one)
            except Exception as error:  # noqa: BLE001 - the other stores are listed, and the queues found before are served
                _log_failure("queue_listing_failed", error, store=store_text(one.store))
        return listed

    def end(self) -> None:
        """Stop listing queues; any thread may call this."""
        self._over = True
        self._wakeup.set()


def _has_started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError:  # as at the interpreter's exit
        return False
    return True


def _close(left: FoundQueue) -> None:
    try:
        left.close()
    except Exception as error:  # noqa: BLE001 - the other queues are closed, and looked for
        _log_failure("queue_not_closed", error, queue=left.queue.name)


def _log_failure(event: str, error: Exception, **facts: object) -> None:
    log_event(logging.ERROR, event, **facts, error=reason_of(error))
    if not isinstance(error, AstyqueueError):
        log_unexpected_error(error, **facts)
