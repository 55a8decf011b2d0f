# Written by `make aio` from astyqueue/schedules/schedules.py: change that, or tools/async_classes/twins.py.
"""Lists, makes, changes and removes the schedules of a queue, for tasks of an event loop."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from astyqueue.aio.queue import MessageQueue
from astyqueue.model.message import Message, as_message
from astyqueue.model.schedule import Misfire, Policies, Schedule
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin import schedules
from astyqueue.queue.admin.schedules import ScheduleRequest
from astyqueue.queue.consuming.firing import Lateness
from astyqueue.schedules.views import Scheduled
from astyqueue.triggers import Trigger

#: The default reason of a pause.
BY_HAND: Final = "by hand"


class Schedules:
    """The schedules of one queue: `await Schedules(queue).add("digest", Cron("0 9 * * *"), {"to": "ada@example.org"})`.

    They are data of the queue: every process sees the same ones, and the processes that receive from the queue fire
    them.
    """

    def __init__(self, queue: MessageQueue) -> None:
        """This neither opens nor closes the queue."""
        self._queue = queue

    async def add(
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
        """Send this body (or a `Message` with options of its own) at each occurrence of the trigger, from now on.

        `misfire`, for occurrences that are late: "once", "latest", "all", "all 50", "skip", "skip 10m" or "within 1h";
        `overlap`, while the message before exists: "allow", "skip", "queue one", "queue all" or "cancel running";
        `after_failure`, once it is a dead letter: "go on" or "pause". docs/how-to/schedules.md explains them.
        ScheduleTaken if there is a schedule of this name, unless `replace` is true: then it is changed, and
        with an equal trigger it goes on where it was.
        """
        planned = ScheduleRequest(
            trigger, as_message(body, Message(None)), Policies.read(misfire, overlap, after_failure)
        )
        return await self._shown(schedules.save(self._queue.core, name, planned, replaces=replace))

    async def get(self, name: str) -> Scheduled:
        """The schedule of this name; NotFound if there is none."""
        return await self._shown(schedules.show(self._queue.core, name))

    async def all(self) -> list[Scheduled]:
        """All schedules of the queue, by name."""
        return [self._view(schedule) for schedule in await self._queue.run(schedules.all_of(self._queue.core))]

    async def pause(self, name: str, why: str = BY_HAND) -> Scheduled:
        """Fire nothing until the schedule is resumed; occurrences that come meanwhile are recorded as skipped then."""
        return await self._shown(schedules.pause(self._queue.core, name, why))

    async def resume(self, name: str) -> Scheduled:
        """Resume a schedule with its next occurrence from now on."""
        return await self._shown(schedules.resume(self._queue.core, name))

    async def run(self, name: str) -> Scheduled:
        """Send a message of a schedule now, whatever its occurrences and policies; the result's `message` is its id."""
        return await self._shown(schedules.run_now(self._queue.core, name))

    async def delete(self, name: str) -> bool:
        """Remove a schedule; True if it existed. Messages that it sent stay."""
        return await self._queue.run(schedules.delete(self._queue.core, name))

    async def next(self, name: str, count: int = 10) -> list[datetime]:
        """The next occurrences of a schedule, paused or not; UnknownTrigger if its trigger is not registered here."""
        return await self._queue.run(schedules.next_occurrences(self._queue.core, name, count))

    async def backfill(self, name: str, since: datetime, until: datetime) -> int:
        """Send a message for each occurrence from `since` to `until` (included), fired or not; returns how many.

        BadInput if an occurrence of the range is still to come by the clock of the store.
        """
        return await self._queue.run(schedules.backfill(self._queue.core, name, since, until))

    def lateness(self) -> dict[str, Lateness]:
        """By schedule, how late this process fired it and delivered its messages; does not read the store."""
        return dict(self._queue.core.claimer.firings.lateness)

    async def _shown(self, steps: Steps[Schedule]) -> Scheduled:
        return self._view(await self._queue.run(steps))

    def _view(self, schedule: Schedule) -> Scheduled:
        return Scheduled(schedule, schedules.handle_of(self._queue.core, schedule.name).row)
