"""From the history of queues to tables for queries (attempts, messages, facts, failures, schedules) and a report.

Names are imported lazily, because the report reads the tables without PySpark.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.spark.pipeline.batch import Built, Job, Span
    from astyqueue.spark.pipeline.slo import Objective, Objectives
    from astyqueue.spark.pipeline.streaming import Stream

__all__ = ["Built", "Job", "Objective", "Objectives", "Span", "Stream"]

_HOMES: Final = {
    "Built": "batch",
    "Job": "batch",
    "Objective": "slo",
    "Objectives": "slo",
    "Span": "batch",
    "Stream": "streaming",
}


__getattr__ = lazy_imports(globals(), _HOMES)
