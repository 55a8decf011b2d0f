"""What users say to the sink: which columns of their rows make a message, and how hard to push."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pyspark.sql.types import (
    DataType,
    DateType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from astyqueue.errors import BadSetting
from astyqueue.spark.options import Given, Place

_ID: Final = "id_column"
_BODIES: Final = ("body_column", "json_column")
#: Optional columns, and the kinds of values that each may have.
_KINDS: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "json_column": (StringType,),
    "due_column": (TimestampType,),
    "delay_column": (NumericType, StringType),
    "key_column": (StringType, IntegralType),
    "priority_column": (IntegralType,),
    "headers_column": (MapType,),
}
_NAMES: Final[Mapping[type[DataType], str]] = {IntegralType: "a whole number", NumericType: "a number"}
_KNOWN: Final = ("url", "queue", _ID, "body_column", *_KINDS, "task", "query", "once", "rate", "max_in_flight", "max_depth", "create")
_IN_FLIGHT: Final = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that make a message; `fields` are those of its body where that is an object of columns."""

    id: str
    body: str | None
    json: str | None
    due: str | None
    delay: str | None
    key: str | None
    priority: str | None
    headers: str | None
    fields: tuple[str, ...]

    @classmethod
    def of(cls, given: Given, schema: StructType) -> Self:
        """The columns that options name, of those there are; BadSetting names one that is not there or cannot be used."""
        id_ = given.needed(_ID, "the column with an id of your own for each row, the same when the row comes again")
        named = {name: given.text(name) for name in ("body_column", *_KINDS)}
        _check(schema, _ID, column=id_, kinds=(StringType, IntegralType))
        for option, column in named.items():
            if column is not None:
                _check(schema, option, column=column, kinds=_KINDS.get(option, (DataType,)))
        for pair in (_BODIES, ("due_column", "delay_column")):
            if all(named[option] for option in pair):
                message = f"give {pair[0]} or {pair[1]}, not both"
                raise BadSetting(message)
        used = {id_, *named.values()}
        fields = () if any(named[option] for option in _BODIES) else tuple(name for name in schema.names if name not in used or name == id_)
        return cls(id_, **{option.removesuffix("_column"): column for option, column in named.items()}, fields=fields)


def _check(schema: StructType, option: str, *, column: str, kinds: tuple[type[DataType], ...]) -> None:
    if column not in schema.names:
        message = f"option {option}={column!r}: there is no such column; there are {', '.join(schema.names)}"
        raise BadSetting(message)
    kind = schema[column].dataType
    if not isinstance(kind, kinds) or isinstance(kind, DateType):
        wanted = " or ".join(_NAMES.get(one, one.__name__.removesuffix("Type").lower()) for one in kinds)
        message = f"option {option}={column!r}: the column is {kind.simpleString()} and must be {wanted}"
        raise BadSetting(message)


@dataclass(frozen=True, slots=True)
class Sinking:
    """Where rows go, as what, and how fast.

    `query` is what ids are made from besides the row's own; the options' or drawn here, once for all tasks of one write. When
    all of it was sent `once`, it is not sent again. At
    most `in_flight` commits are under way in each task, which waits while more than `depth` messages can be claimed.
    """

    place: Place
    columns: Columns
    task: str | None
    query: str
    named: bool
    once: bool
    rate: float | None
    in_flight: int
    depth: int | None
    create: bool

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> Self:
        """What options say of rows like these."""
        given = Given(options, _KNOWN)
        query, once = given.text("query"), given.flag("once")
        if once and query is None:
            message = "option once: name what is to be sent once, with the option query"
            raise BadSetting(message)
        return cls(
            Place.of(given),
            Columns.of(given, schema),
            given.text("task"),
            query or secrets.token_hex(8),
            query is not None,
            once,
            given.rate(),
            given.number("max_in_flight", _IN_FLIGHT),
            given.number("max_depth", 0) or None,
            given.flag("create"),
        )
