"""Options of the data source and of its writer: text from users, checked before anything is opened."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from pyspark.sql.types import (
    DataType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from astyqueue.clock import Clock, SystemClock
from astyqueue.durations import as_microseconds, parsed_past
from astyqueue.errors import BadInput, BadSetting
from astyqueue.spark.schemas import ENTRIES, TABLES
from astyqueue.stores.url import URL_VARIABLE, locate

#: Options of Spark itself that it passes on with ours.
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_PLACE: Final = ("url", "queue")
_READING: Final = (*_PLACE, "table", "since", "until", "rows", "rate", "consistency")
_FOLLOWING: Final = (*_PLACE, "table", "since", "lag", "rows_per_batch", "rate", "failOnDataLoss")
#: Values of `consistency`: whether a read uses the consistency level of the URL, or any one replica answers.
_CONSISTENCY: Final[Mapping[str, bool]] = {"one": False, "quorum": True}
_FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_SQLITE: Final = "sqlite:///"
_ID: Final = "id_column"
_BODIES: Final = ("body_column", "json_column")
#: Optional columns, and the types that each may have.
_KINDS: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "json_column": (StringType,),
    "due_column": (TimestampType,),
    "delay_column": (NumericType, StringType),
    "key_column": (StringType, IntegralType),
    "priority_column": (IntegralType,),
    "headers_column": (MapType,),
}
_NAMES: Final[Mapping[type[DataType], str]] = {IntegralType: "a whole number", NumericType: "a number"}
_KNOWN: Final = (
    "url",
    "queue",
    _ID,
    "body_column",
    *_KINDS,
    "task",
    "query",
    "once",
    "rate",
    "max_in_flight",
    "max_depth",
    "create",
)
_IN_FLIGHT: Final = 4


class Given:
    """The options that the user gave; `rows_per_batch` and `rowsPerBatch` are the same name."""

    def __init__(self, options: Mapping[str, str], known: Collection[str]) -> None:
        """BadSetting for names that are not in `known`."""
        self._options = {_plain(name): value for name, value in options.items()}
        understood = {*map(_plain, known), *_SPARKS_OWN}
        if unknown := [name for name in options if _plain(name) not in understood]:
            message = (
                f"the data source astyqueue has no option {', '.join(sorted(unknown))} here; "
                f"its options are {', '.join(known)}"
            )
            raise BadSetting(message)

    def text(self, name: str) -> str | None:
        """An option; None if it is missing or empty."""
        return self._options.get(_plain(name)) or None

    def needed(self, name: str, hint: str) -> str:
        """A required option; BadSetting with this hint if it is missing."""
        value = self.text(name)
        if value is None:
            message = f"the data source astyqueue needs the option {name!r}: {hint}"
            raise BadSetting(message)
        return value

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number from `least` up, else BadSetting; `default` if it is missing."""
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < least:
            message = f"option {name}={text!r} is not a whole number from {least} up"
            raise BadSetting(message)
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value; BadSetting if it is neither true nor false."""
        return self._one_of(name, _FLAGS, default=default)

    def by_quorum(self) -> bool:
        """Whether reads use the consistency level of the URL; else any one replica answers."""
        return self._one_of("consistency", _CONSISTENCY, default=False)

    def _one_of(self, name: str, meanings: Mapping[str, bool], *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in meanings:
            message = f"option {name}={text!r} is not one of {', '.join(meanings)}"
            raise BadSetting(message)
        return meanings[text.lower()]

    def rate(self) -> float | None:
        """Rows a second in each task; None for no limit."""
        text = self.text("rate")
        try:
            rate = None if text is None else float(text)
        except ValueError:
            rate = 0.0
        if rate is not None and not rate > 0:
            message = f"option rate={text!r} is not a number of rows a second, greater than zero"
            raise BadSetting(message)
        return rate

    def moment(self, name: str, now: int) -> int | None:
        """A moment (microseconds), written as a timestamp or as a duration before now; None if it is missing."""
        text = self.text(name)
        return None if text is None else _parsed(name, lambda: parsed_past(text, now))

    def duration(self, name: str, default: str) -> int:
        """A duration (microseconds), else BadSetting; `default` if it is missing."""
        text = self.text(name) or default
        return _parsed(name, lambda: as_microseconds(text))

    def url(self) -> str:
        """The store's URL, from the option or the environment, in a form that is valid in other processes too."""
        return everywhere(
            self.text("url")
            or os.environ.get(URL_VARIABLE)
            or self.needed("url", "sqlite:////var/work.db, cassandra://host/keyspace")
        )


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _parsed(name: str, parse: Callable[[], int]) -> int:
    try:
        return parse()
    except BadInput as error:
        message = f"option {name}: {error}"
        raise BadSetting(message) from error


def everywhere(url: str) -> str:
    """The URL of the same store for Spark's workers, with an absolute path; BadSetting for a store in memory."""
    location = locate(url)
    if location.scheme == "memory":
        message = "Spark's workers do not see a store in the memory of this process: use sqlite:/// or cassandra://"
        raise BadSetting(message)
    if location.scheme != "sqlite" or not location.place.startswith("/"):
        return url
    _, mark, options = url.partition("?")
    return f"{_SQLITE}{quote(str(Path.cwd() / location.place[1:]))}{mark}{options}"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue and its store. `by_quorum`: reads use the URL's consistency level; else any one replica may answer."""

    url: str = field(repr=False)
    queue: str
    by_quorum: bool = False

    @classmethod
    def of(cls, given: Given, *, by_quorum: bool = False) -> Self:
        """The place that the options name; BadSetting if one is missing."""
        return cls(given.url(), given.needed("queue", "the name of a queue"), by_quorum)


@dataclass(frozen=True, slots=True)
class BatchReadOptions:
    """A batch read from `since` up to `until` (microseconds), these rows (empty: all), `rate` a second in each task."""

    place: Place
    table: str
    since: int | None
    until: int | None
    rows: tuple[str, ...]
    rate: float | None

    @classmethod
    def of(cls, options: Mapping[str, str], clock: Clock | None = None) -> Self:
        """What options say."""
        given = Given(options, _READING)
        now = (clock or SystemClock()).now()
        rows = tuple(row.strip() for row in (given.text("rows") or "").split(",") if row.strip())
        since, until = given.moment("since", now), given.moment("until", now)
        return cls(
            place=Place.of(given, by_quorum=given.by_quorum()),
            table=table_of(options),
            since=since,
            until=until,
            rows=rows,
            rate=given.rate(),
        )


def table_of(options: Mapping[str, str]) -> str:
    """The table that options name."""
    table = {name.lower(): value for name, value in options.items()}.get("table", ENTRIES)
    if table not in TABLES:
        message = f"option table={table!r} is not one of {', '.join(TABLES)}"
        raise BadSetting(message)
    return table


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """A streaming read, `lag` microseconds behind: about `most` rows a batch, `rate` a second a task.

    `since`: where it begins, as text: a moment, or a duration before now; None: now. `complete`: the stream fails if
    history that it has not read has expired.
    """

    place: Place
    since: str | None
    lag: int
    most: int | None
    rate: float | None
    complete: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """What options say."""
        given = Given(options, _FOLLOWING)
        given.moment("since", 0)  # BadSetting if it is none
        lag = given.duration("lag", "60s")
        most = given.number("rows_per_batch", 0) or None
        place = Place.of(given, by_quorum=True)  # an event that the one replica lacks would be skipped for good
        return cls(
            place=place,
            since=given.text("since"),
            lag=lag,
            most=most,
            rate=given.rate(),
            complete=given.flag("failOnDataLoss", default=True),
        )

    def begin(self, now: int) -> int:
        """The moment (microseconds) at which a stream begins that has no checkpoint yet."""
        return now if self.since is None else parsed_past(self.since, now)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of which a message is made; without a body column the body is an object of the columns `fields`."""

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
        """The columns that the options name; BadSetting names one that is missing in the schema or has a wrong type."""
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
        fields = (
            ()
            if any(named[option] for option in _BODIES)
            else tuple(name for name in schema.names if name not in used or name == id_)
        )
        return cls(id_, **{option.removesuffix("_column"): column for option, column in named.items()}, fields=fields)


def _check(schema: StructType, option: str, *, column: str, kinds: tuple[type[DataType], ...]) -> None:
    if column not in schema.names:
        message = f"option {option}={column!r}: there is no such column; the columns are {', '.join(schema.names)}"
        raise BadSetting(message)
    kind = schema[column].dataType
    if not isinstance(kind, kinds):
        wanted = " or ".join(_NAMES.get(one, one.__name__.removesuffix("Type").lower()) for one in kinds)
        message = f"option {option}={column!r}: the column is {kind.simpleString()} and must be {wanted}"
        raise BadSetting(message)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The target of rows, how they become messages, and how fast.

    Ids are made of `query` and the row's own id. Default of `query`: random, the same in all tasks of one write;
    `named`: the user gave it. `once`: a query that was sent completely is not sent again. Each task has at most
    `in_flight` commits under way, and waits while more than `depth` messages can be claimed.
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
        """The options of a write of rows with this schema; BadSetting if they do not fit it."""
        given = Given(options, _KNOWN)
        query, once = given.text("query"), given.flag("once")
        if once and query is None:
            message = "option once: name what is sent once with the option query"
            raise BadSetting(message)
        return cls(
            place=Place.of(given),
            columns=Columns.of(given, schema),
            task=given.text("task"),
            query=query or secrets.token_hex(8),
            named=query is not None,
            once=once,
            rate=given.rate(),
            in_flight=given.number("max_in_flight", _IN_FLIGHT),
            depth=given.number("max_depth", 0) or None,
            create=given.flag("create"),
        )
