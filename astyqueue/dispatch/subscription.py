"""One queue, its handlers, and the threads that run them.

A claim thread leads the claimers of several queues; handler threads take deliveries from the backlog of their queue and
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
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, cast

from astyqueue.dispatch.backlog import Backlog
from astyqueue.dispatch.backlog_size import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.claim_loop import ClaimLoop, flush
from astyqueue.dispatch.execution import DeliveryOutcome, Execution, HandlerExecutions
from astyqueue.dispatch.handlers import HandlerRegistry
from astyqueue.dispatch.step_loop import StepTask
from astyqueue.dispatch.worker_log import log_event, log_traceback, short
from astyqueue.errors import AlreadySettled, AstyqueueError, ThreadsDied
from astyqueue.model.health import StuckReport
from astyqueue.protocol.admin.health import report_stuck
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import reason_of
from astyqueue.units import SECOND, MonotonicUs

#: If more handler threads than this die within this time, the dispatcher stops: the process must be restarted.
_DEATHS: Final = 10
_WITHIN: Final = 60 * SECOND
_LOST: Final = "other consumers claimed these messages, or they were deleted: their outcomes logged here had no effect"
#: The most stuck handlers that are logged, a line each.
_NAMED: Final = 10


class Subscription:
    """A queue and its handlers, from start to the last flush."""

    def __init__(
        self,
        queue: MessageQueue,
        roster: HandlerRegistry,
        *,
        threads: int,
        backlog: int | None = None,
        quota: MessageQuota | None = None,
    ) -> None:
        """Nothing runs yet. All queues of a dispatcher share one `quota`."""
        self._quota = quota or MessageQuota(None)
        self.queue = queue
        self.threads: list[threading.Thread] = []
        self.slots = threads
        self.tasks = roster.names
        pace = AdaptivePrefetch(threads, queue.settings.behaviour.lease_us, backlog)
        self.executions = HandlerExecutions(queue, roster, pace, self._quota)
        self._claimer = queue.core.claimer
        self._backlog = Backlog(pace, self._claimer.wake)
        self._quota.counts(self._backlog)
        self._lost = queue.stats.lost
        self._claims: ClaimLoop | None = None
        self._on_end: Callable[[Exception | None], None] = _ignore
        self._on_death: Callable[[], None] = _ignore
        self._died: deque[BaseException] = deque()
        self._deaths: deque[MonotonicUs] = deque(maxlen=_DEATHS)

    def start(self, on_end: Callable[[Exception | None], None]) -> StepTask:
        """Start the handler threads; returns the steps that claim, for a claim thread.

        The threads are daemons: `drain` ends them, or the interpreter's exit.
        """
        waiter = Waiter(self._credit, self._accept, delivery_factory=self.queue.delivery, renew=True)
        self._claims = ClaimLoop(self.queue, waiter, on_end)
        self._on_end = on_end
        self.executions.verdicts.listen()
        for number in range(1, self.slots + 1):
            self._start_handler(f"{number}")
        return StepTask(self._claims.steps(), self.queue.store, self.queue.core.observers)

    def _start_handler(self, name: str) -> None:
        named = f"astyqueue:{self.queue.name}:handle:{name}"
        thread = threading.Thread(target=self._handle, name=named, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _handle(self) -> None:
        take, carry_out = self._backlog.take, self.executions.carry_out
        try:
            while (delivery := take()) is not None:
                carry_out(delivery)
        except BaseException as error:  # noqa: BLE001 - as when memory runs out; another thread takes this one's place
            self._died.append(error)
            self._on_death()

    def replace_dead(self) -> None:
        """Start a handler thread for each that died; the eleventh death within a minute ends the dispatcher."""
        while self._died:
            error = self._died.popleft()
            now = self.queue.clock.monotonic()
            again = len(self._deaths) == _DEATHS and now - self._deaths[0] < _WITHIN
            self._deaths.append(now)
            log_event(
                logging.CRITICAL, "thread died", queue=self.queue.name, error=reason_of(error), replaced=not again
            )
            log_traceback(error, queue=self.queue.name)
            if again:
                self._on_end(ThreadsDied(self.queue.name, _DEATHS + 1, reason_of(error)))
                return
            self._start_handler("again")

    def _credit(self) -> int:
        """The credit. The leader calls this at least once a second; it also releases hoarded deliveries."""
        for delivery in self._backlog.hoarded(self.queue.clock.now()):
            self._claimer.give_back(delivery)
        self._log_lost()
        return self._quota.room(self._backlog.credit())

    def _log_lost(self) -> None:
        if (lost := self.queue.stats.lost) != self._lost:
            ids = ",".join(map(str, self.queue.stats.latest_lost(lost - self._lost)))
            log_event(logging.WARNING, "lost", queue=self.queue.name, leases=lost - self._lost, ids=ids, hint=_LOST)
            self._lost = lost

    def _accept(self, deliveries: list[BaseDelivery]) -> None:
        self.executions.verdicts.listen()
        for delivery in self._backlog.accept(cast("list[Delivery]", deliveries)):
            self._claimer.give_back(delivery)

    @property
    def quiet(self) -> bool:
        """Whether no delivery waits and no handler runs, except those given up."""
        return self._backlog.idle(self.slots - self.executions.given_up)

    def watch(self, on_deadline: Callable[[MonotonicUs], None], on_change: Callable[[], None]) -> None:
        """Call `on_deadline` with each new deadline, `on_change` when a handler thread dies or, once shut, is idle."""
        self.executions.on_deadline = on_deadline
        self.executions.on_concluded = on_change
        self._backlog.on_idle = on_change
        self._on_death = on_change

    def shut(self) -> None:
        """Stop claiming, and release the waiting deliveries."""
        self._settle([(delivery, self.queue.terms.release(delivery, None)) for delivery in self._backlog.shut()])

    def give_up(self) -> None:
        """Settle executions past their deadline as failed attempts."""
        self._settle(self.executions.overdue())

    def tell_stuck(self) -> None:
        """Log the handlers that run on past their timeout, and store a report for `doctor`."""
        stuck = self.executions.stuck
        if not stuck:
            return
        now, threads = self.queue.clock.now(), f"{len(stuck)} of {self.slots}"
        for execution in stuck[:_NAMED]:
            lasts = now - execution.began
            self.executions.verdicts.stuck(
                execution.delivery, execution.handler, lasts=lasts, threads=threads, last=len(stuck) >= self.slots
            )
        name = self.queue.core.process.name
        with contextlib.suppress(AstyqueueError):  # the next report is a minute later
            self.queue.run(
                report_stuck(
                    self.queue.name, StuckReport(name, len(stuck), self.slots, stuck[0].began, tasks_of(stuck))
                )
            )

    def abandon(self) -> None:
        """Release the messages whose handlers still run."""
        for delivery in self._backlog.abandon():
            self.executions.verdicts.dropped(delivery)
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
            "unrecorded",
            queue=self.queue.name,
            messages=len(outcomes),
            error=reason_of(error),
            hint="tried again",
        )
        for delivery, outcome in outcomes:
            self.executions.hand_in(delivery, outcome)

    def leave(self) -> None:
        """Record the last outcomes and end the claims; a thread whose handler still runs ends after it."""
        flush(self.queue, self._claimer)
        self._log_lost()
        if self._claims:
            self._claims.end()


def tasks_of(executions: Iterable[Execution]) -> list[str]:
    """The names of their handlers, sorted, without duplicates."""
    return sorted({short(execution.handler.name) or "" for execution in executions if execution.handler})


def _ignore(*_: object) -> None:
    """The default of callbacks, before the dispatcher has started."""
