"""What is done to the schedules of a queue, as steps that end in what people are shown."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from astyqueue.clock import instant
from astyqueue.errors import Undecodable
from astyqueue.model.checks import check_count
from astyqueue.model.schedules import Schedule
from astyqueue.protocol.steps import Steps
from astyqueue.queue.core import Core
from astyqueue.queue.firing import Lateness
from astyqueue.queue.scheduling import Planned, Scheduling
from astyqueue.schedule.views import Scheduled


class Shown:
    """The schedules of one queue, for whoever carries out steps: a thread, or a task of an event loop."""

    def __init__(self, core: Core) -> None:
        """Work with the parts of an open queue."""
        self._core = core
        self.steps = Scheduling(core)

    def one(self, steps: Steps[Schedule]) -> Steps[Scheduled]:
        """A schedule, as it is after these steps."""
        return self._scheduled((yield from steps))

    def add(self, name: str, planned: Planned, *, replaces: bool) -> Steps[Scheduled]:
        """Make a schedule, or replace the one of this name."""
        return self.one(self.steps.save(name, planned, replaces=replaces))

    def all(self) -> Steps[list[Scheduled]]:
        """All schedules of the queue, by name."""
        return [self._scheduled(schedule) for schedule in (yield from self.steps.all())]

    def delete(self, name: str) -> Steps[bool]:
        """Remove a schedule, also one that cannot be read; whether it was there."""
        try:
            return (yield from self.steps.remove(name)) is not None
        except Undecodable:
            return (yield from self.steps.discard(name))

    def next(self, name: str, count: int) -> Steps[list[datetime]]:
        """The next slots of a schedule, whether or not it is paused."""
        check_count(count, "slots cannot be listed")
        stored = yield from self.steps.show(name)
        if stored.next is None:
            return []
        since = stored.last if not stored.paused else max(stored.last, self._core.process.now())
        return list(islice(self.steps.trigger(stored).upcoming(instant(since)), count))

    def lateness(self) -> dict[str, Lateness]:
        """How late slots were fired, and their messages handed out, by this process, by schedule."""
        return dict(self._core.claimer.firings.lateness)

    def _scheduled(self, schedule: Schedule) -> Scheduled:
        return Scheduled(schedule, self.steps.kept(schedule.name).row)
