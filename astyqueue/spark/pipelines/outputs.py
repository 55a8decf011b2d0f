"""The tables that the pipeline writes: each column declared once, and checked whenever a table is written or read.

Lengths of time are microseconds, moments are UTC. Every table is partitioned by `queue` and `day`, a date of UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from astyqueue.errors import AstyqueueError
from astyqueue.model.event import FLAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: What a kind of column is in Spark's own words.
_TYPES: Final = {
    "text": "string",
    "number": "bigint",
    "flag": "boolean",
    "instant": "timestamp",
    "length": "bigint",
    "percentile": "double",
    "date": "date",
}
#: The folders of a table, outermost first.
PARTITIONS: Final = ("queue", "day")


class Field(NamedTuple):
    """A column: its name, its kind (`length` and `percentile` are microseconds), and what it tells."""

    name: str
    kind: str
    meaning: str


class SchemaDiffers(AstyqueueError):
    """A table has other columns than this version of the pipeline writes."""

    def __init__(self, table: str, place: str, differences: Iterable[str], *, lasting: bool = False) -> None:
        """Name the table, where it is, and each difference; one that is `lasting` cannot be built again."""
        self.table = table
        self.place = place
        self.differences = tuple(differences)
        advice = (
            "go on with that one, or write to another folder; keep `events`, for the queue may have forgotten what is in it"
            if lasting
            else "write to another folder, or remove all tables but `events`, and `_manifest.json`, and run the pipeline again"
        )
        super().__init__(
            f"table {table} in {place} is not as expected: {'; '.join(self.differences)}. Nothing was written. If another version of "
            f"astyqueue wrote it, {advice}"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a folder of Parquet files.

    One that cannot be built again says which columns its files have had from the first on; of others that they lack nothing is known.
    """

    name: str
    told: str
    fields: tuple[Field, ...]
    always: frozenset[str] = frozenset()

    @property
    def kinds(self) -> dict[str, str]:
        """Its columns and what they are in Spark's words, those of the partitions last."""
        kinds = {field.name: _TYPES[field.kind] for field in self.fields}
        return {name: kind for name, kind in kinds.items() if name not in PARTITIONS} | {name: kinds[name] for name in PARTITIONS}

    @property
    def schema(self) -> StructType:
        """The same as Spark has it."""
        from pyspark.sql import types  # noqa: PLC0415 - who only reads the tables, as the report does, needs no Spark

        known = (types.StringType, types.LongType, types.BooleanType, types.TimestampType, types.DoubleType, types.DateType)
        of_kind = {kind.simpleString(): kind for kind in (each() for each in known)}
        return types.StructType([types.StructField(name, of_kind[kind]) for name, kind in self.kinds.items()])

    def checked(self, frame: DataFrame, place: str) -> DataFrame:
        """The frame with the columns in their order; SchemaDiffers if one is missing, too many or of another type."""
        if differences := list(_differences(self.kinds, _kinds(frame.schema))):
            raise SchemaDiffers(self.name, place, differences)
        return frame.select(*self.schema.names)

    def check_stored(self, stored: StructType, place: str) -> None:
        """Hold what was found in files against the declaration; what is in the names of folders has no type there."""
        wanted = {*stored.names, *(self.always or self.kinds)} - set(PARTITIONS)
        files = {name: kind for name, kind in self.kinds.items() if name in wanted}
        found = {name: kind for name, kind in _kinds(stored).items() if name not in PARTITIONS}
        if differences := list(_differences(files, found)):
            raise SchemaDiffers(self.name, place, differences, lasting=bool(self.always))


def _kinds(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def _differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    for name, kind in wanted.items():
        if name not in found:
            yield f"column {name} ({kind}) is missing"
        elif found[name] != kind:
            yield f"column {name} is {found[name]}, not {kind}"
    yield from (f"column {name} is unknown" for name in found if name not in wanted)


_DAY: Final = Field("day", "date", "the day (UTC) this is told under")
_QUEUE: Final = Field("queue", "text", "the queue")
_TOLD: Final = {
    "at": "when it happened",
    "kind": "what happened: sent, claimed, done, failed, retried, released, dead, redriven, cancelled, fired, skipped",
    "message": "the message's id",
    "key": "its key; of fired and skipped the schedule's name",
    "attempt": "which attempt, from 1",
    "worker": "who did it, or had it in hand",
    "host": "the worker's machine",
    "task": "the header `task`",
    "schedule": "the header `schedule`",
    "tenant": "the header `tenant`",
    "sent": "when the message was sent",
    "due": "when it was due for the first time",
    "claimed": "when this attempt was handed to the worker",
    "began": "when its handler began",
    "until": "hidden until then",
    "slot": "the slot of the schedule",
    "waited": "from due to began, of first attempts",
    "ran": "from began to the end of the attempt",
    "took": "from sent to done or dead",
    "why": "one word: of a dead letter its kind, of a release or a cancellation how",
    "reason": "a line for people",
    "failure": "the reason without what differs from one time to the next",
    "trace": "the traceback, or which event of that minute has the same",
    "lost": "written, but it did not come about; left out of every other table",
    "raw": "the number of its kind and what was written, if that is more than the version understood that read it; else empty",
}
EVENTS: Final = Table(
    "events",
    "What was read from the history, each event once. It is only ever added to: a queue forgets its history, this table does not.",
    (_QUEUE, _DAY, *(Field(name, kind, _TOLD[name]) for name, kind in FLAT.items() if name != "queue")),
    always=frozenset({"at", "kind", "message"}),
)
#: By what two events are told apart; one that was written twice is the same in all of these.
APART: Final = ("queue", "at", "kind", "message", "key", "attempt", "slot")
_WHOSE: Final = (
    Field("message", "text", "the message's id"),
    Field("row", "text", "the row of the queue that it lies in"),
    Field("key", "text", "its key"),
    Field("task", "text", "its task"),
    Field("schedule", "text", "the schedule that sent it"),
    Field("tenant", "text", "its tenant"),
    Field("sent", "instant", "when it was sent"),
    Field("due", "instant", "when it was due for the first time"),
)
ATTEMPTS: Final = Table(
    "attempts",
    "A row for each time that a message was handed to a worker, under the day it ended, or was claimed if no end is known.",
    (
        _QUEUE,
        _DAY,
        *_WHOSE,
        Field("attempt", "number", "which attempt, from 1; one that was released is given again"),
        Field("worker", "text", "who had it"),
        Field("host", "text", "the worker's machine"),
        Field("claimed", "instant", "when it was handed to the worker"),
        Field("began", "instant", "when its handler began"),
        Field("ended", "instant", "when it ended; of an expired one when that was noticed, if it was"),
        Field(
            "outcome",
            "text",
            "done, failed, released, dead, cancelled (its message was deleted or replaced meanwhile), expired (its lease ran out) or open "
            "(nothing is known after the claim)",
        ),
        Field("waited", "length", "from due to began, if no handler of the message had begun before"),
        Field("ran", "length", "from began to ended"),
        Field("why", "text", "one word on how it ended"),
        Field("reason", "text", "why it failed"),
        Field("failure", "text", "the reason without what differs from one time to the next"),
    ),
)
MESSAGES: Final = Table(
    "messages",
    "A row for each message, under the day it was sent; as it stood at the last event that was read.",
    (
        _QUEUE,
        _DAY,
        *_WHOSE,
        Field("state", "text", "done, dead, cancelled, in flight, or waiting (also: to be tried again)"),
        Field("changed", "instant", "when the last event happened"),
        Field("event", "text", "the last event's kind"),
        Field("settled", "instant", "when it was done, dead or cancelled; none as long as it is not"),
        Field("took", "length", "from sent to done or dead"),
        Field("attempts", "number", "the number of its last attempt"),
        Field("waited", "length", "from due to the first time its handler began"),
        Field("ended", "instant", "when its last attempt ended that a handler had begun"),
        Field("ran", "length", "how long that attempt ran"),
        Field("host", "text", "where"),
        Field("failed_at", "instant", "when it failed, or died, for the last time"),
        Field("why", "text", "one word on that"),
        Field("reason", "text", "why"),
        Field("failure", "text", "the reason without what differs from one time to the next"),
    ),
)
COUNTS: Final = (
    Field("sent", "number", "messages sent, also by schedules"),
    Field("done", "number", "messages done; one that was done twice counts once, the last time"),
    Field("dead", "number", "messages that became dead letters"),
    Field("retried", "number", "failures after which the message was to be tried again"),
    Field("released", "number", "messages that went back at no cost of an attempt"),
    Field("redriven", "number", "dead letters that were sent on their way again"),
    Field("cancelled", "number", "messages deleted or replaced before they were done"),
    Field("attempts", "number", "attempts that ended"),
    Field("failed", "number", "attempts that failed, without those that expired"),
    Field("expired", "number", "attempts whose lease ran out, as when a worker was killed"),
    Field("ran", "length", "the time all attempts ran, together: what this cost"),
)
#: How a length is summed up: percentiles interpolate between the two nearest values.
PARTS: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
LENGTHS: Final = (
    ("wait", "waited", "from due to the first time a handler of the message began"),
    ("run", "ran", "from the start to the end of an attempt"),
    ("end", "took", "from sent to done or dead"),
)
_SUMMED: Final = tuple(
    field
    for name, _, told in LENGTHS
    for field in (
        *(Field(f"{name}_{part}", "percentile", f"{told}: {share:.0%} are not longer") for part, share in PARTS),
        Field(f"{name}_max", "length", f"{told}: the longest"),
    )
)
FACTS: Final = Table(
    "facts",
    "Counts and percentiles of a day by one thing each: by minute, hour, queue (the whole day), task, key, host, tenant, row.",
    (
        _QUEUE,
        _DAY,
        Field("grain", "text", "by what: minute, hour, queue, task, key, host, tenant or row"),
        Field("member", "text", "which one: of minutes and hours the moment they begin"),
        Field("began", "instant", "the same moment as a moment; none for other grains"),
        *COUNTS,
        *_SUMMED,
        Field("objective", "text", "the service level that was asked for"),
        Field("objective_of", "number", "how many it is about"),
        Field("objective_met", "number", "how many of them met it"),
    ),
)
FAILURES: Final = Table(
    "failures",
    "What went wrong in a day, by task and cause.",
    (
        _QUEUE,
        _DAY,
        Field("task", "text", "the task"),
        Field("failure", "text", "the reason without what differs from one time to the next"),
        Field("times", "number", "how often it happened"),
        Field("messages", "number", "to how many messages"),
        Field("dead", "number", "how many became dead letters by it"),
        Field("hosts", "number", "on how many machines"),
        Field("first", "instant", "the first time"),
        Field("last", "instant", "the last time"),
        Field("example", "text", "the reason in full, the last time"),
    ),
)
#: Bounds of punctuality: a name and microseconds.
PUNCTUAL: Final = (("1s", 1_000_000), ("10s", 10_000_000), ("1m", 60_000_000))
SCHEDULES: Final = Table(
    "schedules",
    "How punctual schedules were in a day: when slots were fired, and when the messages sent by them began.",
    (
        _QUEUE,
        _DAY,
        Field("schedule", "text", "the schedule"),
        Field("fired", "number", "slots that sent a message"),
        Field("skipped", "number", "how often slots were skipped, one or several at a time"),
        *(Field(f"late_{part}", "percentile", f"from the slot to its firing: {share:.0%} are not longer") for part, share in PARTS),
        Field("late_max", "length", "from the slot to its firing: the longest"),
        Field("started", "number", "messages of it whose handler had begun for the first time, counted when that attempt ended"),
        *(
            Field(f"start_{part}", "percentile", f"from due to the first start of the handler: {share:.0%} are not longer")
            for part, share in PARTS
        ),
        Field("start_max", "length", "from due to the first start of the handler: the longest"),
        *(Field(f"within_{name}", "number", f"of those that started, within {name}") for name, _ in PUNCTUAL),
    ),
)
LIVE: Final = Table(
    "live",
    "The facts of each minute as the stream tells them, a few minutes after it; columns as those of `facts`, percentiles approximate. "
    "Each event is judged by itself: a message that is given back before its first attempt is over waits again.",
    FACTS.fields,
)
TABLES: Final = (EVENTS, ATTEMPTS, MESSAGES, FACTS, FAILURES, SCHEDULES, LIVE)
