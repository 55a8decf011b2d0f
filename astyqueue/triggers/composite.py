"""Triggers made of triggers: the union of several, and one with times excluded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from astyqueue.durations import LONGEST
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger
from astyqueue.triggers.calendars import Calendar

#: The most excluded slots in a row: more than a year of hours. Searching them takes a third of a second.
MOST_DROPPED: Final = 10_000


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(Trigger):
    """The slots of several triggers together; a moment that several of them have is one slot."""

    kind: ClassVar[str] = "any of"

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        """BadInput without triggers."""
        self._fill(triggers=triggers)
        if not triggers or not all(isinstance(trigger, Trigger) for trigger in triggers):
            problem = "AnyOf takes one trigger or more"
            raise BadInput(problem)

    def after(self, moment: int) -> int | None:
        """The earliest of the triggers' next slots."""
        following = (trigger.after(moment) for trigger in self.triggers)
        return min((slot for slot in following if slot is not None), default=None)

    def anchored(self, moment: int, *, seed: str = "") -> AnyOf:
        """The same with each trigger anchored."""
        return AnyOf(*(trigger.anchored(moment, seed=seed) for trigger in self.triggers))


@dataclass(frozen=True, slots=True, init=False)
class Excluding(Trigger):
    """The slots of a trigger that are in none of these calendars; excluded slots are dropped, not moved.

    Dropped slots use up a trigger's count. There is no further slot if none is left within a hundred years, or after
    `MOST_DROPPED` excluded times in a row.
    """

    kind: ClassVar[str] = "excluding"

    trigger: Trigger
    calendars: tuple[Calendar, ...]

    def __init__(self, trigger: Trigger, *calendars: Calendar) -> None:
        """BadInput without calendars."""
        self._fill(trigger=trigger, calendars=calendars)
        if (
            not isinstance(trigger, Trigger)
            or not calendars
            or not all(isinstance(calendar, Calendar) for calendar in calendars)
        ):
            problem = "Excluding takes a trigger, and then one calendar or more"
            raise BadInput(problem)

    def after(self, moment: int) -> int | None:
        """The first slot later than `moment` that is in none of the calendars."""
        slot = self.trigger.after(moment)
        for _ in range(MOST_DROPPED):
            if slot is None or slot > moment + LONGEST:
                break
            free = max(calendar.free(slot) for calendar in self.calendars)
            if free == slot:
                return slot
            slot = self.trigger.after(free - 1)
        return None

    def anchored(self, moment: int, *, seed: str = "") -> Excluding:
        """The same with the trigger anchored."""
        return Excluding(self.trigger.anchored(moment, seed=seed), *self.calendars)
