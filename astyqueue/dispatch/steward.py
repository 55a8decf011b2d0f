"""Who looks after running handlers, and closes a dispatcher down."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from astyqueue.clock import Clock
from astyqueue.dispatch.judging import reason_of
from astyqueue.dispatch.subscription import Subscription
from astyqueue.dispatch.telling import tell, tell_trace
from astyqueue.wakeup import Wakeup

_NEVER: Final = 1 << 62


class Steward:
    """One thread that gives up handlers that have had their time, replaces threads that died, and drains all subscriptions in the end.

    It is there from the start, because at the interpreter's exit, when it is needed most, no thread can be started.
    """

    def __init__(self, subscriptions: tuple[Subscription, ...], clock: Clock) -> None:
        """Look after these."""
        self.finished = threading.Event()
        self._subscriptions = subscriptions
        self._clock = clock
        self._attention = Wakeup(clock)
        self._lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._drained_by: int | None = None
        self._alarm = _NEVER
        for subscription in subscriptions:
            subscription.watch(self._on_deadline, self._attention.set)

    def drain(self, timeout: int | None) -> None:
        """Ask to be drained within so many microseconds; of several such wishes the earliest counts."""
        until = _NEVER if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            self._drained_by = until if self._drained_by is None else min(until, self._drained_by)
        self._attention.set()

    def _on_deadline(self, deadline: int) -> None:
        if deadline < self._alarm:
            self._alarm = deadline
            self._attention.set()

    def run(self) -> None:
        """Watch until a drain is asked for, then drain; nothing that goes wrong keeps it from finishing."""
        while self._drained_by is None:
            self._look_after()
            self._rest(_NEVER)
        tell(logging.INFO, "drain", queues=",".join(one.queue.name for one in self._subscriptions))
        self._each(Subscription.shut)
        self._wait()
        self._each(Subscription.abandon)
        self._each(Subscription.leave)
        tell(logging.INFO, "stopped")
        self.finished.set()

    def _each(self, part: Callable[[Subscription], None]) -> None:
        """Do this for every subscription, whatever goes wrong with another one."""
        for subscription in self._subscriptions:
            try:
                part(subscription)
            except BaseException as error:  # noqa: BLE001 - the others, and what comes next, are as important
                tell(logging.ERROR, "unattended", queue=subscription.queue.name, error=reason_of(error))
                tell_trace(error)

    def _look_after(self) -> None:
        """Replace threads that died, and give up what has had its time."""
        self._alarm = _NEVER
        self._each(Subscription.replace_dead)
        self._each(Subscription.give_up)

    def _rest(self, until: int) -> None:
        """Rest until the next has had its time, or a signal comes."""
        deadlines = [one.executions.next_deadline() for one in self._subscriptions]
        alarm = min((self._alarm, until, *(deadline for deadline in deadlines if deadline is not None)))
        self._alarm = min(self._alarm, alarm)
        self._attention.wait(None if alarm == _NEVER else alarm)

    def _wait(self) -> None:
        """Wait until nothing runs any more, or the time to drain is over."""
        self._look_after()
        while not self._quiet and self._clock.monotonic() < (until := self._drained_by or 0):
            self._rest(until)
            self._look_after()

    @property
    def _quiet(self) -> bool:
        return all(subscription.quiet for subscription in self._subscriptions)
