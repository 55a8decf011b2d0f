"""Schedules of a queue: a message for each occurrence of a trigger, exactly once, also when processes crash."""

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
