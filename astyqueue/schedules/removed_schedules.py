"""What removed schedules leave to new ones, which may be the same under other names."""

from __future__ import annotations

from dataclasses import dataclass, field

from astyqueue.model.schedule import Schedule
from astyqueue.triggers import Trigger


@dataclass(slots=True)
class RemovedSchedules:
    """The schedules that a release removed, and until when their occurrences are dealt with.

    Those up to `since` are, but for those of `overdue`, which had not fired all that were due. `others` have some left,
    too.
    """

    since: int | None = None
    overdue: list[Schedule] = field(default_factory=list)
    others: list[Schedule] = field(default_factory=list)

    def add(self, schedule: Schedule, now: int) -> None:
        """Add a schedule that was removed now."""
        self.since = max(schedule.last, now, self.since or 0)
        if schedule.next is not None:
            is_overdue = not schedule.paused and schedule.next <= now
            (self.overdue if is_overdue else self.others).append(schedule)

    def left_to(self, trigger: Trigger) -> tuple[int | None, Schedule | None]:
        """Until when a new schedule's occurrences are dealt with, and the one of equal trigger that it continues."""
        same = [one for one in (*self.overdue, *self.others) if one.declared == trigger.document()]
        if not same:
            return self.since, None
        if same[0] not in self.overdue:
            self.others.remove(same[0])
            return self.since, same[0]
        self.overdue.remove(same[0])
        return same[0].last, same[0]
