"""Failures and schedules, summed up as their rows are read, so that very many rows take no more memory than many."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from astyqueue.spark.pipelines.names import shortened

Record = Mapping[str, object]
#: Causes that are told apart: different failures of different tasks. Those that come after these are others.
MOST_CAUSES: Final = 10_000
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cause:
    """What one failure of one task came to: how often, how many messages died of it, and the reason in full, the last time."""

    times: int = 0
    dead: int = 0
    last: datetime = _NEVER
    example: str = ""

    def __add__(self, other: Cause) -> Cause:
        """Both together."""
        later = other if other.last > self.last else self
        return Cause(self.times + other.times, self.dead + other.dead, later.last, later.example)


@dataclass(slots=True)
class Causes:
    """What went wrong, by failure and task, and what further causes came to together."""

    found: dict[tuple[str, str], Cause] = field(default_factory=dict)
    others: Cause = field(default_factory=Cause)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Causes:
        """Those of a table of failures."""
        causes = cls()
        for record in records:
            name = str(record["failure"]), shortened(str(record["task"] or ""))
            cause = Cause(number(record, "times"), number(record, "dead"), moment(record, "last"), str(record["example"] or ""))
            if name in causes.found or len(causes.found) < MOST_CAUSES:
                causes.found[name] = causes.found.get(name, Cause()) + cause
            else:
                causes.others += cause
        return causes

    def ranked(self) -> list[tuple[tuple[str, str], Cause]]:
        """Each cause, the most frequent first."""
        return sorted(self.found.items(), key=lambda named: (-named[1].times, named[0]))

    def alike(self) -> list[tuple[str, int]]:
        """How often each failure happened, to whatever task, the most frequent first."""
        times = Counter[str]()
        for (failure, _), cause in self.found.items():
            times[failure] += cause.times
        return times.most_common()


@dataclass(slots=True)
class Schedules:
    """The first rows of a table of schedules, by their names and days; how many more there are, and what those come to."""

    first: list[Record] = field(default_factory=list)
    more: int = 0
    sums: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, records: Iterable[Record], most: int, counts: Sequence[str]) -> Schedules:
        """At most so many rows, and the sums of these counts over the others."""
        kept = cls()
        for record in records:
            left = kept._insert(record, most)
            if left is not None:
                kept.more += 1
                kept.sums.update({name: number(left, name) for name in counts})
        return kept

    def _insert(self, record: Record, most: int) -> Record | None:
        """Put a row in its place, and say which one is one too many by that."""
        if len(self.first) == most and _place(record) >= _place(self.first[-1]):
            return record
        insort(self.first, record, key=_place)
        return self.first.pop() if len(self.first) > most else None


def _place(record: Record) -> tuple[str, str]:
    return str(record["schedule"]), str(record["day"])


def number(record: Record, name: str) -> int:
    """A count; nothing counts as 0."""
    value = record[name]
    return int(value) if isinstance(value, int | float) else 0


def measured(record: Record, name: str) -> float | None:
    """A length of time in microseconds; None where nothing was measured."""
    value = record[name]
    return float(value) if isinstance(value, int | float) else None


def moment(record: Record, name: str) -> datetime:
    """When; what never was is before everything."""
    value = record[name]
    return value if isinstance(value, datetime) else _NEVER
