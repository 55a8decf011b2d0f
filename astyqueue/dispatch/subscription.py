"""One queue, its handlers, and the threads that bring them together.

A thread leads the queue's claimer; handler threads take from the backlog and hand in outcomes, which join the next
claim's commit. Leases are renewed when two fifths of them are over, as long as their deliveries wait or their handlers
run, up to a handler's timeout.

What is not possible: to renew while no thread of the process can run. Code that holds the interpreter lock without a
break (a C extension that never releases it, a regular expression gone wild) for longer than 60 % of a lease stops the
thread that renews as well, and so does a process that is suspended or starved; the message is then handed out a second
time, and the late outcome changes nothing. Choose leases more than twice as long as such stretches, or run that code in a
process of its own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, cast

from astyqueue.clock import SECOND
from astyqueue.dispatch.backlog import Backlog
from astyqueue.dispatch.execution import Execution, Executions, Outcome
from astyqueue.dispatch.handlers import Roster
from astyqueue.dispatch.pace import Pace, Quota
from astyqueue.dispatch.serving import Serving, flush
from astyqueue.dispatch.telling import short, tell, tell_trace
from astyqueue.errors import AlreadySettled, AstyqueueError, ThreadsDied
from astyqueue.protocol.workers import Stuck, report
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.holding import Handed, Seat
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.terms import reason_of

#: More handler threads than this that die within this long are no accident: the process had better be started anew.
_DEATHS: Final = 10
_WITHIN: Final = 60 * SECOND
_LOST: Final = "others have these messages by now, or they were deleted: what was logged of their attempts here came to nothing"
#: As many handlers that are stuck are named, a line each.
_NAMED: Final = 10


class Subscription:
    """A queue and who handles its messages, from start to the last flush."""

    def __init__(
        self, queue: MessageQueue, roster: Roster, *, threads: int, backlog: int | None = None, quota: Quota | None = None
    ) -> None:
        """Nothing runs yet. A `quota` is shared by all queues of a dispatcher."""
        self._quota = quota or Quota(None)
        self.queue = queue
        self.threads: list[threading.Thread] = []
        self.slots = threads
        self.tasks = roster.names
        pace = Pace(threads, queue.settings.behaviour.lease_us, backlog)
        self.executions = Executions(queue, roster, pace, self._quota)
        self._claimer = queue.core.claimer
        self._backlog = Backlog(pace, self._claimer.wake)
        self._quota.counts(self._backlog)
        self._lost = queue.stats.lost
        self._serving: Serving | None = None
        self._on_end: Callable[[Exception | None], None] = _nobody
        self._on_death: Callable[[], None] = _nobody
        self._died: deque[BaseException] = deque()
        self._deaths: deque[int] = deque(maxlen=_DEATHS)

    def start(self, on_end: Callable[[Exception | None], None]) -> None:
        """Begin to claim and to handle. The threads are daemons: what ends them in time is `drain`, or the interpreter's exit."""
        seat = Seat(self._credit, self._accept, kind=self.queue.delivery, renew=True)
        self._serving = Serving(self.queue, seat, on_end)
        self._on_end = on_end
        self.executions.verdicts.listen()
        self._thread("claim", self._serving.run)
        for number in range(1, self.slots + 1):
            self._thread(f"handle:{number}", self._handle)
        for thread in tuple(self.threads):
            thread.start()

    def _thread(self, part: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"astyqueue:{self.queue.name}:{part}", daemon=True)
        self.threads.append(thread)
        return thread

    def _handle(self) -> None:
        take, carry_out = self._backlog.take, self.executions.carry_out
        try:
            while (delivery := take()) is not None:
                carry_out(delivery)
        except BaseException as error:  # noqa: BLE001 - as when memory runs out; another thread takes this one's place
            self._died.append(error)
            self._on_death()

    def replace_dead(self) -> None:
        """Start a handler thread for each that died; when that goes on and on, end the dispatcher."""
        while self._died:
            error = self._died.popleft()
            now = self.queue.clock.monotonic()
            again = len(self._deaths) == _DEATHS and now - self._deaths[0] < _WITHIN
            self._deaths.append(now)
            tell(logging.CRITICAL, "thread died", queue=self.queue.name, error=reason_of(error), replaced=not again)
            tell_trace(error, queue=self.queue.name)
            if again:
                self._on_end(ThreadsDied(self.queue.name, _DEATHS + 1, reason_of(error)))
                return
            self._thread("handle:again", self._handle).start()

    def _credit(self) -> int:
        """Asked by whoever leads, at least once a second: also the moment to look after what waits too long, and what was lost."""
        for delivery in self._backlog.hoarded(self.queue.clock.now()):
            self._claimer.give_back(delivery)
        self._tell_lost()
        return self._quota.room(self._backlog.credit())

    def _tell_lost(self) -> None:
        if (lost := self.queue.stats.lost) != self._lost:
            ids = ",".join(map(str, self.queue.stats.latest_lost(lost - self._lost)))
            tell(logging.WARNING, "lost", queue=self.queue.name, leases=lost - self._lost, ids=ids, hint=_LOST)
            self._lost = lost

    def _accept(self, deliveries: list[Handed]) -> None:
        self.executions.verdicts.listen()
        for delivery in self._backlog.accept(cast("list[Delivery]", deliveries)):
            self._claimer.give_back(delivery)

    @property
    def quiet(self) -> bool:
        """Whether nothing waits for a handler and none runs, but those that were given up."""
        return self._backlog.idle(self.slots - self.executions.given_up)

    def watch(self, on_deadline: Callable[[int], None], on_change: Callable[[], None]) -> None:
        """Report each execution that has a deadline, each handler thread that died and, once shut, each that has nothing to do any more."""
        self.executions.on_deadline = on_deadline
        self._backlog.on_idle = on_change
        self._on_death = on_change

    def shut(self) -> None:
        """Claim nothing more, and give back at once what waits."""
        self._settle([(delivery, self.queue.terms.release(delivery, None)) for delivery in self._backlog.shut()])

    def give_up(self) -> None:
        """Settle what has had its time as failed attempts."""
        self._settle(self.executions.overdue())

    def tell_stuck(self) -> None:
        """Log which handlers keep their threads although their time is over, and leave word of it for `doctor`."""
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
        with contextlib.suppress(AstyqueueError):  # `doctor` hears of it a minute later, if the store answers then
            self.queue.run(report(self.queue.name, Stuck(name, len(stuck), self.slots, stuck[0].began, tasks_of(stuck))))

    def abandon(self) -> None:
        """Give back what still runs."""
        for delivery in self._backlog.abandon():
            self.executions.verdicts.dropped(delivery)
        self._settle(self.executions.abandon())

    def _settle(self, outcomes: list[Outcome]) -> None:
        """Settle at once. Handlers that run on might settle them at this very moment: the first of the two stands."""
        while left := [(delivery, outcome) for delivery, outcome in outcomes if not delivery.decided]:
            try:
                self.queue.run(self._claimer.settle([*left]))
            except BaseException as error:  # noqa: BLE001 - a hook may raise anything, and whoever drains must go on
                if isinstance(error, AlreadySettled) and any(delivery.decided for delivery, _ in left):
                    continue
                self._settle_later(left, error)
            return

    def _settle_later(self, outcomes: list[Outcome], error: BaseException) -> None:
        tell(logging.ERROR, "unrecorded", queue=self.queue.name, messages=len(outcomes), error=reason_of(error), hint="tried again")
        for delivery, outcome in outcomes:
            self.executions.hand_in(delivery, outcome)

    def leave(self) -> None:
        """Record the last outcomes and let the threads go; those whose handlers still run end with them."""
        flush(self.queue, self._claimer)
        self._tell_lost()
        if self._serving:
            self._serving.end()


def tasks_of(executions: Iterable[Execution]) -> list[str]:
    """What their handlers are for."""
    return sorted({short(execution.handler.name) or "" for execution in executions if execution.handler})


def _nobody(*_: object) -> None:
    """The dispatcher has not started."""
