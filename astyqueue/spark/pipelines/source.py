"""Where the events come from: the history of a queue, read by the data source `astyqueue`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.clock import instant
from astyqueue.spark.pipelines.outputs import EVENTS

_FORMAT = "astyqueue"


def events(spark: SparkSession, url: str, queue: str, *, since: int, until: int) -> DataFrame:
    """What happened to a queue from `since` up to `until` (microseconds), as the table `events` has it."""
    options = stretch_options(url, queue, since=since, until=until)
    return as_events(spark.read.format(_FORMAT).options(**options).load())


def stretch_options(url: str, queue: str, *, since: int, until: int) -> dict[str, str]:
    """What the data source is asked for a stretch of history: read by a quorum, for what is missed now is not looked for again."""
    moments = {"since": instant(since).isoformat(), "until": instant(until).isoformat()}
    return {"url": url, "queue": queue, "table": "history", "consistency": "quorum", **moments}


def followed(spark: SparkSession, url: str, queue: str, *, since: int, accept_gap: bool = False) -> DataFrame:
    """The same as a stream that begins at `since`, and stays a minute behind.

    It fails if a part of history is gone that it has not read, unless it may `accept_gap`.
    """
    options = {"url": url, "queue": queue, "table": "history", "since": instant(since).isoformat()}
    return as_events(spark.readStream.format(_FORMAT).options(**options, failOnDataLoss=str(not accept_gap)).load())


def as_events(history: DataFrame) -> DataFrame:
    """The columns of history as the table `events` has them."""
    return history.withColumn("day", F.to_date("at")).select(*EVENTS.schema.names)
