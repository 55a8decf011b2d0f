"""From the history of queues to tables for queries (attempts, messages, facts, failures, schedules) and a report.

- `batch`: reads the new events and rebuilds every day they belong to. `streaming`: the facts of each minute, soon.
- `messages`, `enrich`, `transforms`: the tables, computed from events in any order of their arrival.
- `schemas`: each column, declared once. `slo`: service levels of the facts.
- `parquet_store`, `manifest`, `folder_lock`: the folder of tables: whole days replaced, up to when each queue was read,
  and one writer at a time.
- `report`: one HTML page from the tables.

A run reads the history by the data source of `astyqueue.spark`, writes days, and then the manifest, so that a run that
was killed is repeated. Names are imported lazily, because the report reads the tables without PySpark.
docs/how-to/pipeline.md shows a run, docs/reference/pipeline.md has the tables.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.spark.pipeline.batch import Built, Job, Span
    from astyqueue.spark.pipeline.parquet_store import Day
    from astyqueue.spark.pipeline.slo import Objective, Objectives
    from astyqueue.spark.pipeline.streaming import Stream

__all__ = ["Built", "Day", "Job", "Objective", "Objectives", "Span", "Stream"]

_HOMES: Final = {
    "Built": "batch",
    "Day": "parquet_store",
    "Job": "batch",
    "Objective": "slo",
    "Objectives": "slo",
    "Span": "batch",
    "Stream": "streaming",
}


__getattr__ = lazy_imports(globals(), _HOMES)
