"""How punctual schedules were: when their slots were fired, and when the messages sent by them began."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipelines.facts import Percentiles, exact, summed
from astyqueue.spark.pipelines.marking import between, is_
from astyqueue.spark.pipelines.outputs import PUNCTUAL, SCHEDULES


def schedules(events: DataFrame, percentiles: Percentiles = exact) -> DataFrame:
    """The schedules in events that were marked."""
    fired, skipped = is_(Kind.FIRED), is_(Kind.SKIPPED)
    started = F.when(F.col("outcome").isNotNull() & ~is_(Kind.CLAIMED), F.col("waited"))
    told = events.withColumns(
        {
            "late": F.when(fired, F.greatest(F.lit(0), between("slot", "at"))),
            "started": started,
        }
    )
    within = [F.count(F.when(F.col("started") <= limit, 1)).alias(f"within_{name}") for name, limit in PUNCTUAL]
    found = told.where(F.col("schedule").isNotNull() & (fired | skipped | F.col("started").isNotNull()))
    return (
        found.groupBy("queue", "day", "schedule")
        .agg(
            F.count(F.when(fired, 1)).alias("fired"),
            F.count(F.when(skipped, 1)).alias("skipped"),
            *summed("late", F.col("late"), percentiles),
            F.count("started").alias("start_count"),
            *summed("start", F.col("started"), percentiles),
            *within,
        )
        .withColumnRenamed("start_count", "started")
        .select(*SCHEDULES.schema.names)
    )
