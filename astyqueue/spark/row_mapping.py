"""Turning rows into messages: a row gets the same id and the same place each time it is sent."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

import pyarrow as pa
from pydantic_core import from_json, to_jsonable_python

from astyqueue import ids
from astyqueue.clock import instant
from astyqueue.errors import BadInput, BadSetting
from astyqueue.model.body import call_body
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message, MessageEncoder, PreparedMessage
from astyqueue.model.settings import BY_KEY, FUNCTION, SINGLE, Settings
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.idempotent import BatchRecord, IdempotentMessage, idempotent_from_encoded, record_id
from astyqueue.spark.options import WriteOptions
from astyqueue.units import SECOND

_SHOWN: Final = 80


class Addressed(NamedTuple):
    """A message with the row that it goes to, before and after its composition."""

    row: str
    message: IdempotentMessage
    prepared: PreparedMessage

    @property
    def id(self) -> MessageId:
        """The id that the message will have in the queue."""
        return MessageId(self.row, self.message.priority, self.message.id)


class Addressing:
    """Makes messages of the rows of one batch of a source.

    They count as sent when the batch was first begun, so that delays start at the same moment, and ids are the same,
    when the batch is sent again.
    """

    def __init__(self, settings: Settings, options: WriteOptions, *, source: str, begun: BatchRecord) -> None:
        """Address the rows of a batch of `source`; BadSetting if the queue has a placement function."""
        if settings.layout.placement == FUNCTION:
            message = f"queue {settings.name!r} uses a custom placement function, which Spark lacks: send from a client"
            raise BadSetting(message)
        self._ring = Ring(settings.name, settings.layout)
        self._encoder = MessageEncoder(settings, begun.moment)
        self._columns = options.columns
        self._task = options.task
        self._source = source
        self._begun = begun.moment
        self._usual = Message(None)
        self._remembered = settings.behaviour.deduplication_us // SECOND

    def of(self, batch: pa.RecordBatch) -> Iterator[Addressed]:
        """The messages of a batch of rows, in its order; BadInput names the first row that cannot be sent."""
        columns = {name: _values(batch.column(name)) for name in batch.schema.names}
        for place, record in enumerate(columns[self._columns.id]):
            if record is None:
                message = f"a row has no {self._columns.id}: without an id it would be sent again at every retry"
                raise BadInput(message)
            try:
                yield self._addressed(str(record), {name: values[place] for name, values in columns.items()})
            except BadInput as error:
                message = f"the row with {self._columns.id} {record!r:.{_SHOWN}} cannot be sent: {error}"
                raise BadInput(message) from error

    def _addressed(self, record: str, row: dict[str, object]) -> Addressed:
        one = self._encoder.prepare(self._body(row), self._options(row))
        id_ = record_id(self._source, record, due=one.due, begun=self._begun)
        return Addressed(
            self._row(one, record, ids.moment(id_)),
            idempotent_from_encoded(one.value, one.priority, id_, seconds=self._remembered),
            one,
        )

    def _row(self, one: PreparedMessage, record: str, moment: int) -> str:
        """The row that the queue's placement gives; without a key by a hash of the record's id, so always the same."""
        layout = self._ring.layout
        if layout.placement == SINGLE:
            return self._ring.home(0)
        if one.key is None:
            return self._ring.row(moment, zlib.crc32(record.encode()) % layout.concurrency_shards)
        shard = self._ring.shard_of_key(one.key)
        return self._ring.home(shard) if layout.placement == BY_KEY else self._ring.row(moment, shard)

    def _body(self, row: dict[str, object]) -> object:
        columns = self._columns
        if columns.json is not None:
            body = _parsed(row[columns.json])
        elif columns.body is not None:
            body = _plain(row[columns.body])
        else:
            body = {name: _plain(row[name]) for name in columns.fields}
        return body if self._task is None else call_body(body) or call_body([body])

    def _options(self, row: dict[str, object]) -> Message:
        columns = self._columns
        due, delay, key = (row[name] if name else None for name in (columns.due, columns.delay, columns.key))
        priority = row[columns.priority] if columns.priority else None
        headers = row[columns.headers] if columns.headers else None
        if (
            due is None
            and delay is None
            and key is None
            and priority is None
            and headers is None
            and self._task is None
        ):
            return self._usual
        sent_headers = dict(headers) if isinstance(headers, dict) else {}
        if self._task is not None:
            sent_headers["task"] = self._task
        return Message(
            None,
            key=None if key is None else str(key),
            at=self._due(due),
            delay=float(delay) if isinstance(delay, Decimal) else delay,  # type: ignore[arg-type]  # a number or text, as its column was checked to be
            priority=priority or 0,  # type: ignore[arg-type]  # a whole number, as its column was checked to be
            headers=sent_headers or None,
        )

    def _due(self, due: object) -> datetime | None:
        """The due time, or the start of the batch if that is later."""
        return max(due, instant(self._begun)) if isinstance(due, datetime) else None


def _parsed(text: object) -> object:
    try:
        return None if text is None else from_json(str(text), allow_inf_nan=False)
    except ValueError as error:
        message = f"its body is not JSON ({error})"
        raise BadInput(message) from error


def _values(column: pa.Array) -> list[object]:
    kind = _readable(column.type)
    known = column if kind == column.type else column.cast(kind)
    values: list[object] = known.to_pylist(maps_as_pydicts="strict")
    return values


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type with UTC in place of a time zone that Java knows and Python does not, such as that of its session."""
    if pa.types.is_timestamp(kind):
        return kind if _is_zone(kind.tz) else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_readable(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(*(part.with_type(_readable(part.type)) for part in (kind.key_field, kind.item_field)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    return kind


def _is_zone(name: str | None) -> bool:
    try:
        return name is None or pa.lib.string_to_tzinfo(name) is not None
    except (LookupError, ValueError):
        return False


def _plain(value: object) -> object:
    """A value of JSON's own types: timestamps and decimals become text, bytes become base64."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return to_jsonable_python(_without_bytes(value), fallback=str)


def _without_bytes(value: object) -> object:
    """The value with base64 in place of bytes, wherever they are; pydantic's own base64 has letters for URLs."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {_without_bytes(key): _without_bytes(part) for key, part in value.items()}
    return [_without_bytes(part) for part in value] if isinstance(value, list) else value
