"""Who looks after running handlers, and closes a dispatcher down."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import chain
from typing import Final

from astyqueue.clock import Clock
from astyqueue.dispatch.subscription import Subscription, tasks_of
from astyqueue.dispatch.telling import REMIND, tell, tell_trace
from astyqueue.errors import HandlersStuck
from astyqueue.queue.terms import reason_of
from astyqueue.wakeup import Wakeup

_NEVER: Final = 1 << 62


class Steward:
    """One thread that gives up handlers that have had their time, replaces threads that died, and drains all subscriptions in the end.

    It is there from the start, because at the interpreter's exit, when it is needed most, no thread can be started.
    """

    def __init__(
        self,
        subscriptions: tuple[Subscription, ...],
        clock: Clock,
        max_stalled: int | None,
        on_end: Callable[[Exception], None],
    ) -> None:
        """Look after these; `on_end` is called when as many handlers are stuck as may be."""
        self._threads = sum(one.slots for one in subscriptions)
        self._most = None if max_stalled is None else min(max_stalled, self._threads)
        self._on_end = on_end
        self._tell_at: int | None = None
        self._lost: set[Subscription] = set()
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
        self._watch_stuck()

    def _watch_stuck(self) -> None:
        """Report handlers that are stuck: once a minute, and at once when a queue has lost its last thread. Too many end the dispatcher."""
        stuck = {one: one.executions.stuck for one in self._subscriptions}
        count, now = sum(map(len, stuck.values())), self._clock.monotonic()
        if not count:
            self._tell_at, self._lost = None, set()
            return
        if self._tell_at is None:
            self._tell_at = min(one.deadline or now for one in chain.from_iterable(stuck.values())) + REMIND
        lost = {one for one, held in stuck.items() if len(held) >= one.slots}
        if now >= self._tell_at or not lost <= self._lost:
            self._each(Subscription.tell_stuck)
            self._tell_at = now + REMIND
        self._lost = lost
        if self._most is not None and count >= self._most and self._drained_by is None:
            self._on_end(HandlersStuck(count, self._threads, tasks_of(chain.from_iterable(stuck.values()))))

    def _rest(self, until: int) -> None:
        """Rest until the next has had its time, or a signal comes."""
        deadlines = [one.executions.next_deadline() for one in self._subscriptions]
        alarm = min(self._alarm, until, *(deadline for deadline in (*deadlines, self._tell_at) if deadline is not None))
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
