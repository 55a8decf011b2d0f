"""Events with columns that need other events of the same message: the outcome of an attempt, the end that counts."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipeline.schemas import CUT_DIGITS, CUT_LENGTH, CUT_MARK, NAME_LENGTH
from astyqueue.units import SECOND

#: The order of events of the same moment.
NUMBERS: Final = {kind.value: number for number, kind in enumerate(Kind)}


def is_(*kinds: Kind) -> Column:
    """Whether an event is of one of these kinds."""
    return F.col("kind").isin(*[kind.value for kind in kinds])


def sure(condition: Column) -> Column:
    """A condition that is false where it is null."""
    return F.coalesce(condition, F.lit(col=False))


def numbered(kind: str) -> Column:
    """The place of a kind in NUMBERS."""
    return F.create_map(*[F.lit(part) for pair in NUMBERS.items() for part in pair])[F.col(kind)]


#: Headers that are cut to NAME_LENGTH characters; keys are bounded when they are sent.
_NAMES: Final = ("task", "schedule", "tenant")
#: The reason of an attempt that its worker did not end, for example because it was killed.
LAPSED: Final = "lapsed"
#: Reasons of a death whose cause is in a separate event of failure.
_EXPLAINED: Final = ("failed", "attempts")
_SETTLING: Final = (Kind.DONE, Kind.DEAD, Kind.CANCELLED)
#: Microseconds within which the lapse of an attempt and the death that it caused are written.
_NEAR: Final = SECOND


def marked(events: DataFrame) -> DataFrame:
    """The events that are not `lost`, with further columns; empty texts become null, and long names are shortened.

    The further columns are `day`, `row` (of the message), `outcome` (if the event ends an attempt, or is a claim
    without an end: done, failed, released, dead, cancelled, expired, open), `settles` (the done or dead that counts),
    `dies` (a failure that made a dead letter) and `cause` (a failure, or a death that no failure explains). `sent`,
    `claimed` and `ran` are filled in where other events have them, and every attempt has `waited`.

    A sent event occurs once, with the moment of sending as `at`: it may have been written later, and by two tasks of
    Spark. Builds reach one day back, and so does this: if the message was sent before the day before the event, `at`
    stays the moment of the event.

    A claim may be written a moment later than its end. So claims and ends are matched by worker and attempt, not by
    order.
    """
    subject = F.coalesce("message", F.concat(F.lit(":"), "key"))
    known = _tidy(events.where(~sure(F.col("lost")))).withColumns(
        {"subject": subject, "written": F.col("at"), "at": _when()}
    )
    named = known.withColumns(
        {
            "explained": is_(Kind.DEAD) & sure(F.col("why").isin(*_EXPLAINED)),
            "lapsed": is_(Kind.FAILED) & sure(F.col("why") == LAPSED),
            "day": F.to_date("at"),
            "row": F.regexp_extract("message", r"^([^/]*)/", 1),
            # In these events the key is the name of the schedule, not the key of a message.
            "key": F.when(~is_(Kind.FIRED, Kind.SKIPPED), F.col("key")),
            "schedule": F.coalesce("schedule", F.when(is_(Kind.FIRED, Kind.SKIPPED), F.col("key"))),
        }
    ).withColumn(
        "ends",
        is_(Kind.DONE, Kind.FAILED, Kind.RELEASED)
        | (is_(Kind.DEAD) & ~F.col("explained") & F.col("began").isNotNull()),
    )
    seen = named.withColumns(_neighbours()).where(~is_(Kind.SENT) | (F.col("written") == F.col("first_sent")))
    columns = {
        "outcome": _outcome(),
        "settles": is_(Kind.DEAD) | (is_(Kind.DONE) & (F.col("at") == F.col("last_done"))),
        "dies": is_(Kind.FAILED) & (F.col("dead_here") | (F.col("lapsed") & F.col("dead_near"))),
        "cause": is_(Kind.FAILED) | (is_(Kind.DEAD) & ~F.col("explained")),
        "claimed": F.coalesce("claimed", F.when(F.col("lapsed"), F.col("claim"))),
        "sent": F.coalesce("sent", "known_sent"),
    }
    return _timed(seen.withColumns(columns)).drop(*_neighbours(), "subject", "written", "explained", "ends")


def _when() -> Column:
    """When it happened; the event of a sending may be written on the next day."""
    lately = F.to_date("sent") >= F.date_sub(F.to_date("at"), 1)
    return F.when(is_(Kind.SENT) & sure(lately), F.least("sent", "at")).otherwise(F.col("at"))


def _neighbours() -> dict[str, Column]:
    """Columns computed from other events of the message; `unended` is a claim without an end."""
    of_one = Window.partitionBy("queue", "subject")
    of_attempt = Window.partitionBy("queue", "subject", "worker", "attempt")
    claims, ends = F.when(is_(Kind.CLAIMED), 1), F.when(F.col("ends"), 1)
    dead, claimed_at = is_(Kind.DEAD), F.when(is_(Kind.CLAIMED), F.col("at"))
    near = of_one.orderBy(F.unix_micros("at")).rangeBetween(-_NEAR, _NEAR)
    return {
        "known_sent": F.min("sent").over(of_one),
        "first_sent": F.min(F.when(is_(Kind.SENT), F.col("written"))).over(of_one),
        "last_done": F.max(F.when(is_(Kind.DONE), F.col("at"))).over(of_one),
        "last_claim": F.max(claimed_at).over(of_one),
        "last_end": F.max(F.when(is_(*_SETTLING), F.struct("at", "kind"))).over(of_one),
        "unended": is_(Kind.CLAIMED)
        & (F.count(claims).over(of_attempt.orderBy("at")) > F.count(ends).over(of_attempt)),
        "claim": F.max(claimed_at).over(of_attempt),
        "dead_here": F.max(dead).over(Window.partitionBy("queue", "subject", "at")),
        "dead_near": F.max(dead & F.col("explained")).over(near),
    }


def _tidy(events: DataFrame) -> DataFrame:
    texts = {name: F.nullif(F.col(name), F.lit("")) for name in ("worker", "why", "reason", "failure", "trace")}
    return events.withColumns(
        {
            **texts,
            "host": bounded(F.nullif(F.col("host"), F.lit(""))),
            **{name: bounded(F.col(name)) for name in _NAMES},
        }
    )


def bounded(name: Column) -> Column:
    """A name as `shortened` makes it."""
    cut = F.concat(F.substring(name, 1, CUT_LENGTH), F.lit(CUT_MARK), F.substring(F.sha2(name, 256), 1, CUT_DIGITS))
    return F.when(F.length(name) > NAME_LENGTH, cut).otherwise(name)


def _outcome() -> Column:
    """The outcome of the attempt that this event ends, or of a claim without an end."""
    cancelled, later = F.col("last_end.kind") == Kind.CANCELLED.value, F.col("last_end.at") > F.col("at")
    missing = (
        F.when(F.col("last_claim") > F.col("at"), F.lit("expired"))
        .when(later, F.when(cancelled, F.lit("cancelled")).otherwise(F.lit("expired")))
        .otherwise(F.lit("open"))
    )
    return F.when(F.col("lapsed"), F.lit("expired")).when(F.col("ends"), F.col("kind")).when(F.col("unended"), missing)


def _timed(events: DataFrame) -> DataFrame:
    """The running time of attempts that ended with a death, and the wait before attempts; events do not have them."""
    died = F.when(F.col("outcome") == "dead", _length("began", "at"))
    return events.withColumns({"ran": F.coalesce("ran", died), "waited": _length("due", "began")})


def _length(first: str, last: str) -> Column:
    """As `between`, at least 0; null unless both moments are known."""
    return F.when(F.col(first).isNotNull() & F.col(last).isNotNull(), F.greatest(F.lit(0), between(first, last)))


def between(first: str, last: str) -> Column:
    """Microseconds from one moment to another."""
    return F.unix_micros(F.col(last)) - F.unix_micros(F.col(first))
