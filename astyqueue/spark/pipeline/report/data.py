"""The numbers of a report, read from the tables of the pipeline without Spark."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.dataset as arrow

from astyqueue.clock import instant
from astyqueue.spark.pipeline import manifest
from astyqueue.spark.pipeline.report.html import MOST, length, share
from astyqueue.spark.pipeline.report.reader import Columns, Summary, batches, read
from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, FAILURES, MESSAGES, SCHEDULES, Table, shortened

#: The columns of facts to read, by grain. The grain `key` is not read: it may have a row for each message.
_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": ("retried", "objective", "objective_of", "objective_met"),
    "hour": ("began", "wait_p95"),
    **dict.fromkeys(("tenant", "host"), ("member", "attempts", "done", "failed", "dead", "expired", "ran")),
    "row": ("member", "sent"),
}
_CAUSE: Final = ("task", "failure", "times", "dead", "last", "example")
#: The counts of schedules, which are summed up, and the lengths of each schedule that is shown.
_OCCURRENCES: Final = ("fired", "skipped", "started", "within_1s")
_LATE: Final = ("late_p50", "late_p95", "late_max", "start_p95")
#: Different causes (pairs of failure and task) that are counted separately; all further ones are others.
MOST_CAUSES: Final = 10_000
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Days:
    """The days that a report is about, first and last inclusive; None: no limit."""

    first: date | None = None
    last: date | None = None

    def __str__(self) -> str:
        """The range, as in "the days from 2026-03-14 to 2026-03-15"."""
        begin, end = (f" {word} {day}" if day else "" for word, day in (("from", self.first), ("to", self.last)))
        return f"the days{begin}{end}"

    def wanted(self) -> arrow.Expression:
        """The days as an Arrow filter."""
        after = arrow.field("day") >= (self.first or date.min)
        return after & (arrow.field("day") <= (self.last or date.max))

    def __contains__(self, day: date) -> bool:
        """Whether the report is about this day."""
        return (self.first or date.min) <= day <= (self.last or date.max)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one queue, read from the tables, whose percentiles are approximate on some number of days."""

    queue: str
    objective: str
    read_until: datetime
    approximate: int
    messages: Columns
    attempts: Columns
    facts: Mapping[str, Columns]
    failures: Causes
    schedules: Schedules

    @property
    def period(self) -> tuple[float, float] | None:
        """The first and the last moment in the tables, in microseconds; None without any."""
        columns = [self.messages.numbers("sent"), self.messages.numbers("changed"), self.attempts.numbers("ended")]
        moments = [known for column in columns if len(known := column[~np.isnan(column)])]
        return (
            (min(float(known.min()) for known in moments), max(float(known.max()) for known in moments))
            if moments
            else None
        )

    def counts(self) -> dict[str, int]:
        """The number of messages, in all (`sent`) and by state, of attempts by outcome, and of retries."""
        states, outcomes = self.messages.names("state"), self.attempts.names("outcome")
        of_states = {
            name: int(states.among(name).sum()) for name in ("done", "dead", "cancelled", "in flight", "waiting")
        }
        of_outcomes = {name: int(outcomes.among(name).sum()) for name in ("failed", "expired", "released")}
        return {"sent": len(states.codes), **of_states, **of_outcomes, "retried": self.total("retried")}

    def total(self, name: str) -> int:
        """A count of the facts of the whole queue, summed over all days."""
        return int(np.nansum(self.facts["queue"].numbers(name)))

    def met(self) -> tuple[int, int]:
        """The number of lengths that met the objective, and of all, on the days that were built with this objective."""
        facts = self.facts["queue"]
        its = facts.names("objective").among(self.objective)
        met, of = (int(np.nansum(facts.numbers(name)[its])) for name in ("objective_met", "objective_of"))
        return met, of

    def lengths(self) -> dict[str, Summary]:
        """Summaries of the lengths wait, run and end."""
        return {
            "wait": Summary.of(self.attempts.numbers("waited")),
            "run": Summary.of(self.attempts.numbers("ran")),
            "end": Summary.of(self.messages.numbers("took")),
        }


def load(folder: Path, days: Days | None = None) -> list[Figures]:
    """The figures of every queue in a folder of tables, by name."""
    selected = days or Days()
    known = manifest.load(folder)
    return [_figures(folder, selected, queue=queue, so_far=known.queues[queue]) for queue in sorted(known.queues)]


def _figures(folder: Path, days: Days, *, queue: str, so_far: manifest.ReadSoFar) -> Figures:
    wanted = days.wanted() & (arrow.field("queue") == queue)

    def rows(of: Table, *columns: str) -> Iterator[Record]:
        for batch in batches(folder, of, wanted, columns):
            yield from batch.to_pylist()

    return Figures(
        queue,
        so_far.objective,
        instant(so_far.until_us),
        approximate=sum(day in days for day in so_far.approximate),
        messages=read(folder, MESSAGES, wanted, ("sent", "changed", "settled", "state", "took")),
        attempts=read(folder, ATTEMPTS, wanted, ("task", "ended", "outcome", "waited", "ran")),
        facts={
            grain: read(folder, FACTS, wanted & (arrow.field("grain") == grain), columns)
            for grain, columns in _FACTS.items()
        },
        failures=Causes.of(rows(FAILURES, *_CAUSE)),
        schedules=Schedules.of(rows(SCHEDULES, "schedule", "day", *_OCCURRENCES, *_LATE), MOST, _OCCURRENCES),
    )


Record = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cause:
    """One failure of one task: its number, the messages that died of it, and the last time with its reason in full."""

    times: int = 0
    dead: int = 0
    last: datetime = _NEVER
    example: str = ""

    def __add__(self, other: Cause) -> Cause:
        """The sum of both; the example is that of the later one."""
        later = other if other.last > self.last else self
        return Cause(self.times + other.times, self.dead + other.dead, later.last, later.example)


@dataclass(slots=True)
class Causes:
    """The failures by failure and task, and the sum of all further causes."""

    found: dict[tuple[str, str], Cause] = field(default_factory=dict)
    others: Cause = field(default_factory=Cause)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Causes:
        """Those of a table of failures."""
        causes = cls()
        for record in records:
            name = str(record["failure"]), shortened(str(record["task"] or ""))
            cause = Cause(
                number(record, "times"), number(record, "dead"), moment(record, "last"), str(record["example"] or "")
            )
            if name in causes.found or len(causes.found) < MOST_CAUSES:
                causes.found[name] = causes.found.get(name, Cause()) + cause
            else:
                causes.others += cause
        return causes

    def ranked(self) -> list[tuple[tuple[str, str], Cause]]:
        """Each cause with its failure and task, the most frequent first."""
        return sorted(self.found.items(), key=lambda named: (-named[1].times, named[0]))

    def alike(self) -> list[tuple[str, int]]:
        """The number of each failure over all tasks, the most frequent first."""
        times = Counter[str]()
        for (failure, _), cause in self.found.items():
            times[failure] += cause.times
        return times.most_common()


@dataclass(slots=True)
class Schedules:
    """The first rows of a table of schedules, by name and day; the number of further rows, and their sums."""

    first: list[Record] = field(default_factory=list)
    more: int = 0
    sums: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, records: Iterable[Record], most: int, counts: Sequence[str]) -> Schedules:
        """The first `most` rows, and the sums of these counts over the others."""
        kept = cls()
        for record in records:
            left = kept._insert(record, most)
            if left is not None:
                kept.more += 1
                kept.sums.update({name: number(left, name) for name in counts})
        return kept

    def _insert(self, record: Record, most: int) -> Record | None:
        """Insert a row in order; returns the row that exceeds `most`, if any."""
        if len(self.first) == most and _place(record) >= _place(self.first[-1]):
            return record
        insort(self.first, record, key=_place)
        return self.first.pop() if len(self.first) > most else None


def _place(record: Record) -> tuple[str, str]:
    return str(record["schedule"]), str(record["day"])


def number(record: Record, name: str) -> int:
    """A count; null counts as 0."""
    value = record[name]
    return int(value) if isinstance(value, int | float) else 0


def measured(record: Record, name: str) -> float | None:
    """A length of time in microseconds; None if it is null."""
    value = record[name]
    return float(value) if isinstance(value, int | float) else None


def moment(record: Record, name: str) -> datetime:
    """A moment; null is before all others."""
    value = record[name]
    return value if isinstance(value, datetime) else _NEVER


def in_short(figures: Figures) -> Mapping[str, object]:
    """The outcomes of a queue's messages and the 95th percentiles of their lengths, as text."""
    counts = figures.counts()
    named = {"queue": figures.queue, **{name: counts[name] for name in ("sent", "done", "dead", "retried", "expired")}}
    lengths = {f"{name}_p95": length(summary.p95) for name, summary in figures.lengths().items()}
    met, of = figures.met()
    return {**named, **lengths, "met": f"{share(met, of)} {figures.objective}"}
