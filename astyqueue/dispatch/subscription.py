"""One queue of a dispatcher and its handlers.

A claim thread leads the claimers of several queues; slots, which all queues share, take the deliveries that wait and
hand in outcomes, which join the next claim's commit. Leases are renewed after two fifths of their time while their
deliveries wait or their handlers run, up to a handler's timeout.

Leases cannot be renewed while no thread of the process runs. Code that keeps the interpreter lock for longer than 60 %
of a lease (a C extension that never releases it, a regular expression that backtracks without end) stops the renewing
thread as well, and so does a suspended or starved process; the message is then handed out a second time, and the late
outcome changes nothing. Choose leases more than twice as long as such pauses, or run that code in a process of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, Self, cast

from astyqueue.dispatch.claim_loop import ClaimLoop, flush
from astyqueue.dispatch.execution.delivery_execution import DeliveryOutcome
from astyqueue.dispatch.execution.waiting_lines import QueueOptions, WaitingLines
from astyqueue.dispatch.flow_control import InFlightLimit, MessageQuota
from astyqueue.dispatch.handlers.handler import LineKey
from astyqueue.dispatch.handlers.handler_registry import HandlerRegistry
from astyqueue.dispatch.pools import HandlerPools
from astyqueue.dispatch.running_executions import Execution
from astyqueue.dispatch.step_loop import StepTask
from astyqueue.dispatch.worker_log import HeldThreads, log_event, short
from astyqueue.errors import AlreadySettled, AstyqueueError
from astyqueue.model.health import StuckReport
from astyqueue.protocol.admin.health import report_stuck
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import reason_of
from astyqueue.units import MonotonicUs

_LOST: Final = "other consumers claimed these messages, or they were deleted: their outcomes logged here had no effect"
#: The most stuck handlers that are logged, a line each.
_NAMED: Final = 10


class QueueIdentity(NamedTuple):
    """By what queues differ: their store (its `id`) and their name, because two stores may each have a queue of it."""

    store: int
    name: str

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        """That of a queue; each `connect(url).queue(name)` opens the same queue of its connection anew."""
        return cls(id(queue.store), queue.name)


class Subscription:
    """A queue and its handlers, from start to the last flush."""

    def __init__(
        self,
        queue: MessageQueue,
        registry: HandlerRegistry,
        pools: HandlerPools,
        *,
        options: QueueOptions,
        quota: MessageQuota,
    ) -> None:
        """Nothing runs yet. All queues of a dispatcher share its pools, and one `quota`."""
        self._quota = quota
        self.queue = queue
        self.name = queue.name
        self.identity = QueueIdentity.of(queue)
        self.weight = options.weight
        self.from_pattern = options.from_pattern
        self.tasks = registry.names
        self._registry = registry
        self.pools = pools
        #: The most of its messages that are in this process at the same time, or None.
        self.limit = options.limit
        self._claimer = queue.core.claimer
        # What waits counts among the limited, so it would only wait for a slot here instead of in another process.
        backlog = 0 if options.limit is not None and options.backlog is None else options.backlog
        self.waiting = WaitingLines(queue, registry, pools, options=replace(options, backlog=backlog), quota=quota)
        self.executions = self.waiting.executions
        self._in_flight: InFlightLimit | None = None
        if options.limit is not None:
            self._in_flight = InFlightLimit(options.limit, self.executions.under_way, queue.core.process.now)
            self.executions.on_ended = self._on_ended
        #: The most of its handlers that run in threads at a time.
        self.slots = self.waiting.threads
        self._lost = queue.stats.lost
        self._claims: ClaimLoop | None = None
        self._shut = self._last_claim_over = self._claims_must_end = False
        self._on_change: Callable[[], None] = lambda: None
        #: Called when this has left, or at the end of the dispatcher: nothing of it runs or waits any more.
        self.on_left: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        """The queue, what waits for a slot and what is with handlers, and whether it is claimed from."""
        under_way = self.executions.under_way
        messages = f"{len(self.waiting)} waiting, {len(under_way.all())} running, {len(under_way.stuck)} stuck"
        return f"<Subscription of {self.name}: {messages}, {self._claims or 'not started'}>"

    def start(self, on_end: Callable[[Exception | None], None]) -> StepTask:
        """Have the pools take its deliveries; returns the steps that claim, for a claim thread."""
        waiter = Waiter(self._credit, self._accept, delivery_factory=self.waiting.delivery_factory, renew=True)
        self._claims = claims = ClaimLoop(self.queue, waiter, on_end)
        if self._claims_must_end:
            claims.end()
        self.executions.log.listen()
        self.waiting.start()
        return StepTask(claims.steps(), self.queue.store, self.queue.core.observers, self._on_rest)

    def line_of(self, task: str | None) -> LineKey:
        """The line of the messages of a task."""
        return self._registry.line_of(task)

    @property
    def lines(self) -> tuple[LineKey, ...]:
        """The lines of all its handlers that are known."""
        return self._registry.lines

    def _credit(self) -> int:
        """The credit; it also releases hoarded deliveries.

        The leader calls this whenever it wakes, between claims: while deliveries are leased, at least once a second.
        """
        shut = self._shut
        for delivery in self.waiting.hoarded():
            self._claimer.give_back(delivery)
        self._log_lost()
        credit = self.waiting.credit()
        if shut:
            self._end_last_claim()
        return self._quota.room(credit if self._in_flight is None else min(credit, self._in_flight.room()))

    def _on_rest(self) -> None:
        """The claim thread has nothing to do for this queue now. While it is paused, no credit is read."""
        if self._shut and self.queue.settings.behaviour.paused:
            self._end_last_claim()
        self.waiting.end_promises()

    def _on_ended(self, delivery: Delivery) -> None:
        """A handler has ended, or does not begin: one more message may be claimed."""
        if self._in_flight is not None:
            self._in_flight.left(delivery)
        self._claimer.wake()

    def _end_last_claim(self) -> None:
        if not self._last_claim_over:
            self._last_claim_over = True
            self._on_change()

    @property
    def may_bring(self) -> bool:
        """Whether a claim that began before `shut` may still bring at-most-once messages, to be handled here."""
        claims = self._claims
        return self._shut and not self._last_claim_over and claims is not None and claims.takes_part

    def _log_lost(self) -> None:
        if (lost := self.queue.stats.lost) != self._lost:
            ids = ",".join(map(str, self.queue.stats.latest_lost(lost - self._lost)))
            log_event(logging.WARNING, "lost", queue=self.queue.name, leases=lost - self._lost, ids=ids, effect=_LOST)
            self._lost = lost

    def _accept(self, deliveries: list[BaseDelivery]) -> None:
        self.executions.log.listen()
        if self._in_flight is not None:
            self._in_flight.accepted(deliveries)
        for delivery in self.waiting.accept(cast("list[Delivery]", deliveries)):
            self._claimer.give_back(delivery)

    def watch(self, on_deadline: Callable[[MonotonicUs], None], on_change: Callable[[], None]) -> None:
        """Call `on_deadline` with each new deadline.

        `on_change` is called when the last claim is over once this was shut, and when an outcome is handed in after
        `abandon`.
        """
        self.executions.on_deadline = on_deadline
        self.executions.on_concluded = self._on_change = on_change

    def shut(self) -> None:
        """Stop claiming, and release the waiting deliveries. One claim may be under way: see `may_bring`."""
        given_back = self.waiting.shut()
        if not self._shut:
            self._shut = True
            self._claimer.wake()
        self._settle([(delivery, self.queue.retry_policy.release(delivery, None)) for delivery in given_back])

    def give_up(self) -> None:
        """Settle executions past their deadline as failed attempts."""
        self._settle(self.executions.overdue())

    def report_stuck(self, held_in_all: int) -> None:
        """Log the handlers that run on past their timeout, and store a report for `doctor`.

        `held_in_all` threads are held by such handlers of all queues: they are counted against the slots of the
        dispatcher, and those of this queue against its own limit once that is reached.
        """
        stuck = self.executions.under_way.stuck
        if not stuck:
            return
        own = sum(execution.holds_slot for execution in stuck)
        held, slots = (own, self.slots) if own >= self.slots else (held_in_all, self.pools.size)
        for execution in stuck[:_NAMED]:
            self._log_stuck(execution, HeldThreads(held, slots))
        name = self.queue.core.process.name
        with contextlib.suppress(AstyqueueError):  # the next report is a minute later
            report = StuckReport(
                name, held if own else 0, slots, stuck[0].began, tasks_of(stuck), others=len(stuck) - own
            )
            self.queue.run(report_stuck(self.queue.name, report))

    def _log_stuck(self, execution: Execution, threads: HeldThreads) -> None:
        lasts = execution.lasts(self.queue.clock.monotonic())
        stack = self.executions.stack_while_stuck(execution)
        held = threads if execution.holds_slot else None
        self.executions.log.stuck(execution.delivery, execution.handler, lasts=lasts, held=held, stack=stack)

    def abandon(self) -> None:
        """Release the messages whose handlers still run, and log those at most once that still wait: they are lost."""
        for delivery in self.waiting.abandon():
            self.executions.log.dropped(delivery)
        self._settle(self.executions.abandon())

    def _settle(self, outcomes: list[DeliveryOutcome]) -> None:
        """Settle now. A handler that runs on may settle the same delivery at the same time: the first outcome wins."""
        while left := [(delivery, outcome) for delivery, outcome in outcomes if not delivery.decided]:
            try:
                self.queue.run(self._claimer.settle([*left]))
            except BaseException as error:  # noqa: BLE001 - a hook may raise anything, and a drain must go on
                if isinstance(error, AlreadySettled) and any(delivery.decided for delivery, _ in left):
                    continue
                self._settle_later(left, error)
            return

    def _settle_later(self, outcomes: list[DeliveryOutcome], error: BaseException) -> None:
        log_event(
            logging.ERROR,
            "outcomes_not_recorded",
            queue=self.queue.name,
            messages=len(outcomes),
            error=reason_of(error),
            effect="they are tried again with the next commit",
        )
        for delivery, outcome in outcomes:
            self.executions.hand_in(delivery, outcome)

    def claims_nothing(self) -> None:
        """The claims did not begin, and will not."""
        self._claims = None

    def end_claims(self) -> None:
        """End the claims soon. One that is under way may still bring messages, which are released."""
        self._claims_must_end = True  # also those that have yet to begin
        if self._claims:
            self._claims.end()

    def claims_ended(self, timeout: float = 0) -> bool:
        """Wait up to `timeout` seconds until no claim is under way; whether none is."""
        return self._claims is None or self._claims.finished(timeout)

    @property
    def claims_are_ending(self) -> bool:
        """Whether its claims are to end, and one is still under way."""
        return self._claims is not None and self._claims.ending

    @property
    def concludes(self) -> bool:
        """Whether a thread is about to hand in an outcome, or to begin a batch or give it back."""
        return self.executions.under_way.concluding or self.waiting.gathers

    def leave(self) -> None:
        """Record the last outcomes; a slot whose handler still runs ends after it."""
        self.waiting.forget()
        flush(self.queue, self._claimer)
        with contextlib.suppress(AstyqueueError):  # the permit runs out
            self.queue.run(self._claimer.leave())
        self._log_lost()


def tasks_of(executions: Iterable[Execution]) -> list[str]:
    """The names of their handlers, sorted, without duplicates."""
    return sorted({short(execution.handler.name) or "" for execution in executions if execution.handler})
