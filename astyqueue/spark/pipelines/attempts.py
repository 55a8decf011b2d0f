"""One row for each time that a message was handed to a worker."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipelines.marking import is_
from astyqueue.spark.pipelines.outputs import ATTEMPTS


def attempts(events: DataFrame) -> DataFrame:
    """The attempts in events that were marked."""
    ended = F.when(~is_(Kind.CLAIMED), F.col("at"))
    told = {"claimed": F.coalesce("claimed", F.when(is_(Kind.CLAIMED), F.col("at"))), "ended": ended}
    return events.where(F.col("outcome").isNotNull()).withColumns(told).select(*ATTEMPTS.schema.names)
