"""Events with what only their neighbours tell: how an attempt ended, and which of two ends of a message counts."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.model.event import Kind
from astyqueue.spark.pipelines.names import DIGITS, KEPT, LONGEST, MARK

#: Of events of one moment, the order in which they are told.
NUMBERS: Final = {kind.value: number for number, kind in enumerate(Kind)}


def is_(*kinds: Kind) -> Column:
    """Whether an event is of one of these kinds."""
    return F.col("kind").isin(*[kind.value for kind in kinds])


def sure(condition: Column) -> Column:
    """Whether a condition holds; where nobody knows, it does not."""
    return F.coalesce(condition, F.lit(col=False))


def numbered(kind: str) -> Column:
    """The place of a kind in the order of one moment."""
    return F.create_map(*[F.lit(part) for pair in NUMBERS.items() for part in pair])[F.col(kind)]


#: Headers that name something; keys have a bound of their own.
_NAMES: Final = ("task", "schedule", "tenant")
#: Why an attempt failed that nobody ended: its worker was killed, say.
LAPSED: Final = "lapsed"
#: Of deaths, those that a failure of its own tells the cause of.
_EXPLAINED: Final = ("failed", "attempts")
_SETTLING: Final = (Kind.DONE, Kind.DEAD, Kind.CANCELLED)
#: What lapsed and what was made of that are told within so many microseconds of each other.
_NEAR: Final = 1_000_000


def marked(events: DataFrame) -> DataFrame:
    """What came about, with these columns more, texts that are empty as null, and names no longer than they may be.

    `day`, `row` (of the message), `outcome` (if the event ends an attempt, or is a claim whose end is missing: done, failed,
    released, dead, cancelled, expired, open), `settles` (it is the done or dead that counts), `dies` (a failure that made a dead
    letter) and `cause` (a failure, or a death that no failure explains). `claimed` and `ran` are filled in where they can be, and
    `waited` is told of every attempt.

    `at` of a message that was sent is the moment of its sending, and it is told once: its event may have been written later, and
    two tasks of Spark that were at it both have told of it. The days that are built reach one day back, and so does this: what was
    sent earlier than the day before its event is told at the moment of the event.

    That a message was handed out may be told a moment later than what became of it, so that the order of events is not asked:
    claims and ends go together by worker and attempt.
    """
    subject = F.coalesce("message", F.concat(F.lit(":"), "key"))
    known = _tidy(events.where(~sure(F.col("lost")))).withColumns({"subject": subject, "written": F.col("at"), "at": _when()})
    told = known.withColumns(
        {
            "explained": is_(Kind.DEAD) & sure(F.col("why").isin(*_EXPLAINED)),
            "lapsed": is_(Kind.FAILED) & sure(F.col("why") == LAPSED),
            "day": F.to_date("at"),
            "row": F.regexp_extract("message", r"^([^/]*)/", 1),
            # The name of the schedule, which is told elsewhere too, is no key of a message.
            "key": F.when(~is_(Kind.FIRED, Kind.SKIPPED), F.col("key")),
            "schedule": F.coalesce("schedule", F.when(is_(Kind.FIRED, Kind.SKIPPED), F.col("key"))),
        }
    ).withColumn("ends", is_(Kind.DONE, Kind.FAILED, Kind.RELEASED) | (is_(Kind.DEAD) & ~F.col("explained") & F.col("began").isNotNull()))
    seen = told.withColumns(_neighbours()).where(~is_(Kind.SENT) | (F.col("written") == F.col("first_sent")))
    columns = {
        "outcome": _outcome(),
        "settles": is_(Kind.DEAD) | (is_(Kind.DONE) & (F.col("at") == F.col("last_done"))),
        "dies": is_(Kind.FAILED) & (F.col("dead_here") | (F.col("lapsed") & F.col("dead_near"))),
        "cause": is_(Kind.FAILED) | (is_(Kind.DEAD) & ~F.col("explained")),
        "claimed": F.coalesce("claimed", F.when(F.col("lapsed"), F.col("claim"))),
    }
    return _timed(seen.withColumns(columns)).drop(*_neighbours(), "subject", "written", "explained", "ends")


def _when() -> Column:
    """When it happened, which of a sending may be told by an event of the next day."""
    lately = F.to_date("sent") >= F.date_sub(F.to_date("at"), 1)
    return F.when(is_(Kind.SENT) & sure(lately), F.least("sent", "at")).otherwise(F.col("at"))


def _neighbours() -> dict[str, Column]:
    """What other events of the message tell; `unended` is a claim to which no end belongs."""
    of_one = Window.partitionBy("queue", "subject")
    of_attempt = Window.partitionBy("queue", "subject", "worker", "attempt")
    claims, ends = F.when(is_(Kind.CLAIMED), 1), F.when(F.col("ends"), 1)
    dead, claimed_at = is_(Kind.DEAD), F.when(is_(Kind.CLAIMED), F.col("at"))
    near = of_one.orderBy(F.unix_micros("at")).rangeBetween(-_NEAR, _NEAR)
    return {
        "first_sent": F.min(F.when(is_(Kind.SENT), F.col("written"))).over(of_one),
        "last_done": F.max(F.when(is_(Kind.DONE), F.col("at"))).over(of_one),
        "last_claim": F.max(claimed_at).over(of_one),
        "last_end": F.max(F.when(is_(*_SETTLING), F.struct("at", "kind"))).over(of_one),
        "unended": is_(Kind.CLAIMED) & (F.count(claims).over(of_attempt.orderBy("at")) > F.count(ends).over(of_attempt)),
        "claim": F.max(claimed_at).over(of_attempt),
        "dead_here": F.max(dead).over(Window.partitionBy("queue", "subject", "at")),
        "dead_near": F.max(dead & F.col("explained")).over(near),
    }


def _tidy(events: DataFrame) -> DataFrame:
    texts = {name: F.nullif(F.col(name), F.lit("")) for name in ("worker", "why", "reason", "failure", "trace")}
    return events.withColumns(
        {**texts, "host": bounded(F.nullif(F.col("host"), F.lit(""))), **{name: bounded(F.col(name)) for name in _NAMES}}
    )


def bounded(name: Column) -> Column:
    """A name as `shortened` makes it."""
    cut = F.concat(F.substring(name, 1, KEPT), F.lit(MARK), F.substring(F.sha2(name, 256), 1, DIGITS))
    return F.when(F.length(name) > LONGEST, cut).otherwise(name)


def _outcome() -> Column:
    """How the attempt ended that this event is the last word on."""
    cancelled, later = F.col("last_end.kind") == Kind.CANCELLED.value, F.col("last_end.at") > F.col("at")
    missing = (
        F.when(F.col("last_claim") > F.col("at"), F.lit("expired"))
        .when(later, F.when(cancelled, F.lit("cancelled")).otherwise(F.lit("expired")))
        .otherwise(F.lit("open"))
    )
    return F.when(F.col("lapsed"), F.lit("expired")).when(F.col("ends"), F.col("kind")).when(F.col("unended"), missing)


def _timed(events: DataFrame) -> DataFrame:
    """How long attempts ran that ended with a death, and messages waited for attempts, of which events themselves do not tell."""
    died = F.when(F.col("outcome") == "dead", _length("began", "at"))
    return events.withColumns({"ran": F.coalesce("ran", died), "waited": _length("due", "began")})


def _length(first: str, last: str) -> Column:
    """As `between`, at least nothing where both are known."""
    return F.when(F.col(first).isNotNull() & F.col(last).isNotNull(), F.greatest(F.lit(0), between(first, last)))


def between(first: str, last: str) -> Column:
    """Microseconds from one moment to another."""
    return F.unix_micros(F.col(last)) - F.unix_micros(F.col(first))
