"""The figures of a report, read from the tables of the pipeline without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.dataset as arrow

from astyqueue.clock import instant
from astyqueue.spark.pipelines import manifest
from astyqueue.spark.pipelines.outputs import ATTEMPTS, FACTS, FAILURES, MESSAGES, SCHEDULES, Table
from astyqueue.spark.pipelines.report.columns import Columns, Summary, batches, read
from astyqueue.spark.pipelines.report.records import Causes, Record, Schedules
from astyqueue.spark.pipelines.report.tables import MOST

#: What is read of the facts, by their grain. There may be a row for each message where the grain is its key: those are not read.
_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": ("retried", "objective_of", "objective_met"),
    "hour": ("began", "wait_p95"),
    **dict.fromkeys(("tenant", "host"), ("member", "attempts", "done", "failed", "dead", "expired", "ran")),
    "row": ("member", "sent"),
}
_CAUSE: Final = ("task", "failure", "times", "dead", "last", "example")
#: What is counted of schedules, and what is told of each that is shown.
_SLOTS: Final = ("fired", "skipped", "started", "within_1s")
_LATE: Final = ("late_p50", "late_p95", "late_max", "start_p95")


@dataclass(frozen=True, slots=True)
class Days:
    """Which days a report is about, first and last; None for all there are."""

    first: date | None = None
    last: date | None = None

    def wanted(self) -> arrow.Expression:
        """The same for Arrow."""
        after = arrow.field("day") >= (self.first or date.min)
        return after & (arrow.field("day") <= (self.last or date.max))


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of one queue."""

    queue: str
    objective: str
    read_until: datetime
    messages: Columns
    attempts: Columns
    facts: Mapping[str, Columns]
    failures: Causes
    schedules: Schedules

    @property
    def period(self) -> tuple[float, float] | None:
        """The first and the last moment that anything tells of; None if nothing does."""
        columns = [self.messages.numbers("sent"), self.messages.numbers("changed"), self.attempts.numbers("ended")]
        moments = [known for column in columns if len(known := column[~np.isnan(column)])]
        return (min(float(known.min()) for known in moments), max(float(known.max()) for known in moments)) if moments else None

    def counts(self) -> dict[str, int]:
        """How many messages there were, and what became of them; how many attempts, and how they ended."""
        states, outcomes = self.messages.names("state"), self.attempts.names("outcome")
        of_states = {name: int(states.among(name).sum()) for name in ("done", "dead", "cancelled", "in flight", "waiting")}
        of_outcomes = {name: int(outcomes.among(name).sum()) for name in ("failed", "expired", "released")}
        return {"sent": len(states.codes), **of_states, **of_outcomes, "retried": self.total("retried")}

    def total(self, name: str) -> int:
        """A count of the whole queue, over all days."""
        return int(np.nansum(self.facts["queue"].numbers(name)))

    def lengths(self) -> dict[str, Summary]:
        """How long messages waited, ran and took."""
        return {
            "wait": Summary.of(self.attempts.numbers("waited")),
            "run": Summary.of(self.attempts.numbers("ran")),
            "end": Summary.of(self.messages.numbers("took")),
        }


def load(folder: Path, days: Days | None = None) -> list[Figures]:
    """The figures of every queue in a folder of tables, by name."""
    asked = days or Days()
    known = manifest.load(folder)
    return [_figures(folder, asked, queue=queue, so_far=known.queues[queue]) for queue in sorted(known.queues)]


def _figures(folder: Path, days: Days, *, queue: str, so_far: manifest.ReadSoFar) -> Figures:
    wanted = days.wanted() & (arrow.field("queue") == queue)

    def rows(of: Table, *columns: str) -> Iterator[Record]:
        for batch in batches(folder, of, wanted, columns):
            yield from batch.to_pylist()

    return Figures(
        queue,
        so_far.objective,
        instant(so_far.until_us),
        messages=read(folder, MESSAGES, wanted, ("sent", "changed", "settled", "state", "took")),
        attempts=read(folder, ATTEMPTS, wanted, ("task", "ended", "outcome", "waited", "ran")),
        facts={grain: read(folder, FACTS, wanted & (arrow.field("grain") == grain), columns) for grain, columns in _FACTS.items()},
        failures=Causes.of(rows(FAILURES, *_CAUSE)),
        schedules=Schedules.of(rows(SCHEDULES, "schedule", "day", *_SLOTS, *_LATE), MOST, _SLOTS),
    )
