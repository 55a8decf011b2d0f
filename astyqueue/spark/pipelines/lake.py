"""A folder of Parquet tables, partitioned by queue and day; what is written for a day takes the place of what was there."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.spark.pipelines.outputs import PARTITIONS, Table

#: Rows in one file; each row is a few hundred bytes.
_ROWS: Final = 5_000_000


class Day(NamedTuple):
    """One day of one queue."""

    queue: str
    day: date


class Lake:
    """The tables in a folder that this machine and all workers of Spark see."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Nothing is read or made yet. Java, which may have been started elsewhere, is told the whole path."""
        self._spark = spark
        self.folder = folder.absolute()

    def read(self, table: Table, days: Collection[Day]) -> DataFrame:
        """What a table holds of some days, as far as they are there; SchemaDiffers if files have other columns than it has now."""
        place = self.folder / table.name
        there = [day for day in sorted(days) if self._place(table, day).is_dir()]
        if not there:
            return self._spark.createDataFrame([], table.schema)
        paths = [str(self._place(table, day)) for day in there]
        table.check_stored(self._spark.read.option("basePath", str(place)).parquet(paths[0]).schema, str(place))
        return self._spark.read.schema(table.schema).option("basePath", str(place)).parquet(*paths)

    def write(self, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
        """Have a table hold these rows for the days they are under, in place of what it held, and none for others of `days`."""
        place = self.folder / table.name
        before = {day: self._files(table, day) for day in days}
        writer = table.checked(frame, str(place)).hint("rebalance", *PARTITIONS).write.mode("overwrite").partitionBy(*PARTITIONS)
        writer.option("partitionOverwriteMode", "dynamic").option("maxRecordsPerFile", _ROWS).parquet(str(place))
        for day, files in before.items():
            # Whatever was written has new names: the same ones were left over from when there were rows.
            if files and self._files(table, day) == files:
                shutil.rmtree(self._place(table, day))

    def _files(self, table: Table, day: Day) -> set[str]:
        return {path.name for path in self._place(table, day).glob("*.parquet")}

    def _place(self, table: Table, day: Day) -> Path:
        return self.folder / table.name / f"queue={quote(day.queue, safe='')}" / f"day={day.day.isoformat()}"


def days_of(frame: DataFrame) -> dict[Day, int]:
    """The days that a frame has rows of, and how many."""
    return {Day(row["queue"], row["day"]): row["count"] for row in frame.groupBy(*PARTITIONS).count().collect()}


def only(days: Collection[Day]) -> Column:
    """Whether a row is of one of these days."""
    found = F.lit(col=False)
    for queue in sorted({day.queue for day in days}):
        found = found | ((F.col("queue") == queue) & F.col("day").isin(*[day.day for day in days if day.queue == queue]))
    return found
