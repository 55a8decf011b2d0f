"""The observers of a queue, and how events reach them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from astyqueue.log_throttle import RateLimitedLog
from astyqueue.observe.debug_log import DebugLog
from astyqueue.observe.events import ObservedEvent
from astyqueue.structured_log import log_event
from astyqueue.units import BEGINNING, MonotonicUs

_log: Final = logging.getLogger("astyqueue.queue")


class Observer(Protocol):
    """Gets the events of a queue in one process.

    `observe` is called in the thread or task in which the event happened, often the leader's, which works for all
    consumers of the process: it should take microseconds. It may be called from many threads at once, and must not use
    the queue. An error that it raises is logged, once a minute for each type of error, and changes nothing.
    """

    def observe(self, event: ObservedEvent) -> None:
        """Called once for each event, after it happened."""
        ...


def _no_time() -> MonotonicUs:
    return BEGINNING


class Observers:
    """The observers of one queue in one process, and its debug log while one of that log's loggers is at level DEBUG.

    Callers check `on` before they make an event, so an unobserved queue makes none.
    """

    __slots__ = ("_errors", "_given", "_present", "monotonic", "on", "queue")

    def __init__(
        self, given: Iterable[Observer] = (), *, queue: str = "", monotonic: Callable[[], MonotonicUs] = _no_time
    ) -> None:
        """`given` get the events of this `queue`, in this order; `monotonic` is the clock that measures requests."""
        self.queue = queue
        self.monotonic = monotonic
        self._given = tuple(given)
        self._present = self._given
        self._errors = RateLimitedLog()
        self.on = bool(self._given)

    @classmethod
    def of_debug_log(cls, monotonic: Callable[[], MonotonicUs]) -> Observers:
        """Only the debug log, as its levels are now: for requests that belong to no observed queue."""
        observers = cls(monotonic=monotonic)
        observers.check_log_levels()
        return observers

    def check_log_levels(self) -> None:
        """Begin or end debug logging, as the levels of its loggers are now."""
        if self is UNOBSERVED:
            return
        self._present = (*self._given, DebugLog()) if DebugLog.wanted() else self._given
        self.on = bool(self._present)

    def anew(self) -> Observers:
        """The same observers for a child process, in which locks of its parent cannot be trusted."""
        copy = Observers(self._given, queue=self.queue, monotonic=self.monotonic)
        copy.check_log_levels()
        return copy

    def notify(self, *events: ObservedEvent) -> None:
        """Pass these events to each observer."""
        for event in events:
            for observer in self._present:
                try:
                    observer.observe(event)
                except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                    self._report(observer, error)

    def _report(self, observer: Observer, error: Exception) -> None:
        name = f"{type(observer).__qualname__} {type(error).__qualname__}"
        if self._errors.may_say(name, self.monotonic()):
            log_event(_log, logging.ERROR, "observer_failed", exc_info=error, observer=type(observer).__name__)


#: The observers of a queue that is not observed.
UNOBSERVED: Final = Observers()
