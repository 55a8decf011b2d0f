"""From the history of queues to tables one can ask: attempts, messages, facts, failures, schedules; and a report of them.

Names are imported when they are first used: the report reads tables where there is no Spark.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazily import importing

if TYPE_CHECKING:
    from astyqueue.spark.pipelines.job import Built, Job, Span
    from astyqueue.spark.pipelines.live import Stream
    from astyqueue.spark.pipelines.objectives import Objective, Objectives

__all__ = ["Built", "Job", "Objective", "Objectives", "Span", "Stream"]

_HOMES: Final = {"Built": "job", "Job": "job", "Objective": "objectives", "Objectives": "objectives", "Span": "job", "Stream": "live"}


__getattr__ = importing(globals(), _HOMES)
