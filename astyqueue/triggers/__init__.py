"""Triggers: immutable values that compute the next time to fire.

- `base`: what a trigger is: the occurrences after a moment, and the document by which it is stored.
- `simple`: `Once` and `Every`. `cron`: `Cron`. `composite`: the union of triggers, and one without the times of
  `calendars`.
- `custom`: triggers of a user's own, by a name that every process must know. `serialization`: documents to triggers.

A schedule stores the document of its trigger, and the process that fires it asks for the next occurrence. Nothing here
reads a clock, waits, or knows of messages and queues. docs/explanation/triggers.md has the rules for time zones and
clock changes.
"""

from __future__ import annotations

from astyqueue.triggers.base import Trigger
from astyqueue.triggers.calendars import Calendar, Days, Times
from astyqueue.triggers.composite import AnyOf, Excluding
from astyqueue.triggers.cron.cron import Cron
from astyqueue.triggers.custom import Custom
from astyqueue.triggers.serialization import Triggers
from astyqueue.triggers.simple import Every, Once

__all__ = ["AnyOf", "Calendar", "Cron", "Custom", "Days", "Every", "Excluding", "Once", "Times", "Trigger", "Triggers"]
