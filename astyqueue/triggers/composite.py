"""Triggers made of triggers: the union of several, and one with times excluded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from astyqueue.durations import LONGEST
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger
from astyqueue.triggers.calendars import Calendar

#: The most excluded occurrences in a row: more than a year of hours. Searching them takes a third of a second.
MOST_DROPPED: Final = 10_000


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(Trigger):
    """The occurrences of several triggers together; a moment that several of them have is one occurrence."""

    kind: ClassVar[str] = "any of"

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        """BadInput without triggers."""
        self._fill(triggers=triggers)
        if not triggers or not all(isinstance(trigger, Trigger) for trigger in triggers):
            problem = 'AnyOf takes one trigger or more: give it some, such as AnyOf(Every("1h"), Cron("0 9 * * *"))'
            raise BadInput(problem)

    def after(self, moment: int) -> int | None:
        """The earliest of the triggers' next occurrences."""
        following = (trigger.after(moment) for trigger in self.triggers)
        return min((occurrence for occurrence in following if occurrence is not None), default=None)

    def anchored(self, moment: int, *, seed: str = "") -> AnyOf:
        """The same with each trigger anchored."""
        return AnyOf(*(trigger.anchored(moment, seed=seed) for trigger in self.triggers))


@dataclass(frozen=True, slots=True, init=False)
class Excluding(Trigger):
    """The occurrences of a trigger that are in none of these calendars; excluded occurrences are dropped, not moved.

    Dropped occurrences use up a trigger's count. There is no further occurrence if none is left within a hundred years,
    or after `MOST_DROPPED` excluded times in a row.
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
        """The first occurrence later than `moment` that is in none of the calendars."""
        occurrence = self.trigger.after(moment)
        for _ in range(MOST_DROPPED):
            if occurrence is None or occurrence > moment + LONGEST:
                break
            free = max(calendar.free(occurrence) for calendar in self.calendars)
            if free == occurrence:
                return occurrence
            occurrence = self.trigger.after(free - 1)
        return None

    def anchored(self, moment: int, *, seed: str = "") -> Excluding:
        """The same with the trigger anchored."""
        return Excluding(self.trigger.anchored(moment, seed=seed), *self.calendars)
