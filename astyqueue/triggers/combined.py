"""Triggers made of triggers: any of several, and one without some times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from astyqueue.durations import LONGEST
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger
from astyqueue.triggers.calendars import Calendar

#: So many excluded times in a row are more than a year of hours; to look through them takes a third of a second.
MOST_DROPPED: Final = 10_000


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(Trigger):
    """The slots of several triggers together; a moment that several of them have is one slot."""

    kind: ClassVar[str] = "any of"

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        """Raises BadInput when there is none."""
        self._fill(triggers=triggers)
        if not triggers or not all(isinstance(trigger, Trigger) for trigger in triggers):
            problem = "AnyOf takes one trigger or more"
            raise BadInput(problem)

    def after(self, moment: int) -> int | None:
        """The earliest of the slots that come next."""
        following = (trigger.after(moment) for trigger in self.triggers)
        return min((slot for slot in following if slot is not None), default=None)

    def anchored(self, moment: int, *, seed: str = "") -> AnyOf:
        """Each of the triggers, anchored."""
        return AnyOf(*(trigger.anchored(moment, seed=seed) for trigger in self.triggers))


@dataclass(frozen=True, slots=True, init=False)
class Excluding(Trigger):
    """The slots of a trigger that lie in none of these calendars; those that do are dropped, not moved.

    A trigger with a count spends it on slots that are dropped, too. When nothing is left in a hundred years, or
    `MOST_DROPPED` excluded times follow each other, there is no slot.
    """

    kind: ClassVar[str] = "excluding"

    trigger: Trigger
    calendars: tuple[Calendar, ...]

    def __init__(self, trigger: Trigger, *calendars: Calendar) -> None:
        """Raises BadInput when there is no calendar."""
        self._fill(trigger=trigger, calendars=calendars)
        if not isinstance(trigger, Trigger) or not calendars or not all(isinstance(calendar, Calendar) for calendar in calendars):
            problem = "Excluding takes a trigger, and then one calendar or more"
            raise BadInput(problem)

    def after(self, moment: int) -> int | None:
        """The first slot later than `moment` that lies in no calendar."""
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
        """The trigger, anchored, without the same times."""
        return Excluding(self.trigger.anchored(moment, seed=seed), *self.calendars)
