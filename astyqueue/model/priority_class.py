"""The priority of a message in a queue that is sorted by a header: that of the class of the header's value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from astyqueue.errors import BadSetting
from astyqueue.model.settings import ASCENDING, FIRST, Settings

_BELOW: Final = "<"


class HeaderClasses(NamedTuple):
    """The classes of a header in ascending order: listed `values`, or upper `bounds` of numbers and all above them."""

    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def number(self) -> int:
        """How many classes there are."""
        return len(self.values) or len(self.bounds) + 1

    def class_of(self, value: str | None) -> int | None:
        """The class of a value; None if it is missing, not listed, or not a number where numbers are expected."""
        if value is None:
            return None
        if self.values:
            return self.values.index(value) if value in self.values else None
        number = _number(value)
        return None if math.isnan(number) else sum(number >= bound for bound in self.bounds)


@lru_cache(maxsize=64)
def header_classes(written: str) -> HeaderClasses:
    """The classes that a setting names: "eu,us,asia", or "<10,<100" for numbers below 10, below 100, and all others.

    Raises BadSetting for other text.
    """
    parts = tuple(part.strip() for part in written.split(","))
    if not all(parts) or len(set(parts)) != len(parts):
        message = f"sort_classes is {written!r}: write different values with commas between them, such as eu,us,asia"
        raise BadSetting(message)
    if not any(part.startswith(_BELOW) for part in parts):
        return HeaderClasses(values=parts)
    bounds = tuple(_number(part.removeprefix(_BELOW)) if part.startswith(_BELOW) else math.nan for part in parts)
    if any(map(math.isnan, bounds)) or list(bounds) != sorted(bounds):
        message = f"sort_classes is {written!r}: write growing bounds of numbers, such as <10,<100"
        raise BadSetting(message)
    return HeaderClasses(bounds=bounds)


def _number(text: str) -> float:
    """The number in a text; NaN if there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def check_sorting(settings: Settings) -> None:
    """Raise BadSetting if a queue is to be sorted by classes that it cannot have."""
    behaviour, levels = settings.behaviour, settings.layout.priorities
    if not behaviour.sort_header and not behaviour.sort_classes:
        return
    if not behaviour.sort_header or not behaviour.sort_classes:
        message = "a queue that is sorted needs both: sort_header, and the sort_classes of its values"
        raise BadSetting(message)
    if (count := header_classes(behaviour.sort_classes).number) > levels:
        there = "one priority" if levels == 1 else f"{levels} priorities"
        message = (
            f"sort_classes {behaviour.sort_classes!r} are {count} classes, and queue {settings.name!r} has {there}: "
            "name fewer classes, or create a queue with more priorities (10 at most)"
        )
        raise BadSetting(message)


def priority_by_header(settings: Settings, headers: Mapping[str, str] | None) -> int:
    """The priority of a message with these headers in a queue that is sorted by one."""
    behaviour = settings.behaviour
    classes = header_classes(behaviour.sort_classes)
    index = classes.class_of((headers or {}).get(behaviour.sort_header))
    if index is None:
        place = 0 if behaviour.sort_missing == FIRST else classes.number - 1
    else:
        place = index if behaviour.sort_order == ASCENDING else classes.number - 1 - index
    return max(0, settings.layout.priorities - 1 - place)
