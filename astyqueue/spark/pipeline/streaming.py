"""The stream: facts of each minute soon after it is over; events behind the watermark are left to the batch job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use
from pyspark.sql.streaming.query import StreamingQuery

from astyqueue.errors import BadSetting
from astyqueue.model.event import Kind
from astyqueue.spark.pipeline.batch import followed
from astyqueue.spark.pipeline.enrich import LAPSED, is_, sure
from astyqueue.spark.pipeline.parquet_store import LIVE_WRITER, Lake, days_of
from astyqueue.spark.pipeline.schemas import APART, FACTS, LIVE
from astyqueue.spark.pipeline.slo import Objectives
from astyqueue.spark.pipeline.transforms import SPELLED, approximate_percentiles, measures, with_lengths
from astyqueue.spark.session import UTC, configured, is_elsewhere, on_disk

#: A minute is closed when an event is seen that is this much later than its end.
WATERMARK: Final = "2 minutes"
#: Between two batches of a query.
_EVERY: Final = "10 seconds"
_CHECKPOINTS: Final = "_checkpoints"
#: Columns that identify a message.
_OF_MESSAGE: Final = ("queue", "message", "key")


def minutes(events: DataFrame, objectives: Objectives, watermark: str = WATERMARK) -> DataFrame:
    """The facts of each minute in a stream of events; each minute is emitted once, when the watermark has passed it.

    Each event is evaluated alone: a claim without an end is not noticed, and every attempt with the number 1 counts as
    a wait. If a message has two done or two sent events within the watermark, the first counts. A sent event counts in
    the minute in which it was written.
    """
    outcome = (
        F.when(is_(Kind.FAILED) & (F.col("why") == LAPSED), F.lit("expired"))
        .when(is_(Kind.DONE, Kind.FAILED, Kind.RELEASED), F.col("kind"))
        .when(is_(Kind.DEAD) & F.col("began").isNotNull() & (F.col("why") != "failed"), F.lit("dead"))
    )
    died = F.when(F.col("outcome") == "dead", F.unix_micros("at") - F.unix_micros("began"))
    each = F.concat_ws(" ", *[F.col(name).cast("string") for name in APART if name not in _OF_MESSAGE])
    whole = F.when(is_(Kind.DONE, Kind.SENT), F.col("kind")).otherwise(each)
    added = {"outcome": outcome, "settles": is_(Kind.DONE, Kind.DEAD), "once": whole}
    known = events.where(~sure(F.col("lost"))).withColumns(added)
    once = known.withWatermark("at", watermark).dropDuplicatesWithinWatermark([*_OF_MESSAGE, "once"])
    measured = with_lengths(once.withColumn("ran", F.coalesce("ran", died)), objectives)
    found = measured.groupBy("queue", F.window("at", "1 minute")).agg(*measures(approximate_percentiles))
    named = {
        "grain": F.lit("minute"),
        "began": F.col("window.start"),
        "member": F.date_format("window.start", SPELLED),
        "day": F.to_date("window.start"),
    }
    return found.withColumns(named).select(*FACTS.schema.names)


class Stream:
    """Follows the history of queues, and updates the table `live` of a folder."""

    def __init__(
        self, spark: SparkSession, out: Path, *, objectives: Objectives | None = None, watermark: str = WATERMARK
    ) -> None:
        """Nothing runs yet. BadSetting for a Spark Connect server: its workers see neither our session nor our disk."""
        if is_elsewhere(spark):
            message = "the stream writes its table in this process, not on a Spark Connect server: use a master"
            raise BadSetting(message)
        self._spark = spark
        self._lake = Lake(spark, out)
        self._objectives = objectives or Objectives()
        self._watermark = watermark

    def start(
        self, url: str, queues: Iterable[str], *, since: int, once: bool = False, accept_gap: bool = False
    ) -> list[StreamingQuery]:
        """Follow these queues, from `since` (microseconds) or from where an earlier stream into this folder ended.

        With `once`, up to the current end of history; else until the queries are stopped. A query fails if history that
        the earlier stream did not read has expired, unless `accept_gap`.
        """
        with configured(self._spark, UTC):
            found = {
                queue: followed(self._spark, url, queue, since=since, accept_gap=accept_gap)
                for queue in sorted(set(queues))
            }
        return [self.follow(queue, events, once=once) for queue, events in found.items()]

    def follow(self, queue: str, events: DataFrame, *, once: bool = False) -> StreamingQuery:
        """Follow one queue, whose events may come from any source; the query keeps the session settings set in here."""
        with configured(self._spark, UTC):
            writer = minutes(events, self._objectives, self._watermark).writeStream.outputMode("append")
            writer = writer.queryName(f"astyqueue {queue}").foreachBatch(lambda batch, _: keep(self._lake, batch))
            writer = writer.option("checkpointLocation", on_disk(self._lake.folder / _CHECKPOINTS / queue))
            return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_EVERY)).start()


def keep(lake: Lake, found: DataFrame) -> None:
    """Write minutes to the table `live`; a repeated batch replaces its own."""
    with lake.writer(LIVE_WRITER, wait=None) as writer:
        fresh = found.persist()
        days = days_of(fresh)
        if days:
            # A writer that was killed while publishing left rows twice.
            before = lake.read(LIVE, days).dropDuplicates(["queue", "began"])
            others = before.join(fresh.select("queue", "began"), ["queue", "began"], "left_anti")
            writer.write(LIVE, others.unionByName(fresh), days)
        fresh.unpersist()
