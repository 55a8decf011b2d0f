"""The schedules of a queue, as people hold them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from astyqueue.model.outgoing import Message
from astyqueue.model.schedules import Misfire, Policies, Schedule
from astyqueue.protocol.steps import Steps
from astyqueue.queue.firing import Lateness
from astyqueue.queue.producer import as_message
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.scheduling import Planned
from astyqueue.schedule.shown import Shown
from astyqueue.schedule.views import Scheduled
from astyqueue.triggers import Trigger

#: Why a schedule is paused unless it is said.
BY_HAND: Final = "by hand"


class Schedules:
    """The schedules of one queue: `Schedules(queue).add("digest", Cron("0 9 * * *"), {"to": "ada@example.org"})`.

    They are data of the queue: whoever takes messages from it fires them, and every process sees the same ones.
    """

    def __init__(self, queue: MessageQueue) -> None:
        """The queue stays whose it is: this opens and closes nothing."""
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

        What becomes of slots that come late, that meet the run before, or that follow a failure is in the guide to
        schedules. Raises ScheduleTaken if there is one of this name, unless it is to be replaced: then it goes on under the
        same name, and with an equal trigger as if nothing had happened.
        """
        planned = Planned(trigger, as_message(body, Message(None)), Policies.read(misfire, overlap, after_failure))
        return self._queue.run(self._shown.add(name, planned, replaces=replace))

    def get(self, name: str) -> Scheduled:
        """A schedule as it is; NotFound if there is none of this name."""
        return self._one(self._shown.steps.show(name))

    def all(self) -> list[Scheduled]:
        """All schedules of the queue, by name."""
        return self._queue.run(self._shown.all())

    def pause(self, name: str, why: str = BY_HAND) -> Scheduled:
        """Fire nothing until it is resumed; slots that come meanwhile are recorded as skipped then."""
        return self._one(self._shown.steps.pause(name, why))

    def resume(self, name: str) -> Scheduled:
        """Go on with the next slot from now on."""
        return self._one(self._shown.steps.resume(name))

    def run(self, name: str) -> Scheduled:
        """Send a message of it now, beside its slots, whatever its policies say; its `message` is that one."""
        return self._one(self._shown.steps.run_now(name))

    def delete(self, name: str) -> bool:
        """Remove it; whether it was there. Messages that it has sent stay."""
        return self._queue.run(self._shown.delete(name))

    def next(self, name: str, count: int = 10) -> list[datetime]:
        """Its next slots, whether or not it is paused; raises UnknownTrigger for a trigger that is not registered here."""
        return self._queue.run(self._shown.next(name, count))

    def backfill(self, name: str, since: datetime, until: datetime) -> int:
        """Send a message for each slot of a range, both ends included, whether or not it was fired; how many."""
        return self._queue.run(self._shown.steps.backfill(name, since, until))

    def lateness(self) -> dict[str, Lateness]:
        """How late slots were fired, and their messages handed out, by this process, by schedule."""
        return self._shown.lateness()

    def _one(self, steps: Steps[Schedule]) -> Scheduled:
        return self._queue.run(self._shown.one(steps))
