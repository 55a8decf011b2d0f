"""A history of some queues that a test writes by hand, and the folder of tables that the batch job makes of it."""

from __future__ import annotations

import operator
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Final

from pyarrow import dataset as arrow
from pyspark.sql import DataFrame, SparkSession

from astyqueue.clock import instant
from astyqueue.model.event import Event
from astyqueue.spark.pipeline.batch import Built, Job, Span
from astyqueue.spark.pipeline.parquet_store import Day
from astyqueue.spark.pipeline.report.data import Figures, load
from astyqueue.spark.pipeline.report.reader import batches
from astyqueue.spark.pipeline.schemas import EVENTS, Table
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.spark.pipeline import histories
from tests.spark.pipeline.histories import DAY, NOON, QUEUE, Life, frame

HOUR: Final = 3_600


@dataclass(frozen=True)
class Tables:
    """The tables in a folder, read without Spark."""

    out: Path

    def rows(self, table: Table, **where: object) -> list[Mapping[str, object]]:
        """The rows of a table that have these values, in an order that is the same each time."""
        conditions = [arrow.field(name) == value for name, value in where.items()]
        wanted = reduce(operator.and_, conditions, arrow.scalar(value=True))
        found = batches(self.out, table, wanted, list(table.kinds))
        return sorted((row for batch in found for row in batch.to_pylist()), key=str)

    def files(self, table: Table, queue: str) -> set[str]:
        """The days of a queue that a table has files of."""
        return {path.parent.name for path in (self.out / table.name / f"queue={queue}").rglob("*.parquet")}

    def figures(self, queue: str = QUEUE) -> Figures:
        """What a report would show of a queue."""
        [found] = [figures for figures in load(self.out) if figures.queue == queue]
        return found

    def copied(self, folder: Path) -> Tables:
        """The same tables in another folder."""
        return Tables(Path(shutil.copytree(self.out, folder)))


@dataclass(frozen=True)
class Left:
    """What a run built, and the tables as it left them."""

    built: Built
    tables: Tables


class Store:
    """Keeps a history, hands it out as the data source does, and runs the batch job on it."""

    def __init__(self, spark: SparkSession, out: Path, *, approximately: bool = False) -> None:
        self.events: list[Event] = []
        self.asked: list[tuple[int, int]] = []
        self.tables = Tables(out)
        self._spark = spark
        self._job = Job(spark, out, approximately=approximately)

    def add(self, *lives: Life) -> None:
        self.events += histories.told(*lives)

    def forget(self, queue: str) -> None:
        """Expire the history of a queue."""
        self.events = [event for event in self.events if event.queue != queue]

    def run(self, at: float, span: Span | None = None, *, queues: Collection[str] = (QUEUE,)) -> Built:
        """Run the job so many seconds after noon, on queues that keep their history for thirty days."""
        clock = TimeMachine(instant(NOON + int(at * SECOND)))
        return self._job.run_on(self._read, dict.fromkeys(queues, 30 * DAY), span, clock=clock)

    def rebuild(self, *days: date, queue: str = QUEUE) -> Built:
        """Build these days again."""
        return self._job.rebuild([Day(queue, day) for day in days])

    def forget_all_but_events(self) -> None:
        """What the guide says to remove, so that everything is built again."""
        for path in self.tables.out.iterdir():
            if path.name == "_manifest.json":
                path.unlink()
            elif path.is_dir() and path.name != EVENTS.name:
                shutil.rmtree(path)

    def _read(self, queue: str, *, since: int, until: int) -> DataFrame:
        self.asked.append((since, until))
        return frame(
            self._spark, [event for event in self.events if event.queue == queue and since <= event.at < until]
        )
