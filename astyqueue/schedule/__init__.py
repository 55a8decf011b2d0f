"""Schedules of a queue: messages that are sent at the slots of a trigger, each slot once, whoever runs and whatever dies."""

from __future__ import annotations

from astyqueue.model.schedules import AfterFailure, Misfire, Overlap
from astyqueue.schedule.declared import Declared, Instructions, Reconciled, Release, order_of, reconcile
from astyqueue.schedule.schedules import Schedules
from astyqueue.schedule.views import Scheduled

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
