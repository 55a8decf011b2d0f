"""The figures of a report, read from the tables of the pipeline without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as arrow

from astyqueue.clock import instant
from astyqueue.spark.pipelines import manifest
from astyqueue.spark.pipelines.outputs import ATTEMPTS, FACTS, FAILURES, MESSAGES, PARTITIONS, PARTS, SCHEDULES, Table
from astyqueue.spark.pipelines.report.records import Record, total

Numbers = npt.NDArray[np.float64]
_PARTITIONED: Final = pa.schema([("queue", pa.string()), ("day", pa.date32())])
_SHARES: Final = [share for _, share in PARTS]


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
class Summary:
    """Some lengths of time, summed up: how many, three percentiles and the longest, in microseconds."""

    number: int
    parts: tuple[float, ...] | None
    longest: float | None

    @classmethod
    def of(cls, values: Numbers) -> Self:
        """That of these values, those left out that are not known."""
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(0, None, None)
        return cls(len(known), tuple(float(part) for part in np.quantile(known, _SHARES)), float(known.max()))


class Columns:
    """Columns of a table as arrays: moments and lengths are microseconds, and unknown ones are not-a-number."""

    def __init__(self, found: pa.Table) -> None:
        """Take them from Arrow."""
        self._found = found

    def numbers(self, name: str) -> Numbers:
        """A column of moments, lengths or counts."""
        column = self._found.column(name)
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        return np.asarray(plain.to_numpy(zero_copy_only=False), dtype=np.float64)

    def texts(self, name: str) -> npt.NDArray[np.str_]:
        """A column of texts; unknown ones are empty."""
        return np.asarray(self._found.column(name).fill_null("").to_numpy(zero_copy_only=False), dtype=np.str_)

    def among(self, name: str, *values: str) -> npt.NDArray[np.bool_]:
        """Where a column has one of these texts."""
        return np.isin(self.texts(name), values)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of one queue."""

    queue: str
    objective: str
    read_until: datetime
    messages: Columns
    attempts: Columns
    facts: Sequence[Record]
    failures: Sequence[Record]
    schedules: Sequence[Record]

    @property
    def period(self) -> tuple[float, float] | None:
        """The first and the last moment that anything tells of; None if nothing does."""
        moments = np.concatenate([self.messages.numbers("sent"), self.messages.numbers("changed"), self.attempts.numbers("ended")])
        known = moments[~np.isnan(moments)]
        return (float(known.min()), float(known.max())) if len(known) else None

    def counts(self) -> dict[str, int]:
        """How many messages there were, and what became of them; how many attempts, and how they ended."""
        states, outcomes = self.messages.texts("state"), self.attempts.texts("outcome")
        of_states = {name: int((states == name).sum()) for name in ("done", "dead", "cancelled", "in flight", "waiting")}
        of_outcomes = {name: int((outcomes == name).sum()) for name in ("failed", "expired", "released")}
        return {"sent": len(states), **of_states, **of_outcomes, "retried": self.total("retried")}

    def total(self, name: str) -> int:
        """A count of the whole queue, over all days."""
        return total(self.of_grain("queue"), name)

    def of_grain(self, grain: str) -> list[Record]:
        """The facts of one grain."""
        return [record for record in self.facts if record["grain"] == grain]

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
    return [_figures(folder, asked, queue=queue, read=known.queues[queue]) for queue in sorted(known.queues)]


def _figures(folder: Path, days: Days, *, queue: str, read: manifest.ReadSoFar) -> Figures:
    def table(of: Table, *columns: str) -> pa.Table:
        return _read(folder, of, days.wanted() & (arrow.field("queue") == queue), columns=columns)

    return Figures(
        queue,
        read.objective,
        instant(read.until_us),
        messages=Columns(table(MESSAGES, "sent", "changed", "settled", "state", "took")),
        attempts=Columns(table(ATTEMPTS, "task", "ended", "outcome", "waited", "ran")),
        facts=_records(table(FACTS).filter(~arrow.field("grain").isin(["minute", "key"]))),
        failures=_records(table(FAILURES)),
        schedules=_records(table(SCHEDULES)),
    )


def _records(found: pa.Table) -> Sequence[Record]:
    records: Sequence[Record] = found.to_pylist()
    return records


def _read(folder: Path, table: Table, wanted: arrow.Expression, *, columns: Sequence[str]) -> pa.Table:
    """The rows of a table, none if nobody wrote it; SchemaDiffers if its files have other columns."""
    place = folder / table.name
    names = list(columns) or list(table.kinds)
    if not place.is_dir():
        return _declared(table).empty_table().select(names)
    partitioning = arrow.partitioning(_PARTITIONED, flavor="hive")
    found = arrow.dataset(place, format="parquet", partitioning=partitioning, schema=_declared(table), exclude_invalid_files=False)
    return found.to_table(columns=names, filter=wanted)


def _declared(table: Table) -> pa.Schema:
    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    files = [(name, kinds[kind]) for name, kind in table.kinds.items() if name not in PARTITIONS]
    return pa.schema([*files, *_PARTITIONED])
