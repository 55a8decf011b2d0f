"""When to fire: triggers are values, and asking one what comes next is arithmetic.

Nothing here reads a clock, waits, or knows of messages and queues. What the triggers promise about zones and changes of
clocks is written in `docs/explanation/triggers.md`.
"""

from __future__ import annotations

from astyqueue.triggers.base import Trigger
from astyqueue.triggers.calendars import Calendar, Days, Times
from astyqueue.triggers.combined import AnyOf, Excluding
from astyqueue.triggers.cron import Cron
from astyqueue.triggers.custom import Custom
from astyqueue.triggers.every import Every
from astyqueue.triggers.once import Once
from astyqueue.triggers.reading import Triggers

__all__ = ["AnyOf", "Calendar", "Cron", "Custom", "Days", "Every", "Excluding", "Once", "Times", "Trigger", "Triggers"]
