"""The tables that Spark reads: their columns, and how records are made of messages and events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from astyqueue.errors import BadInput
from astyqueue.model.event import FLAT, Event
from astyqueue.model.views import DeadLetter, Found, Stored

ENTRIES: Final = "entries"
DEAD: Final = "dead"
HISTORY: Final = "history"

_TEXTS: Final = MapType(StringType(), StringType())
_ARROW: Final[Mapping[DataType, pa.DataType]] = {
    StringType(): pa.string(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    BooleanType(): pa.bool_(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
    _TEXTS: pa.map_(pa.string(), pa.string()),
}
_PLAIN: Final[Mapping[str, DataType]] = {
    "text": StringType(),
    "number": LongType(),
    "flag": BooleanType(),
    "instant": TimestampType(),
    "length": LongType(),
}
_MESSAGE: Final[Mapping[str, DataType]] = {
    "id": StringType(),
    "queue": StringType(),
    "row": StringType(),
    "priority": IntegerType(),
    "key": StringType(),
    "headers": _TEXTS,
    "sent": TimestampType(),
    "due": TimestampType(),
    "expires": TimestampType(),
    "body": StringType(),
    "problem": StringType(),
}
_COLUMNS: Final[Mapping[str, Mapping[str, DataType]]] = {
    ENTRIES: {
        **_MESSAGE,
        "standing": StringType(),
        "until": TimestampType(),
        "attempts": IntegerType(),
        "holder": StringType(),
        "reason": StringType(),
    },
    DEAD: {
        **_MESSAGE,
        "died": TimestampType(),
        "kind": StringType(),
        "attempts": IntegerType(),
        "reason": StringType(),
    },
    HISTORY: {name: _PLAIN[kind] for name, kind in FLAT.items()},
}
TABLES: Final = tuple(_COLUMNS)
#: Attributes of an event that are objects; the column has them as text.
_AS_TEXT: Final = frozenset({"kind", "message"})

Record = Mapping[str, object]


def schema_of(table: str) -> StructType:
    """The columns of a table, in their order."""
    return StructType([StructField(name, kind) for name, kind in _COLUMNS[table].items()])


def checked(table: str, asked: StructType) -> StructType:
    """The requested columns, if the table has them with these types; BadInput names the first that it does not have."""
    columns = _COLUMNS[table]
    for field in asked.fields:
        if columns.get(field.name) != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in columns.items())
            message = (
                f"table {table} has no column {field.name} {field.dataType.simpleString()}; its columns are {known}"
            )
            raise BadInput(message)
    return asked


class Shaping:
    """Makes Arrow batches of some columns of a table."""

    def __init__(self, asked: StructType) -> None:
        """Make these columns, in this order."""
        self._schema = pa.schema(
            [pa.field(field.name, _ARROW[field.dataType], nullable=True) for field in asked.fields]
        )

    def batch(self, records: Sequence[Record]) -> pa.RecordBatch:
        """One batch of these records, by the names of the columns."""
        return self._batch(lambda name: [record[name] for record in records])

    def events(self, events: Sequence[Event]) -> pa.RecordBatch:
        """One batch of these events, for `history`; column by column, at half the cost of a record for each event."""
        return self._batch(
            lambda name: _texts(events, name) if name in _AS_TEXT else [getattr(event, name) for event in events]
        )

    def _batch(self, column: Callable[[str], Sequence[object]]) -> pa.RecordBatch:
        columns = [pa.array(column(field.name), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def found_record(found: Found) -> Record:
    """A message and its status, for `entries`."""
    return {
        **_message_record(found),
        "standing": found.standing.value,
        "until": found.hidden_until,
        "attempts": found.spent,
        "holder": found.holder or None,
        "reason": found.reason or None,
    }


def dead_record(letter: DeadLetter) -> Record:
    """A dead letter, for `dead`."""
    return {
        **_message_record(letter),
        "died": letter.died,
        "kind": letter.kind,
        "attempts": letter.attempts,
        "reason": letter.reason,
    }


def _texts(events: Sequence[Event], name: str) -> list[str | None]:
    values = (getattr(event, name) for event in events)
    return [None if value is None else str(value) for value in values]


def _message_record(message: Stored) -> Record:
    envelope = message.content.envelope
    return {
        "id": str(message.id),
        "queue": message.id.queue,
        "row": message.id.row,
        "priority": message.id.priority,
        "key": message.key,
        "headers": list(message.headers.items()),
        "sent": envelope.sent if envelope else None,
        "due": message.id.moment,
        "expires": envelope.expires if envelope else None,
        "body": json.dumps(message.body, ensure_ascii=False) if envelope else None,
        "problem": message.problem,
    }
