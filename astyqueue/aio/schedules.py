"""The schedules of a queue, for tasks of an event loop."""

from __future__ import annotations

from datetime import datetime

from astyqueue.aio.queue import MessageQueue
from astyqueue.model.outgoing import Message
from astyqueue.model.schedules import Misfire, Policies, Schedule
from astyqueue.protocol.steps import Steps
from astyqueue.queue.firing import Lateness
from astyqueue.queue.producer import as_message
from astyqueue.queue.scheduling import Planned
from astyqueue.schedule.schedules import BY_HAND
from astyqueue.schedule.shown import Shown
from astyqueue.schedule.views import Scheduled
from astyqueue.triggers import Trigger


class Schedules:
    """The schedules of one queue: `await Schedules(queue).add("digest", Cron("0 9 * * *"), {"to": "ada@example.org"})`.

    See `astyqueue.schedule.Schedules` for what each promises.
    """

    def __init__(self, queue: MessageQueue) -> None:
        """The queue stays whose it is: this opens and closes nothing."""
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
        planned = Planned(trigger, as_message(body, Message(None)), Policies.read(misfire, overlap, after_failure))
        return await self._queue.run(self._shown.add(name, planned, replaces=replace))

    async def get(self, name: str) -> Scheduled:
        """A schedule as it is; NotFound if there is none of this name."""
        return await self._one(self._shown.steps.show(name))

    async def all(self) -> list[Scheduled]:
        """All schedules of the queue, by name."""
        return await self._queue.run(self._shown.all())

    async def pause(self, name: str, why: str = BY_HAND) -> Scheduled:
        """Fire nothing until it is resumed; slots that come meanwhile are recorded as skipped then."""
        return await self._one(self._shown.steps.pause(name, why))

    async def resume(self, name: str) -> Scheduled:
        """Go on with the next slot from now on."""
        return await self._one(self._shown.steps.resume(name))

    async def run(self, name: str) -> Scheduled:
        """Send a message of it now, beside its slots, whatever its policies say; its `message` is that one."""
        return await self._one(self._shown.steps.run_now(name))

    async def delete(self, name: str) -> bool:
        """Remove it; whether it was there. Messages that it has sent stay."""
        return await self._queue.run(self._shown.delete(name))

    async def next(self, name: str, count: int = 10) -> list[datetime]:
        """Its next slots, whether or not it is paused; raises UnknownTrigger for a trigger that is not registered here."""
        return await self._queue.run(self._shown.next(name, count))

    async def backfill(self, name: str, since: datetime, until: datetime) -> int:
        """Send a message for each slot of a range, both ends included, whether or not it was fired; how many."""
        return await self._queue.run(self._shown.steps.backfill(name, since, until))

    def lateness(self) -> dict[str, Lateness]:
        """How late slots were fired, and their messages handed out, by this process, by schedule; asks no store."""
        return self._shown.lateness()

    async def _one(self, steps: Steps[Schedule]) -> Scheduled:
        return await self._queue.run(self._shown.one(steps))
