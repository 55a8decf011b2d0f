"""What went wrong, by task and cause."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipelines.marking import is_
from astyqueue.spark.pipelines.outputs import FAILURES

#: What is said where nobody gave a reason.
UNTOLD = "no reason was given"


def failures(events: DataFrame) -> DataFrame:
    """The failures in events that were marked."""
    causes = events.where("cause").withColumns(
        {
            "task": F.coalesce("task", F.lit("")),
            "failure": F.coalesce("failure", "why", F.lit(UNTOLD)),
            "reason": F.coalesce("reason", "why"),
        }
    )
    found = causes.groupBy("queue", "day", "task", "failure").agg(
        F.count("*").alias("times"),
        F.count_distinct("message").alias("messages"),
        F.count(F.when(is_(Kind.DEAD) | F.col("dies"), 1)).alias("dead"),
        F.count_distinct("host").alias("hosts"),
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        F.max(F.struct("at", F.col("reason").alias("example"))).alias("told"),
    )
    return found.select("*", "told.example").select(*FAILURES.schema.names)
