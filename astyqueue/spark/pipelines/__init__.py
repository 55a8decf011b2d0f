"""From the history of queues to tables one can ask: attempts, messages, facts, failures, schedules; and a report of them.

Names are imported when they are first used: the report reads tables where there is no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from astyqueue.spark.pipelines.job import Built, Job, Span
    from astyqueue.spark.pipelines.live import Stream
    from astyqueue.spark.pipelines.objectives import Objective, Objectives

__all__ = ["Built", "Job", "Objective", "Objectives", "Span", "Stream"]

_HOMES: Final = {"Built": "job", "Job": "job", "Objective": "objectives", "Objectives": "objectives", "Span": "job", "Stream": "live"}


def __getattr__(name: str) -> object:
    """Import a public name from where it lives, once."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
