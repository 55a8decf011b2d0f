"""The monitor of a dispatcher: the thread that watches over running handlers, and drains all queues at the end."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Final

from astyqueue.clock import Clock, SystemClock
from astyqueue.dispatch.pools import HandlerPools
from astyqueue.dispatch.subscription import QueueIdentity, Subscription, tasks_of
from astyqueue.dispatch.worker_log import REMIND, log_event, log_traceback, some
from astyqueue.errors import HandlersStuck
from astyqueue.text import reason_of
from astyqueue.units import BEGINNING, ENDLESS, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: How long a stop waits for a user's hook that is asked about the outcome of a handler that has ended.
_CONCLUDED_WITHIN: Final = SECOND
#: How long a drain waits for the claims under way of all queues together, should the store not answer: first for what
#: they bring to be handled, and at the end once more. A queue that leaves waits as long.
_CLAIMS_ENDED_WITHIN: Final = 5 * SECOND
#: Seconds until the other queues are looked after again, should the store not answer the last claim of one that leaves.
_CLAIM_LEAVES_WITHIN: Final = 0.5
#: The pause between looks at a queue that leaves while messages to be handled here, at most once, wait for a slot, or
#: while its last claim is under way.
_LEAVING: Final = SECOND // 10
#: The pause after an error of this thread's own work: where no thread can be started now, one may be a second later.
_AGAIN: Final = SECOND


class HandlerMonitor:
    """One thread that gives up handlers past their timeout, replaces threads that died, and finally drains all queues.

    It runs from the start, because at the interpreter's exit, when it is needed most, no thread can be started.
    """

    def __init__(
        self, pools: HandlerPools, clock: Clock, max_stuck: int | None, on_end: Callable[[Exception], None]
    ) -> None:
        """The monitor calls `on_end` when threads die again and again, and, with `max_stuck`, when handlers are stuck.

        That is `max_stuck` of them, or as many as there are threads.
        """
        self._pools = pools
        self._most = max_stuck
        self._on_end = on_end
        self._report_at: MonotonicUs | None = None
        self._without_slot: set[Subscription] = set()
        self.finished = threading.Event()
        #: Called when all outcomes are recorded, before `finished` is set.
        self.on_left: Callable[[], None] = lambda: None
        #: Called when `finished` is set.
        self.on_finished: Callable[[], None] = lambda: None
        #: The queues that are served, and those of them that are leaving.
        self.subscriptions: tuple[Subscription, ...] = ()
        #: Until when the last claim of each queue that leaves is waited for.
        self._leaving: dict[Subscription, MonotonicUs] = {}
        self._clock = clock
        self._attention = Wakeup(clock)
        self._lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread
        self._drained_by: MonotonicUs | None = None
        self._abandoned = False
        self._alarm = ENDLESS
        pools.watch(self._attention.set)

    def __repr__(self) -> str:
        """How many queues it has, and how many of them leave, and whether it drains them."""
        state = "finished" if self.finished.is_set() else "watches" if self._drained_by is None else "drains"
        return f"<HandlerMonitor of {len(self.subscriptions)} queues, {len(self._leaving)} leaving: {state}>"

    def add(self, subscription: Subscription) -> bool:
        """Watch over one more queue; False once a drain was requested."""
        with self._lock:
            if self._drained_by is not None:
                return False
            subscription.watch(self._on_deadline, self._attention.set)
            self.subscriptions = (*self.subscriptions, subscription)
        return True

    @property
    def staying(self) -> tuple[Subscription, ...]:
        """The queues that are not leaving."""
        with self._lock:
            return tuple(one for one in self.subscriptions if one not in self._leaving)

    @property
    def abandoned(self) -> bool:
        """Whether a handler that still ran was given up, in a queue that has left or one that it has."""
        return any(one.executions.under_way.abandoned for one in self.subscriptions) or self._abandoned

    def serves(self, queue: QueueIdentity) -> bool:
        """Whether it has this queue, and that is not leaving."""
        return any(one.identity == queue for one in self.staying)

    def remove(self, subscription: Subscription) -> None:
        """Claim no more from a queue, let its handlers finish, record their outcomes, and forget it."""
        with self._lock:
            if subscription in self.subscriptions and subscription not in self._leaving:
                self._leaving[subscription] = self._clock.monotonic() + _CLAIMS_ENDED_WITHIN
        self._attention.set()

    def drain(self, timeout: int | None) -> None:
        """Request a drain within `timeout` microseconds (None: no limit); of several requests the earliest counts."""
        until = ENDLESS if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            self._drained_by = until if self._drained_by is None else min(until, self._drained_by)
        self._attention.set()

    def _on_deadline(self, deadline: MonotonicUs) -> None:
        if deadline < self._alarm:
            self._alarm = deadline
            self._attention.set()

    def run(self) -> None:
        """Watch over the handlers until a drain is requested, then drain; errors are logged and do not stop it."""
        try:
            while self._drained_by is None:
                self._guarded(self._watch)
            log_event(logging.INFO, "drain_begun", queues=some(one.name for one in self.subscriptions))
            for stage in (
                lambda: self._each(lambda one: one.shut()),
                self._wait,
                lambda: self._each(lambda one: one.abandon()),
                self._wait_for_outcomes,
                self._end_claims,
                lambda: self._each(lambda one: one.abandon()),
                lambda: self._each(lambda one: one.leave()),
                self._pools.close,
                self.on_left,
            ):
                self._guarded(stage)
            log_event(logging.INFO, "stopped")
        finally:
            self.finish()

    def _watch(self) -> None:
        """Look after the handlers and the queues that leave once, and rest."""
        self._look_after()
        self._guarded(self._let_leave)
        waits = any(len(one.waiting) or one.may_bring or one.claims_are_ending for one in tuple(self._leaving))
        self._rest(self._clock.monotonic() + _LEAVING if waits else ENDLESS)

    def _guarded(self, part: Callable[[], None]) -> None:
        """Do a part of this thread's work; after an error, which is logged, look again after a pause."""
        try:
            part()
        except BaseException as error:  # noqa: BLE001 - without this thread no handler is given up, and no drain ends
            log_event(logging.ERROR, "supervision_failed", error=reason_of(error))
            log_traceback(error)
            self._alarm = min(self._alarm, self._clock.monotonic() + _AGAIN)

    def finish(self) -> None:
        """Say that nothing runs any more: at the end of `run`, or instead of it."""
        self.finished.set()
        self.on_finished()

    def _each(self, part: Callable[[Subscription], None]) -> None:
        """Do this for every subscription; log errors and go on."""
        for subscription in self.subscriptions:
            self._safely(part, subscription)

    @staticmethod
    def _safely(part: Callable[[Subscription], None], subscription: Subscription) -> None:
        try:
            part(subscription)
        except BaseException as error:  # noqa: BLE001 - the other subscriptions must be served
            log_event(logging.ERROR, "supervision_failed", queue=subscription.name, error=reason_of(error))
            log_traceback(error)

    def _let_leave(self) -> None:
        """Take a step with each queue that leaves: end its claims, and when no slot has its messages, forget it."""
        for one, until in tuple(self._leaving.items()):
            self._safely(lambda leaving: leaving.shut(), one)
            if one.may_bring and self._clock.monotonic() < until:
                continue
            if len(one.waiting):
                continue  # delivered at most once: these are handled here
            self._pools.remove_queue(one.waiting)
            if self._pools.is_busy_with(one.waiting):
                continue
            self._safely(lambda leaving: leaving.end_claims(), one)
            if not one.claims_ended(_CLAIM_LEAVES_WITHIN):
                continue
            self._safely(lambda leaving: leaving.abandon(), one)
            self._safely(lambda leaving: leaving.leave(), one)
            self._safely(lambda leaving: leaving.on_left(), one)
            self._pools.forget_queue(one.waiting)
            self._abandoned |= one.executions.under_way.abandoned  # before it is taken out, where others look first
            with self._lock:
                self.subscriptions = tuple(other for other in self.subscriptions if other is not one)
                self._leaving.pop(one, None)
            log_event(logging.INFO, "left", queue=one.name)

    def _look_after(self) -> None:
        """Replace threads that died, give up executions past their deadline, report stuck handlers."""
        self._alarm = ENDLESS
        self._guarded(self._replace_dead)
        self._each(lambda one: one.give_up())
        self._guarded(self._watch_stuck)

    def _replace_dead(self) -> None:
        if (error := self._pools.replace_dead()) is not None:
            self._on_end(error)

    def _watch_stuck(self) -> None:
        """Report stuck handlers once a minute, and at once when a queue has lost its last slot.

        If `max_stuck` of any kind are stuck, or all threads hold one, end the dispatcher.
        """
        stuck = {one: one.executions.under_way.stuck for one in self.subscriptions if one.executions.under_way.given_up}
        count, now = sum(map(len, stuck.values())), self._clock.monotonic()
        if not count:
            self._report_at, self._without_slot = None, set()
            return
        if self._report_at is None:
            self._report_at = min(one.deadline or now for one in chain.from_iterable(stuck.values())) + REMIND
        held = sum(one.executions.under_way.slots_held for one in stuck)
        lost = {one for one in stuck if one.executions.under_way.slots_held >= one.slots or held >= self._pools.size}
        if now >= self._report_at or not lost <= self._without_slot:
            self._each(lambda one: one.report_stuck(held))
            self._report_at = now + REMIND
        self._without_slot = lost
        size = self._pools.size
        if self._most is not None and (count >= self._most or held >= size) and self._drained_by is None:
            self._on_end(HandlersStuck(count, size, tasks_of(chain.from_iterable(stuck.values())), held=held))

    def _rest(self, until: MonotonicUs) -> None:
        """Wait until the next deadline, or a signal."""
        deadlines = [one.executions.under_way.next_deadline() for one in self.subscriptions]
        alarm = min(self._alarm, until, *(moment for moment in (*deadlines, self._report_at) if moment is not None))
        self._alarm = min(self._alarm, alarm)
        self._attention.wait(None if alarm == ENDLESS else alarm)

    def _wait(self) -> None:
        """Wait until no handler runs, or the time to drain is over. Slots end once no claim can bring them anything."""
        claims_until, brings = self._clock.monotonic() + _CLAIMS_ENDED_WITHIN, True
        while True:
            self._look_after()
            now, until = self._clock.monotonic(), self._drained_by or BEGINNING
            if brings and (now >= min(until, claims_until) or not any(one.may_bring for one in self.subscriptions)):
                brings = False
                self._pools.shut()
            if not brings and (self._quiet or now >= until):
                return
            self._rest(min(until, claims_until) if brings else until)

    def _end_claims(self) -> None:
        """End all claims, and wait for those that are under way: what they bring is released with the last outcomes."""
        self._each(lambda one: one.end_claims())
        real = SystemClock()  # a claim waits for the store
        until = real.monotonic() + _CLAIMS_ENDED_WITHIN
        for one in self.subscriptions:
            one.claims_ended(max(0, until - real.monotonic()) / SECOND)

    def _wait_for_outcomes(self) -> None:
        """Wait for threads that are handing in the outcome of a handler that has ended, or it would not be recorded.

        And for those that have taken a delivery, or gathered a batch: they give back what may not begin any more.
        """
        until = self._clock.monotonic() + _CONCLUDED_WITHIN
        while self._concludes and self._clock.monotonic() < until:
            self._attention.wait(until)

    @property
    def _concludes(self) -> bool:
        # First those that begin: one that has begun meanwhile is seen by the other looks.
        begun = [one.executions.under_way.threads for one in self.subscriptions]
        return self._pools.is_beginning(set().union(*begun)) or any(one.concludes for one in self.subscriptions)

    @property
    def _quiet(self) -> bool:
        """Whether no delivery waits for a slot and no handler runs, except those given up."""
        if any(one.waiting.to_be_taken for one in self.subscriptions):
            return False
        held = Counter(pool for one in self.subscriptions for pool in one.waiting.held_by_batches)
        held[self._pools.threads_of_handlers] = sum(one.executions.under_way.slots_held for one in self.subscriptions)
        return self._pools.is_idle(held)
