"""The tables that are computed from enriched events: attempts, facts, failures and schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipeline.enrich import between, is_, sure
from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, FAILURES, LENGTHS, PERCENTILES, PUNCTUAL, SCHEDULES
from astyqueue.spark.pipeline.slo import Objective, Objectives

_QUANTILES: Final = [share for _, share in PERCENTILES]
#: The rank of an approximate percentile is off by at most 1/ACCURACY of the number of values.
ACCURACY: Final = 10_000
_ENDED: Final = ("done", "failed", "released", "dead")
#: The format of a moment as a member.
SPELLED: Final = "yyyy-MM-dd'T'HH:mm'Z'"
_COUNTED: Final = (
    Kind.SENT,
    Kind.DONE,
    Kind.DEAD,
    Kind.RETRIED,
    Kind.RELEASED,
    Kind.REDRIVEN,
    Kind.CANCELLED,
    Kind.FAILED,
)


def attempts(events: DataFrame) -> DataFrame:
    """The attempts in marked events."""
    ended = F.when(~is_(Kind.CLAIMED), F.col("at"))
    times = {"claimed": F.coalesce("claimed", F.when(is_(Kind.CLAIMED), F.col("at"))), "ended": ended}
    return events.where(F.col("outcome").isNotNull()).withColumns(times).select(*ATTEMPTS.schema.names)


Percentiles = Callable[[Column], Column]


def exact_percentiles(values: Column) -> Column:
    """Exact percentiles, interpolated; memory grows with the number of different values."""
    return F.percentile(values, _QUANTILES)


def approximate_percentiles(values: Column) -> Column:
    """Percentiles by a sketch: actual values whose rank is within ACCURACY; little memory for many values."""
    return F.percentile_approx(values, _QUANTILES, ACCURACY).cast("array<double>")


def facts(events: DataFrame, objectives: Objectives, percentiles: Percentiles = exact_percentiles) -> DataFrame:
    """The facts in marked events."""
    counted = with_lengths(events, objectives).where(is_(*_COUNTED) | F.col("outcome").isNotNull())
    places = F.filter(F.array(*_places()), lambda place: place["member"].isNotNull())
    placed = counted.withColumn("place", F.explode(places))
    found = placed.groupBy("queue", "day", "place").agg(*measures(percentiles))
    return found.select("*", "place.*").select(*FACTS.schema.names)


def with_lengths(events: DataFrame, objectives: Objectives) -> DataFrame:
    """The events with lengths only where these count, and the objective of their queue."""
    ended = F.col("outcome").isin(*_ENDED)
    lengths = {
        "waited": F.when(ended, F.col("waited")),
        "ran": F.when(ended, F.col("ran")),
        "took": F.when(F.col("settles"), F.col("took")),
    }
    measured = events.withColumns(lengths)
    text, value, limit = _objective(objectives)
    return measured.withColumns({"objective": text, "objective_value": value, "objective_limit": limit})


def _objective(objectives: Objectives) -> tuple[Column, Column, Column]:
    """The text, the length and the limit of the objective of each event's queue."""

    def parts(objective: Objective) -> tuple[Column, Column, Column]:
        return F.lit(objective.text), F.col(objective.column), F.lit(objective.limit)

    text, value, limit = parts(objectives.otherwise)
    for queue, objective in objectives.of_queues.items():
        its = F.col("queue") == queue
        own_text, own_value, own_limit = parts(objective)
        text, value, limit = (
            F.when(its, own).otherwise(other)
            for own, other in ((own_text, text), (own_value, value), (own_limit, limit))
        )
    return text, value, limit


def _places() -> list[Column]:
    """The places at which an event is counted: each a grain, and a member of it."""
    moments = [_place(grain, None, F.date_trunc(grain, F.col("at"))) for grain in ("minute", "hour")]
    members = [_place(grain, F.col(grain), None) for grain in ("task", "key", "host", "tenant", "row")]
    return [*moments, _place("queue", F.col("queue"), None), *members]


def _place(grain: str, member: Column | None, began: Column | None) -> Column:
    moment = F.lit(None).cast("timestamp") if began is None else began
    named = F.date_format(moment, SPELLED) if member is None else member
    return F.struct(F.lit(grain).alias("grain"), named.alias("member"), moment.alias("began"))


def measures(percentiles: Percentiles) -> list[Column]:
    """The aggregates of a group of events; the percentiles of a length are computed as one array and then split."""
    counted = {
        "sent": is_(Kind.SENT),
        "done": is_(Kind.DONE) & F.col("settles"),
        **{kind.value: is_(kind) for kind in (Kind.DEAD, Kind.RETRIED, Kind.RELEASED, Kind.REDRIVEN, Kind.CANCELLED)},
        "failed": sure(F.col("outcome") == "failed"),
        "attempts": sure(F.col("outcome") != "open"),
        "expired": sure(F.col("outcome") == "expired"),
        "objective_of": F.col("objective_value").isNotNull(),
        "objective_met": sure(F.col("objective_value") <= F.col("objective_limit")),
    }
    counts = [F.count(F.when(condition, 1)).alias(name) for name, condition in counted.items()]
    sums = [F.coalesce(F.sum("ran"), F.lit(0)).alias("ran"), F.first("objective").alias("objective")]
    return counts + sums + [part for name, column, _ in LENGTHS for part in summed(name, F.col(column), percentiles)]


def summed(name: str, values: Column, percentiles: Percentiles) -> list[Column]:
    """The columns of percentiles and maximum of some values."""
    found = percentiles(values)
    return [
        *(found[place].alias(f"{name}_{part}") for place, (part, _) in enumerate(PERCENTILES)),
        F.max(values).alias(f"{name}_max"),
    ]


#: The failure of an event without a reason.
UNTOLD = "no reason was given"


def failures(events: DataFrame) -> DataFrame:
    """The failures in marked events."""
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
        F.max(F.struct("at", F.col("reason").alias("example"))).alias("latest"),
    )
    return found.select("*", "latest.example").select(*FAILURES.schema.names)


def schedules(events: DataFrame, percentiles: Percentiles = exact_percentiles) -> DataFrame:
    """The schedules in marked events."""
    fired, skipped = is_(Kind.FIRED), is_(Kind.SKIPPED)
    started = F.when(F.col("outcome").isNotNull() & ~is_(Kind.CLAIMED), F.col("waited"))
    measured = events.withColumns(
        {
            "late": F.when(fired, F.greatest(F.lit(0), between("slot", "at"))),
            "started": started,
        }
    )
    within = [F.count(F.when(F.col("started") <= limit, 1)).alias(f"within_{name}") for name, limit in PUNCTUAL]
    found = measured.where(F.col("schedule").isNotNull() & (fired | skipped | F.col("started").isNotNull()))
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
