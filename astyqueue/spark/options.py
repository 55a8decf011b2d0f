"""What users say to the data source: options as text, checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, unquote

from astyqueue.clock import Clock, SystemClock
from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput, BadSetting
from astyqueue.instants import instant_of
from astyqueue.spark.tables import ENTRIES, TABLES
from astyqueue.stores.location import locate

URL: Final = "ASTYQUEUE_URL"
#: What Spark itself hands on with our options.
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_PLACE: Final = ("url", "queue")
_READING: Final = (*_PLACE, "table", "since", "until", "rows", "rate", "consistency")
_FOLLOWING: Final = (*_PLACE, "table", "since", "lag", "rows_per_batch", "rate", "failOnDataLoss")
#: What `consistency` may be: whether a read asks as many copies as the URL says, and not any one.
_CONSISTENCY: Final[Mapping[str, bool]] = {"one": False, "quorum": True}
_FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_SQLITE: Final = "sqlite:///"


class Given:
    """Options as they were given; `rows_per_batch` and `rowsPerBatch` are the same name."""

    def __init__(self, options: Mapping[str, str], known: Collection[str]) -> None:
        """Refuse names that mean nothing."""
        self._options = {_plain(name): value for name, value in options.items()}
        understood = {*map(_plain, known), *_SPARKS_OWN}
        if unknown := [name for name in options if _plain(name) not in understood]:
            message = f"the data source astyqueue has no option {', '.join(sorted(unknown))} here; its options are {', '.join(known)}"
            raise BadSetting(message)

    def text(self, name: str) -> str | None:
        """An option, if it was given."""
        return self._options.get(_plain(name)) or None

    def needed(self, name: str, hint: str) -> str:
        """An option that must be given."""
        value = self.text(name)
        if value is None:
            message = f"the data source astyqueue needs the option {name!r}: {hint}"
            raise BadSetting(message)
        return value

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number."""
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < least:
            message = f"option {name}={text!r} is not a whole number from {least} up"
            raise BadSetting(message)
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        return self._one_of(name, _FLAGS, default=default)

    def exactly(self) -> bool:
        """Whether reads ask as many copies as the URL says; else any one answers."""
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
        """So many rows a second in each task; None for no limit."""
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
        """An instant: as it is written, or so long before now."""
        text = self.text(name)
        return None if text is None else _moment(name, text, now)

    def url(self) -> str:
        """The store's URL: the option's or the environment's; one that other processes understand."""
        return everywhere(
            self.text("url") or os.environ.get(URL) or self.needed("url", "sqlite:////var/work.db, cassandra://host/keyspace")
        )


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _moment(name: str, text: str, now: int) -> int:
    try:
        return now - as_microseconds(text)
    except BadInput:
        pass
    try:
        return instant_of(datetime.fromisoformat(text))
    except ValueError as error:
        message = f"option {name}={text!r} is no moment: write 2026-11-21T09:00:00Z, or 2h for two hours ago"
        raise BadSetting(message) from error


def everywhere(url: str) -> str:
    """The same store for workers, who run elsewhere: a relative path becomes absolute, and what is in memory is refused."""
    location = locate(url)
    if location.scheme == "memory":
        message = "Spark works in processes of its own, and what is in the memory of this one is not there: use sqlite:/// or cassandra://"
        raise BadSetting(message)
    if location.scheme != "sqlite" or not url.startswith(_SQLITE):
        return url
    path, mark, options = url.removeprefix(_SQLITE).partition("?")
    return f"{_SQLITE}{quote(str(Path.cwd() / unquote(path)))}{mark}{options}"


@dataclass(frozen=True, slots=True)
class Place:
    """Which queue, and where; whether it is read `exactly`, at the URL's consistency level, or any one replica may answer."""

    url: str = field(repr=False)
    queue: str
    exactly: bool = False

    @classmethod
    def of(cls, given: Given, *, exactly: bool = False) -> Self:
        """The place that options say."""
        return cls(given.url(), given.needed("queue", "the name of a queue"), exactly)


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read at once: of `since` up to `until` (microseconds), of these rows only, so many rows a second in each task."""

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
        return cls(Place.of(given, exactly=given.exactly()), table_of(options), since, until, rows, given.rate())


def table_of(options: Mapping[str, str]) -> str:
    """The table that options name."""
    table = {name.lower(): value for name, value in options.items()}.get("table", ENTRIES)
    if table not in TABLES:
        message = f"option table={table!r} is not one of {', '.join(TABLES)}"
        raise BadSetting(message)
    return table


@dataclass(frozen=True, slots=True)
class Following:
    """What to read as it comes: from `since` on, staying `lag` microseconds behind, about `most` rows a batch.

    `complete`: the stream fails where history is gone that it has not read.
    """

    place: Place
    since: int
    lag: int
    most: int | None
    rate: float | None
    complete: bool

    @classmethod
    def of(cls, options: Mapping[str, str], clock: Clock | None = None) -> Self:
        """What options say."""
        given = Given(options, _FOLLOWING)
        now = (clock or SystemClock()).now()
        since, lag = given.moment("since", now), as_microseconds(given.text("lag") or "60s")
        most = given.number("rows_per_batch", 0) or None
        place = Place.of(given, exactly=True)  # what a replica did not have yet would be passed over for good
        return cls(place, now if since is None else since, lag, most, given.rate(), given.flag("failOnDataLoss", default=True))
