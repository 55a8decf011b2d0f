"""`worker --burst`: end a worker once its queues are empty."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.dispatch.subscription import QueueIdentity
from astyqueue.dispatch.worker_log import log_unexpected_error
from astyqueue.errors import AstyqueueError, Closed
from astyqueue.journal_errors import JournalError
from astyqueue.log_throttle import RateLimitedLog
from astyqueue.protocol.scheduling.schedule_commit import list_schedules
from astyqueue.queue.queue import MessageQueue
from astyqueue.spool import SpoolStatus
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: The pause after the first look, and between looks whether the worker has begun.
_FIRST_PAUSE: Final = SECOND // 100
#: The longest pause between two looks, also for a worker that stands by in a queue, whose work others do.
_PAUSE: Final = SECOND // 4
_PAUSE_OF_STANDBY: Final = SECOND
#: An occurrence that stays due for longer than this is one that this process cannot fire; it is not waited for.
_PATIENCE: Final = 5 * SECOND
#: A spool that could not be read or forwarded for longer than this, while the store answered, is not waited for. After
#: an outage of the store its process tries again within five seconds.
_FORWARDED_WITHIN: Final = 7 * SECOND


class WhenEmpty:
    """Calls `end` once no message of these queues is due or being worked on, in this process or in others.

    A due occurrence of a schedule counts too, unless this process fires no schedules, and so do messages in a spool
    that is forwarded, or was until a few seconds ago. Delayed messages, those backing off, parked ones, and paused
    queues are not waited for. A process that stands by for a permit waits as well: if the one that has it dies, it
    takes over the work that is left.
    """

    def __init__(
        self,
        queues: Callable[[], Sequence[MessageQueue]],
        end: Callable[[], None],
        *,
        begun: Callable[[], bool] = lambda: True,
    ) -> None:
        """`queues` returns those of the worker now, also those that have joined it; `end` is called once.

        Nothing is looked at before `begun` returns True: a worker that is ended before it has begun logs nothing.
        """
        self._queues = queues
        self._end = end
        self._begun = begun
        self._occurrences: dict[tuple[str, str, int], MonotonicUs] = {}
        #: When a look first found that the spool of a queue cannot be read or forwarded, though the store answered.
        self._failing: dict[QueueIdentity, MonotonicUs] = {}
        self._clock = SystemClock()
        self._failures = RateLimitedLog()

    def watch(self) -> threading.Thread:
        """Start to poll the queues, in a new thread."""
        thread = threading.Thread(target=self._run, name="astyqueue:burst", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self._begun():
            Wakeup(self._clock).wait(self._clock.monotonic() + _FIRST_PAUSE)
        pause = _FIRST_PAUSE
        try:
            while not self._empty(queues := self._queues()):
                clock = queues[0].clock
                Wakeup(clock).wait(clock.monotonic() + pause)
                stands_by = any(queue.core.claimer.permit.stands_by for queue in queues)
                pause = min(2 * pause, _PAUSE_OF_STANDBY if stands_by else _PAUSE)
        except Closed:  # the worker ended first
            return
        self._end()

    def _empty(self, queues: Sequence[MessageQueue]) -> bool:
        try:
            return all(map(self._is_empty, queues))
        except Closed:
            raise
        except AstyqueueError:  # the dispatcher gets the same error, logs it and retries
            self._failing.clear()  # once the store answers again, the spools get their time
            return False
        except Exception as error:  # noqa: BLE001 - without this thread the worker would never end
            self._log(error)
            return False

    def _log(self, error: Exception) -> None:
        if self._failures.may_say(type(error).__name__, self._clock.monotonic()):
            log_unexpected_error(error)

    def _is_empty(self, queue: MessageQueue) -> bool:
        """Whether no work is left now."""
        if queue.settings.behaviour.paused:
            return True
        if self._has_work(queue):
            return False
        # What a task sent before it ended is in the spool, or was forwarded meanwhile: then the second read finds it.
        return queue.core.spooling is None or not (self._may_forward(queue) or self._has_work(queue))

    def _has_work(self, queue: MessageQueue) -> bool:
        """Whether the store has some. A peek for one message is cheap; they are counted only if it finds none."""
        # Occurrences before messages: an occurrence fired between the two reads is a message by the second.
        if queue.peek(1, include="due") or self._may_fire(queue):
            return True
        counts = queue.counts()
        return bool(counts.waiting or counts.in_flight)

    def _may_fire(self, queue: MessageQueue) -> bool:
        """Whether an occurrence is due that this process may still fire: one seen due for less than `_PATIENCE`."""
        if not queue.core.claimer.firings.on:
            return False
        ring, now, at = queue.core.ring, queue.core.process.now(), queue.clock.monotonic()
        listed = queue.run(list_schedules(ring.homes()))
        waiting = [one for one in listed.schedules if not one.paused and one.next is not None and one.next <= now]
        due = [(queue.name, one.name, one.next or 0) for one in waiting]
        return any(at - self._occurrences.setdefault(occurrence, at) < _PATIENCE for occurrence in due)

    def _may_forward(self, queue: MessageQueue) -> bool:
        """Whether messages wait that this process forwards, or another one: not if neither could for long."""
        identity, at = QueueIdentity.of(queue), queue.clock.monotonic()
        try:
            spool = queue.core.spool.status()
        except (OSError, JournalError) as error:
            self._log(error)
        else:
            waits = any(one.messages for one in spool.journals)
            if not waits or not _fails(spool):
                self._failing.pop(identity, None)
                return waits
        return at - self._failing.setdefault(identity, at) < _FORWARDED_WITHIN


def _fails(spool: SpoolStatus) -> bool:
    """Whether the last try of each process that forwards messages that wait has failed."""
    waiting = [one for one in spool.journals if one.messages]
    return spool.failing_since is not None or all(one.in_use and one.failing_since is not None for one in waiting)
