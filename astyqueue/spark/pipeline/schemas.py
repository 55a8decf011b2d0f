"""The tables that the pipeline writes: each column is declared once, and checked whenever a table is written or read.

Lengths of time are microseconds, moments are UTC. Every table is partitioned by `queue` and `day`, a UTC date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from astyqueue.errors import AstyqueueError
from astyqueue.model.event import FLAT
from astyqueue.units import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: The Spark type of each kind of column.
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
#: The most characters of a name that a producer chooses, such as those of tasks and tenants.
NAME_LENGTH: Final = 200
#: A longer one is its first characters, this mark, and the first digits of its SHA-256: different names stay different.
CUT_MARK: Final = "\N{HORIZONTAL ELLIPSIS}"
CUT_DIGITS: Final = 16
CUT_LENGTH: Final = NAME_LENGTH - len(CUT_MARK) - CUT_DIGITS


class Field(NamedTuple):
    """A column: its name, its kind (`length` and `percentile` are microseconds), and its meaning."""

    name: str
    kind: str
    meaning: str


class SchemaDiffers(AstyqueueError):
    """A table has other columns than this version of the pipeline writes."""

    def __init__(self, table: str, place: str, differences: Iterable[str], *, lasting: bool = False) -> None:
        """Name the table, its place, and each difference; a `lasting` table cannot be built again."""
        self.table = table
        self.place = place
        self.differences = tuple(differences)
        if lasting:
            advice = (
                "use that version, or write to another folder; keep `events`: the queue may no longer have this history"
            )
        else:
            advice = (
                "write to another folder, or remove all tables but `events`, and `_manifest.json`, "
                "and run the pipeline again"
            )
        super().__init__(
            f"table {table} in {place} has other columns: {'; '.join(self.differences)}. Nothing was written. "
            f"If another version of astyqueue wrote it, {advice}"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a folder of Parquet files; `meaning` says what a row is or what the columns have.

    A table that cannot be built again has in `always` the columns that all of its files have; the others are null where
    missing.
    """

    name: str
    meaning: str
    fields: tuple[Field, ...]
    always: frozenset[str] = frozenset()

    @property
    def kinds(self) -> dict[str, str]:
        """Its columns and their Spark types, the columns of partitions last."""
        kinds = {field.name: _TYPES[field.kind] for field in self.fields}
        return {name: kind for name, kind in kinds.items() if name not in PARTITIONS} | {
            name: kinds[name] for name in PARTITIONS
        }

    @property
    def schema(self) -> StructType:
        """The columns as a Spark schema."""
        from pyspark.sql import types  # noqa: PLC0415 - a reader of the tables, such as the report, needs no Spark

        known = (
            types.StringType,
            types.LongType,
            types.BooleanType,
            types.TimestampType,
            types.DoubleType,
            types.DateType,
        )
        of_kind = {kind.simpleString(): kind for kind in (each() for each in known)}
        return types.StructType([types.StructField(name, of_kind[kind]) for name, kind in self.kinds.items()])

    def checked(self, frame: DataFrame, place: str) -> DataFrame:
        """The frame with its columns in order; SchemaDiffers if one is missing, unknown or of another type."""
        if differences := list(_differences(self.kinds, _kinds(frame.schema))):
            raise SchemaDiffers(self.name, place, differences)
        return frame.select(*self.schema.names)

    def check_stored(self, stored: StructType, place: str) -> None:
        """SchemaDiffers if columns of files differ from the declaration; columns of partitions are not in the files."""
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


_DAY: Final = Field("day", "date", "the day (UTC) that the row belongs to")
_QUEUE: Final = Field("queue", "text", "the queue")
_MEANINGS: Final = {
    "at": "when it happened",
    "kind": "sent, claimed, done, failed, retried, released, dead, redriven, cancelled, fired or skipped",
    "message": "the message's id",
    "key": "its key; the schedule's name if `kind` is fired or skipped",
    "attempt": "which attempt, from 1",
    "worker": "the worker that did it, or had the message leased",
    "host": "the worker's machine",
    "task": "the header `task`",
    "schedule": "the header `schedule`",
    "tenant": "the header `tenant`",
    "sent": "when the message was sent",
    "due": "when the message was first due",
    "claimed": "when this attempt was handed to the worker",
    "began": "when its handler began",
    "until": "hidden until then",
    "slot": "the occurrence of the schedule",
    "waited": "from due to began; first attempts only",
    "ran": "from began to the end of the attempt",
    "took": "from sent to done or dead",
    "why": "one word: the kind of a dead letter, the way of a release or a cancellation",
    "reason": "one line of text",
    "failure": "the reason without its variable parts",
    "trace": "the traceback, or a reference to the event of that minute that has the same",
    "lost": "the event was written, but did not happen; left out of every other table",
    "raw": "its kind's number and the stored value, if a newer version wrote more than was understood; else empty",
}
EVENTS: Final = Table(
    "events",
    "The events that were read from the history, each once. Rows are never removed, while queues expire their history.",
    (_QUEUE, _DAY, *(Field(name, kind, _MEANINGS[name]) for name, kind in FLAT.items() if name != "queue")),
    always=frozenset({"at", "kind", "message"}),
)
#: The columns that identify an event; an event that was written twice is the same in all of these.
APART: Final = ("queue", "at", "kind", "message", "key", "attempt", "slot")
_WHOSE: Final = (
    Field("message", "text", "the message's id"),
    Field("row", "text", "its row in the queue"),
    Field("key", "text", "its key"),
    Field("task", "text", "its task"),
    Field("schedule", "text", "the schedule that sent it"),
    Field("tenant", "text", "its tenant"),
    Field("sent", "instant", "when it was sent"),
    Field("due", "instant", "when it was first due"),
)
ATTEMPTS: Final = Table(
    "attempts",
    "A row for each attempt to handle a message, under the day it ended, or was claimed if no end is known. An attempt "
    "is cancelled if the message was deleted or replaced meanwhile, expired if its lease ran out, and open if no event "
    "follows the claim.",
    (
        _QUEUE,
        _DAY,
        *_WHOSE,
        Field("attempt", "number", "which attempt, from 1; the number of a released attempt is used again"),
        Field("worker", "text", "the worker"),
        Field("host", "text", "the worker's machine"),
        Field("claimed", "instant", "when it was handed to the worker"),
        Field("began", "instant", "when its handler began"),
        Field("ended", "instant", "when it ended; if it expired, when that was noticed"),
        Field("outcome", "text", "done, failed, released, dead, cancelled, expired or open"),
        Field("waited", "length", "from due to began, if no handler of the message had begun before"),
        Field("ran", "length", "from began to ended"),
        Field("why", "text", "how it ended, in one word"),
        Field("reason", "text", "why it failed"),
        Field("failure", "text", "the reason without its variable parts"),
    ),
)
MESSAGES: Final = Table(
    "messages",
    "A row for each message, under the day it was sent; its state is that after the last event that was read.",
    (
        _QUEUE,
        _DAY,
        *_WHOSE,
        Field("state", "text", "done, dead, cancelled, in flight, or waiting (also for a retry)"),
        Field("changed", "instant", "when the last event happened"),
        Field("event", "text", "the last event's kind"),
        Field("settled", "instant", "when it was done, dead or cancelled; null before that"),
        Field("took", "length", "from sent to done or dead"),
        Field("attempts", "number", "the number of its last attempt"),
        Field("waited", "length", "from due to the first time its handler began"),
        Field("ended", "instant", "when its last attempt with a handler ended"),
        Field("ran", "length", "how long that attempt ran"),
        Field("host", "text", "the machine of that attempt"),
        Field("failed_at", "instant", "when it failed, or died, for the last time"),
        Field("why", "text", "how it failed then, in one word"),
        Field("reason", "text", "why it failed then"),
        Field("failure", "text", "that reason without its variable parts"),
    ),
)
COUNTS: Final = (
    Field("sent", "number", "messages sent, also by schedules"),
    Field("done", "number", "messages done; a message that was done twice counts once, at the last time"),
    Field("dead", "number", "messages that became dead letters"),
    Field("retried", "number", "failures after which a retry was scheduled"),
    Field("released", "number", "messages that went back without spending an attempt"),
    Field("redriven", "number", "dead letters that were redriven"),
    Field("cancelled", "number", "messages deleted or replaced before they were done"),
    Field("attempts", "number", "attempts that ended"),
    Field("failed", "number", "attempts that failed, without those that expired"),
    Field("expired", "number", "attempts whose lease ran out, as when a worker was killed"),
    Field("ran", "length", "the running time of all attempts together"),
)
#: The percentiles of a length; they interpolate between the two nearest values.
PERCENTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
LENGTHS: Final = (
    ("wait", "waited", "from due to the first time a handler of the message began"),
    ("run", "ran", "from the start to the end of an attempt"),
    ("end", "took", "from sent to done or dead"),
)


def _spread(name: str, meaning: str) -> tuple[Field, ...]:
    """The percentiles of a length and its maximum."""
    percentiles = (
        Field(f"{name}_{part}", "percentile", f"{meaning}: {share:.0%} are not longer") for part, share in PERCENTILES
    )
    return *percentiles, Field(f"{name}_max", "length", f"{meaning}: the longest")


FACTS: Final = Table(
    "facts",
    "Counts and percentiles of a day, by grain: minute, hour, queue (the whole day), task, key, host, tenant or row.",
    (
        _QUEUE,
        _DAY,
        Field("grain", "text", "the grain: minute, hour, queue, task, key, host, tenant or row"),
        Field("member", "text", "which minute (by the moment it begins), hour, queue, task and so on"),
        Field("began", "instant", "when the minute or hour begins; null for other grains"),
        *COUNTS,
        *(field for name, _, meaning in LENGTHS for field in _spread(name, meaning)),
        Field("objective", "text", "the service level of the queue"),
        Field("objective_of", "number", "how many lengths the service level applies to"),
        Field("objective_met", "number", "how many of them met it"),
    ),
)
FAILURES: Final = Table(
    "failures",
    "Failures of a day, by task and cause.",
    (
        _QUEUE,
        _DAY,
        Field("task", "text", "the task"),
        Field("failure", "text", "the reason without its variable parts"),
        Field("times", "number", "the number of failures"),
        Field("messages", "number", "the number of messages that failed so"),
        Field("dead", "number", "the number of failures that made a dead letter"),
        Field("hosts", "number", "the number of machines"),
        Field("first", "instant", "the first time"),
        Field("last", "instant", "the last time"),
        Field("example", "text", "the reason in full, at the last time"),
    ),
)
#: Bounds of punctuality: a name and microseconds.
PUNCTUAL: Final = (("1s", SECOND), ("10s", 10 * SECOND), ("1m", 60 * SECOND))
SCHEDULES: Final = Table(
    "schedules",
    "The punctuality of schedules in a day: how late occurrences fired, and how late handlers of their messages began.",
    (
        _QUEUE,
        _DAY,
        Field("schedule", "text", "the schedule"),
        Field("fired", "number", "occurrences that sent a message"),
        Field("skipped", "number", "times that occurrences were skipped, one or several at a time"),
        *_spread("late", "from the occurrence to its firing"),
        Field("started", "number", "its messages whose handler first began; counted when that attempt ended"),
        *_spread("start", "from due to the first start of the handler"),
        *(Field(f"within_{name}", "number", f"of those that started, within {name}") for name, _ in PUNCTUAL),
    ),
)
LIVE: Final = Table(
    "live",
    "The facts of each minute, which the stream writes a few minutes after it; percentiles are approximate. Each event "
    "is evaluated alone: a message that is given back during its first attempt counts as waiting again.",
    FACTS.fields,
)
TABLES: Final = (EVENTS, ATTEMPTS, MESSAGES, FACTS, FAILURES, SCHEDULES, LIVE)


def shortened(name: str) -> str:
    """The name, cut if it is too long, as `marked` cuts it in Spark."""
    if len(name) <= NAME_LENGTH:
        return name
    return f"{name[:CUT_LENGTH]}{CUT_MARK}{hashlib.sha256(name.encode()).hexdigest()[:CUT_DIGITS]}"
