"""Parses cron expressions.

Elements that other parsers accept silently, or read in an unexpected way (`5-1/2`, `*/70`, `5-5` as the whole range),
are refused. Errors name the field and the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, NoReturn

from astyqueue.errors import BadExpression
from astyqueue.triggers.cron.matcher import LAST, Fields

#: "unix": minute to weekday, five fields. "seconds": the same and seconds last. "quartz": seconds first, and a year
#: last if there are seven; one of the two day fields is `?`, and weekdays count from 1, a Sunday.
Form = Literal["unix", "seconds", "quartz"]


class _Kind(NamedTuple):
    """A field of an expression: its name and range, and the names of its values, which count from `first_name`."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    first_name: int = 0
    also: str = ""

    @property
    def size(self) -> int:
        """How many values there are: Sunday is both 0 and 7."""
        return len(self.names) or self.most - self.least + 1

    @property
    def takes(self) -> str:
        """The valid values of this field, in words."""
        others = f"{self.names[0]} to {self.names[-1]}" if self.names else self.also
        return f"{self.least} to {self.most}{others and f' or {others}'}"


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_MINUTE: Final = _Kind("minute", 0, 59)
_HOUR: Final = _Kind("hour", 0, 23)
_MONTH_DAY: Final = _Kind("day of month", 1, 31, also="L for the last")
_MONTH: Final = _Kind("month", 1, 12, _MONTHS, first_name=1)
_WEEKDAY: Final = _Kind("day of week", 0, 7, _WEEKDAYS)
_SECOND: Final = _Kind("second", 0, 59)
_YEAR: Final = _Kind("year", 1970, 2099)
_QUARTZ_WEEKDAY: Final = _Kind("day of week", 1, 7, _WEEKDAYS, first_name=1)

_UNIX: Final = (_MINUTE, _HOUR, _MONTH_DAY, _MONTH, _WEEKDAY)
_QUARTZ: Final = (_SECOND, _MINUTE, _HOUR, _MONTH_DAY, _MONTH, _QUARTZ_WEEKDAY)
_KINDS: Final = {"unix": (_UNIX,), "seconds": ((*_UNIX, _SECOND),), "quartz": (_QUARTZ, (*_QUARTZ, _YEAR))}

_SHORT: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_ELEMENT: Final = re.compile(
    r"(?:\*|(?P<low>[a-z]+|[0-9]{1,9})(?:-(?P<high>[a-z]+|[0-9]{1,9}))?)(?:/(?P<step>[0-9]{1,9}))?"
)
_NTH: Final = re.compile(r"([a-z]+|[0-9]{1,9})#([0-9]{1,9})")
_LAST_OF: Final = re.compile(r"l([a-z]{3}|[0-9])|([a-z]{3}|[0-9])l")
_FREE: Final = frozenset({"*", "*/1"})
_MOST_OF_A_WEEKDAY: Final = 5


@lru_cache(maxsize=4_096)
def read_expression(expression: str, form: Form) -> Fields:
    """The fields of an expression of this form; BadExpression names the invalid field and the reason."""
    texts = _split(expression, form)
    read = {kind.name: _Reading(expression, kind, text) for kind, text in texts.items()}
    fields = Fields(
        seconds=read["second"].values() if "second" in read else (0,),
        minutes=read["minute"].values(),
        hours=read["hour"].values(),
        month_days=read["day of month"].month_days(),
        months=read["month"].values(),
        weekdays=read["day of week"].weekdays(),
        years=read["year"].values() if "year" in read and not read["year"].free else None,
    )
    if fields.first(0) is None:
        read["day of month"].refuse("none of the given months has such a day, so this would never fire")
    return fields


def _split(expression: str, form: Form) -> dict[_Kind, str]:
    """The text of each field, in lower case."""
    written = expression.strip().lower()
    kinds = _KINDS[form]
    if written.startswith("@"):
        if written not in _SHORT:
            raise BadExpression(expression, "", f"the short forms are {', '.join(_SHORT)}")
        written, kinds = _SHORT[written], _KINDS["unix"]
    texts = written.split()
    fields = next((kind for kind in kinds if len(kind) == len(texts)), None)
    if fields is None:
        ways = " or ".join(f"{len(kind)} fields ({', '.join(field.name for field in kind)})" for kind in kinds)
        hint = (
            "; in Python, Cron(..., seconds=True) takes seconds as a last field and Cron.quartz as the first"
            if form == "unix"
            else ""
        )
        raise BadExpression(expression, "", f"it has {len(texts)} fields, and this form has {ways}{hint}")
    read = dict(zip(fields, texts, strict=True))
    return (
        _without_question_marks(expression, read)
        if form == "quartz" and not expression.strip().startswith("@")
        else read
    )


def _without_question_marks(expression: str, texts: dict[_Kind, str]) -> dict[_Kind, str]:
    """Of Quartz's two day fields one is `?`, which restricts nothing."""
    if [texts[_MONTH_DAY], texts[_QUARTZ_WEEKDAY]].count("?") != 1:
        problem = "a Quartz expression needs ? in exactly one of day-of-month and day-of-week"
        raise BadExpression(expression, _QUARTZ_WEEKDAY.name, problem)
    return {
        kind: "*" if text == "?" and kind in {_MONTH_DAY, _QUARTZ_WEEKDAY} else text for kind, text in texts.items()
    }


@dataclass(frozen=True, slots=True)
class _Reading:
    """One field of an expression, being read."""

    expression: str
    kind: _Kind
    text: str

    @property
    def free(self) -> bool:
        """Whether the field restricts nothing."""
        return self.text in _FREE

    def values(self) -> tuple[int, ...]:
        """The values that the field admits, in order."""
        return tuple(sorted({value for element in self._elements() for value in self._element(element)}))

    def month_days(self) -> tuple[int, ...] | None:
        """The days of the month, `LAST` for `L`; None if the field restricts nothing."""
        if self.free:
            return None
        admitted = (
            value for element in self._elements() for value in ([LAST] if element == "l" else self._element(element))
        )
        return tuple(sorted(set(admitted)))

    def weekdays(self) -> tuple[tuple[int, int], ...] | None:
        """The weekdays, each with its number in the month; None if the field restricts nothing."""
        if self.free:
            return None
        return tuple(sorted({pair for element in self._elements() for pair in self._weekday(element)}))

    def refuse(self, why: str) -> NoReturn:
        """Raise BadExpression with the problem of this field."""
        raise BadExpression(self.expression, self.kind.name, why)

    def _elements(self) -> list[str]:
        elements = self.text.split(",")
        if "" in elements:
            self.refuse("an element before, between or after its commas is empty")
        return elements

    def _weekday(self, element: str) -> list[tuple[int, int]]:
        """Weekdays with their numbers: `5#2` is the second Friday of the month, `L5` or `5L` the last."""
        if nth := _NTH.fullmatch(element):
            place = int(nth[2])
            if not 1 <= place <= _MOST_OF_A_WEEKDAY:
                self.refuse(f"{element!r} is weekday number {place}, but a month has {_MOST_OF_A_WEEKDAY} at most")
            return [(weekday, place) for weekday in self._from_sunday(nth[1])]
        if last := _LAST_OF.fullmatch(element):
            return [(weekday, LAST) for weekday in self._from_sunday(last[1] or last[2])]
        if element == "l" and self.kind is _QUARTZ_WEEKDAY:
            return [(_WEEKDAYS.index("sat"), 0)]
        return [(weekday, 0) for weekday in self._from_sunday(element)]

    def _from_sunday(self, element: str) -> list[int]:
        """Weekdays counted from 0, a Sunday; Quartz counts from 1."""
        return [value - self.kind.first_name for value in self._element(element)]

    def _element(self, element: str) -> list[int]:
        """The values of one element: a value, a range, or steps through either."""
        parts = _ELEMENT.fullmatch(element)
        if parts is None:
            self.refuse(
                f"{element!r} is not understood: give {self.kind.takes}, a range such as 1-5, steps such as */2, "
                "or a list of those"
            )
        low, high, step = (parts[part] for part in ("low", "high", "step"))
        ends = [self._number(end) for end in (low, high) if end is not None]
        if step is not None:
            self._check_step(element, int(step))
        if len(ends) == 2 and ends[0] == ends[1]:  # noqa: PLR2004 - both ends
            self.refuse(f"the range {element!r} begins where it ends: write {low}")
        if ends and ends[-1] < ends[0] and (step is not None or self.kind is _YEAR):
            self.refuse(f"the range {element!r} wraps around: write it as two")
        return self._values(ends, None if step is None else int(step))

    def _number(self, text: str) -> int:
        """A value of this field as a number."""
        if text in self.kind.names:
            return self.kind.names.index(text) + self.kind.first_name
        if not text.isdigit():
            self.refuse(f"{text!r} is not understood: give {self.kind.takes}")
        if not self.kind.least <= int(text) <= self.kind.most:
            self.refuse(f"{text} is out of bounds: give {self.kind.takes}")
        return int(text)

    def _check_step(self, element: str, step: int) -> None:
        """Refuse a step of zero, or greater than the range of the field."""
        most = self.kind.most - self.kind.least
        if not 1 <= step <= most:
            self.refuse(f"the step of {element!r} is not from 1 to {most}: steps restart with each cycle of the field")

    def _values(self, ends: list[int], step: int | None) -> list[int]:
        """The values of a valid element; a range may go past the greatest value and on from the least."""
        least, size = self.kind.least, self.kind.size
        low = least + (ends[0] - least) % size if ends else least
        high = least + size - 1
        if len(ends) == 2:  # noqa: PLR2004 - both ends
            high = low + (ends[1] - low - 1) % size + 1
        elif ends and step is None:
            high = low
        return [least + (value - least) % size for value in range(low, high + 1, step or 1)]
