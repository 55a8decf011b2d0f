"""Read-only views of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pydantic import JsonValue
from pydantic_core import from_json

from astyqueue.clock import instant
from astyqueue.model.envelope import MessageId
from astyqueue.model.schedule import Firing, Run, Schedule
from astyqueue.model.views import Json
from astyqueue.text import exact


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of `occurrences` from `occurrence` on: the message sent and when, or why none was sent."""

    occurrence: datetime
    occurrences: int
    at: datetime
    message: MessageId | None
    why: str

    def as_json(self) -> Json:
        """The result as JSON, with instants as text."""
        message = None if self.message is None else str(self.message)
        return {
            "occurrence": exact(self.occurrence),
            "occurrences": self.occurrences,
            "at": exact(self.at),
            "message": message,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule as read. `stored` has all its data; the properties have moments as aware datetimes."""

    stored: Schedule
    row: str

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self.stored.name

    @property
    def trigger(self) -> JsonValue:
        """Its trigger as a JSON document, from which `Triggers().read` makes an equal trigger."""
        return self.stored.declared

    @property
    def paused(self) -> str:
        """Why it is paused; empty if it is not paused."""
        return self.stored.paused

    @property
    def next(self) -> datetime | None:
        """The next occurrence; None while it is paused, and once it has ended."""
        occurrence = None if self.stored.paused else self.stored.next
        return None if occurrence is None else instant(occurrence)

    @property
    def history(self) -> list[Fired]:
        """The last firings, the latest last."""
        return [self._fired(firing) for firing in self.stored.history]

    @property
    def last(self) -> Fired | None:
        """The latest firing."""
        return self._fired(self.stored.history[-1]) if self.stored.history else None

    @property
    def message(self) -> MessageId | None:
        """The last message that it sent."""
        return self._id(self.stored.run)

    def as_json(self) -> Json:
        """The schedule as JSON, with instants as text."""
        stored, template, policies = self.stored, self.stored.template, self.stored.policies
        return {
            "name": stored.name,
            "trigger": stored.declared,
            "origin": str(stored.origin),
            "paused": stored.paused or None,
            "next": None if self.next is None else exact(self.next),
            "misfire": str(policies.misfire),
            "overlap": str(policies.overlap),
            "after_failure": str(policies.after_failure),
            "body": cast("JsonValue", from_json(template.body)),
            "key": template.key,
            "priority": template.priority,
            "headers": dict(template.headers),
            "occurrences": stored.occurrences,
            "fired": stored.fired,
            "skipped": stored.skipped,
            "waiting": [exact(instant(occurrence)) for occurrence in stored.backlog],
            "created": exact(instant(stored.created)),
            "history": [fired.as_json() for fired in self.history],
        }

    def _fired(self, firing: Firing) -> Fired:
        return Fired(
            instant(firing.occurrence), firing.occurrences, instant(firing.at), self._id(firing.run), firing.why
        )

    def _id(self, run: Run | None) -> MessageId | None:
        return None if run is None else MessageId(self.row, run.priority, run.id)
