"""Notices that a worker has stalled: work is due, and for a long time no handler of it began or ended.

Such a process answers every question whether it lives. What it does not do is its work: a thread waits for a lock that
no thread gives back, a handler never returns, a store answers no more to one connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from astyqueue.clock import Clock, microseconds
from astyqueue.dispatch.handlers.handler import TASK
from astyqueue.dispatch.worker_log import HeldThreads
from astyqueue.dispatch.workload import DispatcherWorkload
from astyqueue.model.presence import RunningTask
from astyqueue.model.views import Include
from astyqueue.queue.queue import MessageQueue
from astyqueue.units import SECOND

#: The time in which no handler begins or ends after which work that is due means a stall, unless it is set.
STALL_AFTER: Final = 300 * SECOND
#: Looks within that time.
_LOOKS: Final = 4
#: Messages that are read of a queue: the first by priority may be younger than those behind it.
_READ: Final = 10


class Stall(NamedTuple):
    """Why a worker counts as stalled: since when nothing was consumed, and the work that waits or the slots held.

    `idle` is a duration, `waiting_since` a moment (microseconds), None if every one of the `threads` is held by a
    handler past its timeout.
    """

    idle: int
    queue: str
    waiting_since: int | None
    threads: HeldThreads
    running: Sequence[RunningTask]


class StallWatch:
    """Looks whether the queues of a dispatcher make progress; one thread calls `look`, each time after `every`.

    A look at a worker that consumes costs no request. For an idle worker each look reads the first due messages of two
    queues: the last active one and one other, round-robin. Messages that wait only for handlers within their timeout,
    in places or under a quota which those fill, are not counted. Two looks must find the same, because a message that
    becomes due again after a pause waits for a moment too.
    """

    def __init__(self, clock: Clock, workload: DispatcherWorkload) -> None:
        """The watch begins now."""
        self.after = STALL_AFTER
        self._clock = clock
        self._workload = workload
        self._consumed: dict[MessageQueue, int] = {}
        self._ran: Sequence[RunningTask] = ()
        self._last: MessageQueue | None = None
        self._turn = 0
        self._suspected = False
        self._since = clock.monotonic()

    @property
    def every(self) -> int:
        """The pause between two looks, in microseconds."""
        return max(1, self.after // _LOOKS)

    def begin(self) -> None:
        """Count from now on: the worker has just started, or is to claim again."""
        self._since = self._clock.monotonic()

    def look(self) -> Stall | None:
        """The stall, if this look and the one before found one. Raises the errors of the store."""
        before, self._suspected = self._suspected, False
        found = self._find()
        self._suspected = found is not None
        return found if before else None

    def _find(self) -> Stall | None:
        now, threads, running = self._clock.monotonic(), self._workload.held_threads(), self._workload.running()
        if self._progressed(running):
            self._since = now
        idle = now - self._since
        if idle < self.after:
            return None
        if threads.held >= threads.slots:
            return Stall(idle=idle, queue="", waiting_since=None, threads=threads, running=running)
        for queue in self._searched():
            if (waiting := self._waiting_since(queue)) is not None:
                return Stall(idle=idle, queue=queue.name, waiting_since=waiting, threads=threads, running=running)
        return None

    def _progressed(self, running: Sequence[RunningTask]) -> bool:
        """Whether a handler began or ended since the last look.

        A claim does not count: the process gives back messages that no slot is free for, and claims them again. While
        each kind of slot has a free one, a redelivery does, because it comes from a handler that failed.
        """
        before, self._consumed = self._consumed, {}
        progressed = running != self._ran
        self._ran = running
        has_room = all(load.busy < load.slots for load in self._workload.loads().values())
        for queue in self._workload.queues():
            stats = queue.stats
            again = stats.redelivered if has_room else 0
            count = stats.acked + stats.rejected + stats.lost + again
            self._consumed[queue] = count
            if count != before.get(queue, 0):
                progressed, self._last = True, queue
        return progressed

    def _searched(self) -> list[MessageQueue]:
        """The queues to search for due work in this look: not those that are paused, or left to other processes."""
        queues = list(self._workload.queues())
        self._turn += 1
        others = queues[self._turn % len(queues) :][:1] if queues else []
        first = [self._last] if self._last is not None and self._last in queues else []
        return [queue for queue in dict.fromkeys([*first, *others]) if not _left_alone(queue)]

    def _waiting_since(self, queue: MessageQueue) -> int | None:
        """The moment since when a message that could begin has been due, if that is longer ago than `after`."""
        full = self._workload.is_full_in_time
        waiting = [
            microseconds(found.due)
            for found in queue.peek(_READ, include=Include.DUE)
            if not full(queue, found.headers.get(TASK))
        ]
        due = min(waiting, default=None)
        return due if due is not None and due <= queue.core.process.now() - self.after else None


def _left_alone(queue: MessageQueue) -> bool:
    return queue.settings.behaviour.paused or queue.core.claimer.permit.stands_by
