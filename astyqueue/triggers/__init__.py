"""Triggers: immutable values that compute the next time to fire.

Nothing here reads a clock, waits, or knows of messages and queues. `docs/explanation/triggers.md` has the rules for
time zones and clock changes.
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
