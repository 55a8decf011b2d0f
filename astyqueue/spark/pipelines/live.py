"""The stream: facts of each minute, soon after it is over; what comes later than the watermark is left to the batch job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use
from pyspark.sql.streaming.query import StreamingQuery

from astyqueue.errors import BadSetting
from astyqueue.model.event import Kind
from astyqueue.spark.paths import on_disk
from astyqueue.spark.pipelines.facts import SPELLED, approximate, measures, with_lengths
from astyqueue.spark.pipelines.lake import LIVE_WRITER, Lake, days_of
from astyqueue.spark.pipelines.marking import LAPSED, is_, sure
from astyqueue.spark.pipelines.objectives import Objectives
from astyqueue.spark.pipelines.outputs import APART, FACTS, LIVE
from astyqueue.spark.pipelines.source import followed
from astyqueue.spark.session import UTC, configured, is_elsewhere

#: Events of a minute are waited for so long after it, by the time that events themselves tell.
WATERMARK: Final = "2 minutes"
#: Between two looks at the history.
_EVERY: Final = "10 seconds"
_CHECKPOINTS: Final = "_checkpoints"
#: By what ends of one message are told to be so.
_OF_MESSAGE: Final = ("queue", "message", "key")


def minutes(events: DataFrame, objectives: Objectives, watermark: str = WATERMARK) -> DataFrame:
    """The facts of each minute in a stream of events; each minute is told once, when the watermark has passed it.

    An event is judged by itself: a claim that never ended is not noticed, and a message waits for each attempt that has the
    number 1. Of a message that is done, or told of as sent, twice within the watermark the first counts. That a
    message was sent counts in the minute in which it was written.
    """
    outcome = (
        F.when(is_(Kind.FAILED) & (F.col("why") == LAPSED), F.lit("expired"))
        .when(is_(Kind.DONE, Kind.FAILED, Kind.RELEASED), F.col("kind"))
        .when(is_(Kind.DEAD) & F.col("began").isNotNull() & (F.col("why") != "failed"), F.lit("dead"))
    )
    died = F.when(F.col("outcome") == "dead", F.unix_micros("at") - F.unix_micros("began"))
    each = F.concat_ws(" ", *[F.col(name).cast("string") for name in APART if name not in _OF_MESSAGE])
    whole = F.when(is_(Kind.DONE, Kind.SENT), F.col("kind")).otherwise(each)
    told = events.where(~sure(F.col("lost"))).withColumns({"outcome": outcome, "settles": is_(Kind.DONE, Kind.DEAD), "once": whole})
    once = told.withWatermark("at", watermark).dropDuplicatesWithinWatermark([*_OF_MESSAGE, "once"])
    measured = with_lengths(once.withColumn("ran", F.coalesce("ran", died)), objectives)
    found = measured.groupBy("queue", F.window("at", "1 minute")).agg(*measures(approximate))
    named = {
        "grain": F.lit("minute"),
        "began": F.col("window.start"),
        "member": F.date_format("window.start", SPELLED),
        "day": F.to_date("window.start"),
    }
    return found.withColumns(named).select(*FACTS.schema.names)


class Stream:
    """Follows the history of queues, and keeps the table `live` of a folder."""

    def __init__(self, spark: SparkSession, out: Path, *, objectives: Objectives | None = None, watermark: str = WATERMARK) -> None:
        """Nothing runs yet. BadSetting if Spark is a Connect server elsewhere, whose workers know neither this session nor this disk."""
        if is_elsewhere(spark):
            message = "the stream writes its table from here, which a Spark Connect server cannot: use another master, such as local[2]"
            raise BadSetting(message)
        self._spark = spark
        self._lake = Lake(spark, out)
        self._objectives = objectives or Objectives()
        self._watermark = watermark

    def start(self, url: str, queues: Iterable[str], *, since: int, once: bool = False, accept_gap: bool = False) -> list[StreamingQuery]:
        """Follow these queues, from `since` (microseconds) or from where an earlier stream into this folder ended.

        With `once`, up to what is there now; else until the queries are stopped. A query fails if a part of history is gone that
        the earlier stream did not read, unless it may `accept_gap`.
        """
        with configured(self._spark, UTC):
            found = {queue: followed(self._spark, url, queue, since=since, accept_gap=accept_gap) for queue in sorted(set(queues))}
        return [self.follow(queue, events, once=once) for queue, events in found.items()]

    def follow(self, queue: str, events: DataFrame, *, once: bool = False) -> StreamingQuery:
        """Follow one queue, whose events come from wherever; the query keeps the settings of the session as they are in here."""
        with configured(self._spark, UTC):
            writer = minutes(events, self._objectives, self._watermark).writeStream.outputMode("append")
            writer = writer.queryName(f"astyqueue {queue}").foreachBatch(lambda batch, _: keep(self._lake, batch))
            writer = writer.option("checkpointLocation", on_disk(self._lake.folder / _CHECKPOINTS / queue))
            return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_EVERY)).start()


def keep(lake: Lake, found: DataFrame) -> None:
    """Put minutes in their places; a batch that comes again takes the same ones."""
    with lake.writer(LIVE_WRITER, wait=None) as writer:
        fresh = found.persist()
        days = days_of(fresh)
        if days:
            # A writer that was killed has left rows twice.
            before = lake.read(LIVE, days).dropDuplicates(["queue", "began"])
            others = before.join(fresh.select("queue", "began"), ["queue", "began"], "left_anti")
            writer.write(LIVE, others.unionByName(fresh), days)
        fresh.unpersist()
