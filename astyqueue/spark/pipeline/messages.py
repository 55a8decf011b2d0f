"""One row for each message, merged from all of its events, in any order of their arrival.

Merging two rows about one message is commutative, associative and idempotent: each column is a minimum, a maximum, or
the latest value. So the row of a message that was sent last week and is done today is updated in place.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipeline.enrich import between, is_, numbered
from astyqueue.spark.pipeline.schemas import MESSAGES
from astyqueue.units import SECOND

_FIXED: Final = ("row", "key", "task", "schedule", "tenant", "sent", "due")
_HEADERS: Final = ("task", "schedule", "tenant")
_STATES: Final = {Kind.DONE: "done", Kind.DEAD: "dead", Kind.CANCELLED: "cancelled", Kind.CLAIMED: "in flight"}
#: Events after which the message goes on: its end counts as later, even if it is dated a moment before them.
_PASSED: Final = tuple(kind.value for kind in (Kind.SENT, Kind.CLAIMED, Kind.FAILED, Kind.RETRIED, Kind.RELEASED))
#: Microseconds at most between a claim and its event.
_LATE: Final = SECOND


def messages(events: DataFrame) -> DataFrame:
    """The messages in marked events; one whose time of sending is unknown is left out."""
    ended = F.when(F.col("outcome").isin("done", "failed", "released", "dead"), F.col("at"))
    failed = F.when(F.col("cause"), F.col("at"))
    each = events.where(F.col("message").isNotNull()).withColumns(
        {
            "sent": F.coalesce("sent", F.when(is_(Kind.SENT), F.col("at"))),
            # The claim of an ended attempt and an expired lease are written late and do not change the state, and what
            # an unknown event changed is unknown; sent is first.
            "changed": F.when(is_(Kind.SENT), F.least("sent", "at")).when(
                ~(is_(Kind.CLAIMED) & F.col("outcome").isNull()) & ~F.col("lapsed") & ~is_(Kind.UNKNOWN), F.col("at")
            ),
            "event": F.col("kind"),
            "attempts": F.col("attempt"),
            "ended": ended,
            "failed_at": failed,
        }
    )
    return joined(each)


def joined(rows: DataFrame) -> DataFrame:
    """One row for each message, merged from several rows about it."""
    merged = {
        "last": F.max(F.when(F.col("changed").isNotNull(), F.struct(_order(), "changed", "event"))),
        "last_attempt": F.max(_known("ended", "ran", "host")),
        "last_failure": F.max(_known("failed_at", "why", "reason", "failure")),
        "attempts": F.max("attempts"),
        "waited": F.min("waited"),
        **{name: F.min(name) for name in _FIXED},
    }
    found = rows.groupBy("queue", "message").agg(*[merged[name].alias(name) for name in merged])
    flat = found.select(
        "queue",
        "message",
        "attempts",
        "waited",
        *_FIXED,
        "last.changed",
        "last.event",
        "last_attempt.*",
        "last_failure.*",
    )
    return _judged(flat.where(F.col("sent").isNotNull() & F.col("changed").isNotNull())).select(*MESSAGES.schema.names)


def with_messages(events: DataFrame, rows: DataFrame) -> DataFrame:
    """Marked events with what the rows of their messages know.

    `waited` stays only where it is the wait until a handler of the message first began. An event of a command, such as
    a deletion, lacks the headers of the message, so that it would count for no task and no tenant.
    """
    known = rows.select("queue", "message", *[F.col(name).alias(f"its_{name}") for name in ("waited", *_HEADERS)])
    waited = F.when(F.col("waited") == F.col("its_waited"), F.col("waited"))
    headers = {name: F.coalesce(name, f"its_{name}") for name in _HEADERS}
    of_both = events.join(known, ["queue", "message"], "left").withColumns({"waited": waited, **headers})
    return of_both.select(*events.columns)


def _order() -> Column:
    """The order of the events of a message; a claim may be written a moment after the end of its attempt.

    So what settles a message is after a claim of the same moment, and what a claim may follow at once is before it.
    """
    late = F.when(F.col("event").isin(*_PASSED), _LATE).otherwise(0)
    return F.struct(F.unix_micros("changed") - late, numbered("event")).alias("order")


def _judged(rows: DataFrame) -> DataFrame:
    state = F.lit("waiting")
    for kind, word in _STATES.items():
        state = F.when(F.col("event") == kind.value, F.lit(word)).otherwise(state)
    settled = rows.withColumns({"day": F.to_date("sent"), "state": state}).withColumn(
        "settled", F.when(F.col("state").isin("done", "dead", "cancelled"), F.col("changed"))
    )
    took = F.when(F.col("state").isin("done", "dead"), F.greatest(F.lit(0), between("sent", "settled")))
    return settled.withColumn("took", took)


def _known(moment: str, *more: str) -> Column:
    """A struct that begins with a moment, so that the greatest is the latest; null without the moment."""
    return F.when(F.col(moment).isNotNull(), F.struct(moment, *more))
