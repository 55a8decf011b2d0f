"""Reads triggers, custom ones included, from JSON; missing, invalid and unknown fields are errors."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, TypeVar

from pydantic import JsonValue

from astyqueue.clock import instant, microseconds
from astyqueue.durations import EARLIEST, LATEST
from astyqueue.errors import BadInput, UnknownTrigger
from astyqueue.triggers.base import Trigger
from astyqueue.triggers.calendars import Calendar, Days, Times
from astyqueue.triggers.composite import AnyOf, Excluding
from astyqueue.triggers.cron.cron import Cron
from astyqueue.triggers.custom import Custom, Occurrences
from astyqueue.triggers.simple import Every, Once

T = TypeVar("T")
_FIRST: Final = microseconds(datetime.min.replace(tzinfo=UTC))
_LAST: Final = microseconds(datetime.max.replace(tzinfo=UTC))


class Triggers:
    """A registry of custom triggers, which also reads triggers from JSON."""

    def __init__(self) -> None:
        """Start without custom triggers; those of astyqueue need no registration."""
        self._own: dict[str, Occurrences] = {}

    def register(self, name: str) -> Callable[[Occurrences], Callable[..., Custom]]:
        """A decorator for a function that returns the first occurrence later than an aware datetime, or None.

        It replaces the function by one that makes triggers: call it with the other arguments, by name. BadInput if the
        name is taken.
        """
        if name in self._own:
            problem = f"a trigger named {name!r} is registered already: give another name"
            raise BadInput(problem)

        def registered(occurrences: Occurrences) -> Callable[..., Custom]:
            self._own[name] = occurrences
            return lambda **arguments: Custom(name, occurrences, arguments)

        return registered

    def read(self, document: JsonValue) -> Trigger:
        """A trigger equal to the one whose `document()` this is.

        BadInput for an invalid document, `UnknownTrigger` for a name that is not registered here.
        """
        given = _Given(document)
        kind = given.text("kind")
        if kind == Custom.kind:
            return given.finished(self._custom(given))
        if kind == AnyOf.kind:
            return given.finished(AnyOf(*(self.read(member) for member in given.several("triggers"))))
        if kind == Excluding.kind:
            calendars = [_calendar(calendar) for calendar in given.several("calendars")]
            return given.finished(Excluding(self.read(given.take("trigger")), *calendars))
        if kind not in _READERS:
            given.refuse(f"its kind is {kind!r}, which this astyqueue does not know")
        return given.finished(_READERS[kind](given))

    def _custom(self, given: _Given) -> Custom:
        """A custom trigger, with the function that is registered under its name."""
        name, arguments = given.text("name"), given.take("arguments")
        if not isinstance(arguments, dict):
            given.refuse("its arguments are not a JSON object")
        if name not in self._own:
            raise UnknownTrigger(name)
        return Custom(name, self._own[name], arguments)


class _Given:
    """A JSON object whose fields are taken one by one, to find missing, invalid and unknown fields."""

    def __init__(self, document: JsonValue) -> None:
        self._document = document
        self._left = dict(document) if isinstance(document, dict) else {}

    def finished(self, value: T) -> T:
        """The value; BadInput if fields are left over."""
        if self._left:
            self.refuse(f"it has fields that this astyqueue does not know: {', '.join(sorted(self._left))}")
        return value

    def refuse(self, why: str, cause: Exception | None = None) -> NoReturn:
        """Raise BadInput with the problem of the document."""
        problem = f"no trigger can be read from {reprlib.repr(self._document)}: {why}"
        raise BadInput(problem) from cause

    def take(self, name: str) -> JsonValue:
        """A field, None if it is missing."""
        return self._left.pop(name, None)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._left

    def text(self, name: str) -> str:
        """A field that holds text."""
        value = self.take(name)
        if not isinstance(value, str):
            self.refuse(f"{name} is {value!r}, not text")
        return value

    def several(self, name: str) -> list[JsonValue]:
        """A field that holds a list."""
        value = self.take(name)
        if not isinstance(value, list):
            self.refuse(f"{name} is {value!r}, not a list")
        return value

    def number(self, name: str) -> int | None:
        """A field that holds a whole number, None if it is missing."""
        value = self.take(name)
        if value is not None and type(value) is not int:
            self.refuse(f"{name} is {value!r}, not a whole number")
        return value

    def moment(self, name: str) -> datetime | None:
        """A field with microseconds since 1970. Earlier releases stored the year 9999 for the last valid instant."""
        value = self.number(name)
        if value is None:
            return None
        if not _FIRST <= value <= _LAST:
            self.refuse(f"{name} is {value}, outside the years 1 to 9999")
        return instant(min(max(value, EARLIEST), LATEST))

    def duration(self, name: str) -> timedelta | None:
        """A field that holds microseconds."""
        value = self.number(name)
        try:
            return None if value is None else timedelta(microseconds=value)
        except OverflowError as error:
            self.refuse(f"{name} is {value}, longer than any duration", error)


def _once(given: _Given) -> Once:
    return Once(given.moment("at_us"), delay=given.duration("delay_us"))


def _every(given: _Given) -> Every:
    return Every(
        given.duration("interval_us") or 0,
        start=given.moment("start_us"),
        delay=given.duration("delay_us"),
        end=given.moment("end_us"),
        count=given.number("count"),
        jitter=given.duration("jitter_us") or 0,
        seed=given.text("seed") if given.has("seed") else None,
    )


def _cron(given: _Given) -> Cron:
    form = given.text("form")
    expression, zone = given.text("expression"), given.text("zone")
    start, end, count = given.moment("start_us"), given.moment("end_us"), given.number("count")
    if form == "quartz":
        return Cron.quartz(expression, zone, start=start, end=end, count=count)
    return Cron(expression, zone, seconds=_with_seconds(given, form), start=start, end=end, count=count)


_READERS: Final[Mapping[str, Callable[[_Given], Trigger]]] = {Once.kind: _once, Every.kind: _every, Cron.kind: _cron}


def _calendar(document: JsonValue) -> Calendar:
    """The calendar that a document describes."""
    given = _Given(document)
    kind = given.text("kind")
    if kind == Days.kind:
        days = given.several("days")
        return given.finished(Days([day if isinstance(day, str) else repr(day) for day in days], given.text("zone")))
    if kind != Times.kind:
        given.refuse(f"its kind is {kind!r}, which this astyqueue does not know")
    return given.finished(
        Times(given.text("expression"), given.text("zone"), seconds=_with_seconds(given, given.text("form")))
    )


def _with_seconds(given: _Given, form: str) -> bool:
    """Whether this form of expression has seconds last."""
    if form not in {"unix", "seconds"}:
        given.refuse(f"its form is {form!r}, which this astyqueue does not know")
    return form == "seconds"
