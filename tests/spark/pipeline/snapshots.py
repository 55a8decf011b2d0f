"""A store that keeps a history of some queues, and the folder that the batch job makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession

from astyqueue.clock import instant
from astyqueue.model.event import Event
from astyqueue.spark.pipeline.batch import Built, Job, Span
from astyqueue.spark.pipeline.parquet_store import Day
from astyqueue.spark.pipeline.report.data import Figures, load
from astyqueue.spark.pipeline.schemas import EVENTS, Table
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.spark.pipeline import histories
from tests.spark.pipeline.histories import DAY, NOON, QUEUE, Life, frame

HOUR: Final = 3_600


class Store:
    """Keeps a history, and hands it out as the data source does."""

    def __init__(self, spark: SparkSession, out: Path, *, approximately: bool = False) -> None:
        self.events: list[Event] = []
        self.asked: list[tuple[int, int]] = []
        self.out = out
        self._spark = spark
        self._job = Job(spark, out, approximately=approximately)

    def add(self, *lives: Life) -> None:
        self.events += histories.told(*lives)

    def run(self, at: float, span: Span | None = None, *, queues: Collection[str] = (QUEUE,)) -> Built:
        """Run the job so many seconds after noon, on queues that keep their history for thirty days."""
        clock = TimeMachine(instant(NOON + int(at * SECOND)))
        return self._job.run_on(self._read, dict.fromkeys(queues, 30 * DAY), span, clock=clock)

    def rebuild(self, *days: date) -> Built:
        """Build these days again."""
        return self._job.rebuild([Day(QUEUE, day) for day in days])

    def forget_all_but_events(self) -> None:
        """What the guide says to remove, so that everything is built again."""
        for path in self.out.iterdir():
            if path.name == "_manifest.json":
                path.unlink()
            elif path.is_dir() and path.name != EVENTS.name:
                shutil.rmtree(path)

    def rows(self, table: Table, where: str = "true") -> list[Row]:
        """What a table holds."""
        return self._spark.read.schema(table.schema).parquet(str(self.out / table.name)).where(where).collect()

    def figures(self) -> Figures:
        [found] = load(self.out)
        return found

    def _read(self, queue: str, *, since: int, until: int) -> DataFrame:
        self.asked.append((since, until))
        return frame(
            self._spark, [event for event in self.events if event.queue == queue and since <= event.at < until]
        )
