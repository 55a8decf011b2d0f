"""Schedules of a queue: a message for each occurrence of a trigger, exactly once, also when processes crash.

- `schedules`: `Schedules`, which lists, makes, changes and removes the schedules of a queue. `astyqueue.aio` has its
  twin.
- `views`: `Scheduled`, what these calls return.
- `reconcile`: applies the schedules that code declares when a process starts, so that a deployment adds, changes and
  removes them whichever release starts first.

A caller's thread or task runs the steps of `astyqueue.queue.admin.schedules`, which stores a schedule as a column. Any
process that claims from the queue fires its occurrences (`astyqueue.protocol.scheduling`). docs/how-to/schedules.md
shows the calls and policies.
"""

from __future__ import annotations

from astyqueue.model.schedule import AfterFailure, Misfire, Overlap
from astyqueue.schedules.reconcile import Declared, Instructions, Reconciled, Release, order_of, reconcile
from astyqueue.schedules.schedules import Schedules
from astyqueue.schedules.views import Scheduled

__all__ = [
    "AfterFailure",
    "Declared",
    "Instructions",
    "Misfire",
    "Overlap",
    "Reconciled",
    "Release",
    "Scheduled",
    "Schedules",
    "order_of",
    "reconcile",
]
