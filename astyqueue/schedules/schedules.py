"""Lists, makes, changes and removes the schedules of a queue."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Final

from astyqueue.clock import instant
from astyqueue.errors import Undecodable
from astyqueue.model.compose import Message
from astyqueue.model.schedule import Misfire, Policies, Schedule
from astyqueue.model.validation import check_count
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin.schedules import ScheduleAdmin, ScheduleRequest
from astyqueue.queue.consuming.firing import Lateness
from astyqueue.queue.producing.producer import as_message
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.schedules.views import Scheduled
from astyqueue.triggers import Trigger

#: The default reason of a pause.
BY_HAND: Final = "by hand"


class Schedules:
    """The schedules of one queue: `Schedules(queue).add("digest", Cron("0 9 * * *"), {"to": "ada@example.org"})`.

    They are data of the queue: every process sees the same ones, and the processes that receive from the queue fire
    them.
    """

    def __init__(self, queue: MessageQueue) -> None:
        """This neither opens nor closes the queue."""
        self._queue = queue

    @property
    def _shown(self) -> Shown:
        return Shown(self._queue.core)

    def add(
        self,
        name: str,
        trigger: Trigger,
        body: object = None,
        *,
        misfire: str | Misfire = "once",
        overlap: str = "allow",
        after_failure: str = "go on",
        replace: bool = False,
    ) -> Scheduled:
        """Send this body (or a `Message` with options of its own) at each slot of the trigger, from now on.

        The guide to schedules explains the policies for slots that are late, overlap the previous run or follow a
        failure. ScheduleTaken if there is a schedule of this name, unless `replace` is true: then it is changed, and
        with an equal trigger it goes on where it was.
        """
        planned = ScheduleRequest(
            trigger, as_message(body, Message(None)), Policies.read(misfire, overlap, after_failure)
        )
        return self._queue.run(self._shown.add(name, planned, replaces=replace))

    def get(self, name: str) -> Scheduled:
        """The schedule of this name; NotFound if it does not exist."""
        return self._one(self._shown.steps.show(name))

    def all(self) -> list[Scheduled]:
        """All schedules of the queue, by name."""
        return self._queue.run(self._shown.all())

    def pause(self, name: str, why: str = BY_HAND) -> Scheduled:
        """Stop firing until it is resumed; the slots until then are recorded as skipped when it is."""
        return self._one(self._shown.steps.pause(name, why))

    def resume(self, name: str) -> Scheduled:
        """Fire again, from the next slot on."""
        return self._one(self._shown.steps.resume(name))

    def run(self, name: str) -> Scheduled:
        """Send a message now, independent of its slots and policies; `message` of the result is its id."""
        return self._one(self._shown.steps.run_now(name))

    def delete(self, name: str) -> bool:
        """Remove the schedule but not the messages it sent; returns False if it did not exist."""
        return self._queue.run(self._shown.delete(name))

    def next(self, name: str, count: int = 10) -> list[datetime]:
        """Its next slots, also while it is paused; UnknownTrigger if its trigger is not registered in this process."""
        return self._queue.run(self._shown.next(name, count))

    def backfill(self, name: str, since: datetime, until: datetime) -> int:
        """Send a message for each slot of a range, both ends included, even if it was fired; returns their number."""
        return self._queue.run(self._shown.steps.backfill(name, since, until))

    def lateness(self) -> dict[str, Lateness]:
        """How late slots were fired, and their messages handed out, by this process, by schedule."""
        return self._shown.lateness()

    def _one(self, steps: Steps[Schedule]) -> Scheduled:
        return self._queue.run(self._shown.one(steps))


class Shown:
    """The schedules of one queue as steps, which a thread or a task of an event loop carries out."""

    def __init__(self, core: QueueRuntime) -> None:
        """`core` is the runtime of an open queue."""
        self._core = core
        self.steps = ScheduleAdmin(core)

    def one(self, steps: Steps[Schedule]) -> Steps[Scheduled]:
        """The schedule after these steps."""
        return self._scheduled((yield from steps))

    def add(self, name: str, planned: ScheduleRequest, *, replaces: bool) -> Steps[Scheduled]:
        """Make a schedule, or replace the one of this name."""
        return self.one(self.steps.save(name, planned, replaces=replaces))

    def all(self) -> Steps[list[Scheduled]]:
        """All schedules of the queue, by name."""
        return [self._scheduled(schedule) for schedule in (yield from self.steps.all())]

    def delete(self, name: str) -> Steps[bool]:
        """Remove a schedule, also one that cannot be read; returns False if it did not exist."""
        try:
            return (yield from self.steps.remove(name)) is not None
        except Undecodable:
            return (yield from self.steps.discard(name))

    def next(self, name: str, count: int) -> Steps[list[datetime]]:
        """The next slots of a schedule, also while it is paused."""
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
