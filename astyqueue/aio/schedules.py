"""The schedules of a queue, for tasks of an event loop."""

from __future__ import annotations

from datetime import datetime

from astyqueue.aio.queue import MessageQueue
from astyqueue.model.compose import Message
from astyqueue.model.schedule import Misfire, Policies, Schedule
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin.schedules import ScheduleRequest
from astyqueue.queue.consuming.firing import Lateness
from astyqueue.queue.producing.producer import as_message
from astyqueue.schedules.schedules import BY_HAND, Shown
from astyqueue.schedules.views import Scheduled
from astyqueue.triggers import Trigger


class Schedules:
    """The schedules of one queue: `await Schedules(queue).add("digest", Cron("0 9 * * *"), {"to": "ada@example.org"})`.

    See `astyqueue.schedules.Schedules` for the promises of each method.
    """

    def __init__(self, queue: MessageQueue) -> None:
        """The caller opens and closes the queue."""
        self._queue = queue

    @property
    def _shown(self) -> Shown:
        return Shown(self._queue.core)

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
        """Send this body (or a `Message` with options of its own) at each slot of the trigger, from now on."""
        planned = ScheduleRequest(
            trigger, as_message(body, Message(None)), Policies.read(misfire, overlap, after_failure)
        )
        return await self._queue.run(self._shown.add(name, planned, replaces=replace))

    async def get(self, name: str) -> Scheduled:
        """The schedule of this name; NotFound if there is none."""
        return await self._one(self._shown.steps.show(name))

    async def all(self) -> list[Scheduled]:
        """All schedules of the queue, by name."""
        return await self._queue.run(self._shown.all())

    async def pause(self, name: str, why: str = BY_HAND) -> Scheduled:
        """Fire nothing until the schedule is resumed; slots that come meanwhile are recorded as skipped then."""
        return await self._one(self._shown.steps.pause(name, why))

    async def resume(self, name: str) -> Scheduled:
        """Resume a schedule with its next slot from now on."""
        return await self._one(self._shown.steps.resume(name))

    async def run(self, name: str) -> Scheduled:
        """Send a message of a schedule now, regardless of its slots and policies; the result's `message` is its id."""
        return await self._one(self._shown.steps.run_now(name))

    async def delete(self, name: str) -> bool:
        """Remove a schedule; True if it existed. Messages that it sent stay."""
        return await self._queue.run(self._shown.delete(name))

    async def next(self, name: str, count: int = 10) -> list[datetime]:
        """The next slots of a schedule, paused or not; UnknownTrigger for a trigger that is not registered here."""
        return await self._queue.run(self._shown.next(name, count))

    async def backfill(self, name: str, since: datetime, until: datetime) -> int:
        """Send a message for each slot from `since` to `until` (included), fired before or not; returns how many."""
        return await self._queue.run(self._shown.steps.backfill(name, since, until))

    def lateness(self) -> dict[str, Lateness]:
        """By schedule, how late this process fired slots and delivered their messages; does not read the store."""
        return self._shown.lateness()

    async def _one(self, steps: Steps[Schedule]) -> Scheduled:
        return await self._queue.run(self._shown.one(steps))
