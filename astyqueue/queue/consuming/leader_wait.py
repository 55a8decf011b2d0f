"""How long the leader of a queue rests when nothing is urgent: until its next work, or long if the queue is idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from astyqueue.clock import Clock
from astyqueue.protocol.steps import Steps
from astyqueue.queue.consuming.row_worker import RowWorker
from astyqueue.units import NEVER, SECOND, MonotonicUs
from astyqueue.waiting import Rest, Wakeup

#: The longest rest in an idle queue.
_LONGEST: Final = 3_600 * SECOND


@dataclass(frozen=True, slots=True)
class LeaderWait:
    """The rests of the leader of one queue in one process, between its visits of rows (`work`)."""

    clock: Clock
    work: RowWorker

    def rest(self, me: Wakeup, until: MonotonicUs | None, now: int, *, wanting: bool) -> Steps[None]:
        """Rest until there is work, until `me` is set, or until `until`; `wanting`: consumers have credit.

        In an idle queue this may read the activity log for all idle queues of the connection.
        """
        activity = self.work.scheduler.activity
        if activity.idle and activity.in_use:
            return  # the doorbell has just rung; the next round polls all rows, as that may have hidden earlier rings
        until = self.work.permit.before_next(until)
        if self._idle(now):
            yield from activity.rest(me, self._within(self._idle_event(now, wanting=wanting), until))
        else:
            event = self.work.scheduler.next_event(now) if wanting else now + SECOND
            yield Rest(me, self._within(min(self.work.outcomes.next_event(), event), until))

    def _idle(self, now: int) -> bool:
        """Whether the leader has no work before the next moment it knows of, unless a notice or a turn wakes it."""
        if self.work.leases.leased_count or self.work.recorder.history.has_noted or not self.work.outcomes.settled():
            return False
        return self.work.scheduler.activity.idle if self._paused else self.work.scheduler.at_rest(now)

    def _idle_event(self, now: int, *, wanting: bool) -> int:
        """The moment of the next work in an idle queue that this process knows of."""
        event = NEVER if self._paused else self.work.scheduler.next_event(now)
        # Without credit, what is due already waits for it.
        return min(event if wanting else max(event, now + SECOND), now + _LONGEST)

    @property
    def _paused(self) -> bool:
        return self.work.settings_sync.behaviour.paused

    def _within(self, moment: int, until: MonotonicUs | None) -> MonotonicUs:
        """The monotonic moment of this one, or `until` if that comes first."""
        rest = self.clock.monotonic() + max(0, moment - self.clock.now())
        return rest if until is None else min(rest, until)
