"""Counts and percentiles, by minute, hour, queue, task, key, host, tenant and row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipelines.marking import is_, sure
from astyqueue.spark.pipelines.objectives import Objective, Objectives
from astyqueue.spark.pipelines.outputs import FACTS, LENGTHS, PARTS

_SHARES: Final = [share for _, share in PARTS]
#: Approximate percentiles are off by one in so many places at most.
ACCURACY: Final = 10_000
_ENDED: Final = ("done", "failed", "released", "dead")
#: How a moment is spelled as a member.
SPELLED: Final = "yyyy-MM-dd'T'HH:mm'Z'"

Percentiles = Callable[[Column], Column]


def exact(values: Column) -> Column:
    """The percentiles as all values tell them; memory for each different value."""
    return F.percentile(values, _SHARES)


def approximate(values: Column) -> Column:
    """The percentiles by a sketch: values that occur, near enough to the place asked for; little memory for many values."""
    return F.percentile_approx(values, _SHARES, ACCURACY).cast("array<double>")


def facts(events: DataFrame, objectives: Objectives, percentiles: Percentiles = exact) -> DataFrame:
    """The facts in events that were marked."""
    told = with_lengths(events, objectives).where(is_(*_COUNTED) | F.col("outcome").isNotNull())
    placed = told.withColumn("place", F.explode(F.filter(F.array(*_places()), lambda place: place["member"].isNotNull())))
    found = placed.groupBy("queue", "day", "place").agg(*measures(percentiles))
    return found.select("*", "place.*").select(*FACTS.schema.names)


_COUNTED: Final = (Kind.SENT, Kind.DONE, Kind.DEAD, Kind.RETRIED, Kind.RELEASED, Kind.REDRIVEN, Kind.CANCELLED, Kind.FAILED)


def with_lengths(events: DataFrame, objectives: Objectives) -> DataFrame:
    """The events with only those lengths that count, and the objective of their queue."""
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
    """The text, the length and the limit that hold for a queue."""

    def parts(objective: Objective) -> tuple[Column, Column, Column]:
        return F.lit(objective.text), F.col(objective.column), F.lit(objective.limit)

    text, value, limit = parts(objectives.otherwise)
    for queue, objective in objectives.of_queues.items():
        its = F.col("queue") == queue
        own_text, own_value, own_limit = parts(objective)
        text, value, limit = (
            F.when(its, own).otherwise(other) for own, other in ((own_text, text), (own_value, value), (own_limit, limit))
        )
    return text, value, limit


def _places() -> list[Column]:
    """Under what an event is counted: a grain, and which member of it."""
    moments = [_place(grain, None, F.date_trunc(grain, F.col("at"))) for grain in ("minute", "hour")]
    members = [_place(grain, F.col(grain), None) for grain in ("task", "key", "host", "tenant", "row")]
    return [*moments, _place("queue", F.col("queue"), None), *members]


def _place(grain: str, member: Column | None, began: Column | None) -> Column:
    moment = F.lit(None).cast("timestamp") if began is None else began
    named = F.date_format(moment, SPELLED) if member is None else member
    return F.struct(F.lit(grain).alias("grain"), named.alias("member"), moment.alias("began"))


def measures(percentiles: Percentiles) -> list[Column]:
    """What is counted and summed up of some events; the percentiles of a length are taken apart from one array."""
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
    """The percentiles and the greatest of some values."""
    found = percentiles(values)
    return [*(found[place].alias(f"{name}_{part}") for place, (part, _) in enumerate(PARTS)), F.max(values).alias(f"{name}_max")]
