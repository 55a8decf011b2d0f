"""A folder of Parquet tables, partitioned by queue and day; what is written for a day takes the place of what was there."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.spark.paths import literally, on_disk
from astyqueue.spark.pipelines.outputs import PARTITIONS, Table

#: Rows in one file; each row is a few hundred bytes.
_ROWS: Final = 5_000_000
#: Where files lie until they are whole; readers pass over folders that are named so.
_STAGED: Final = "_staged"


class Day(NamedTuple):
    """One day of one queue."""

    queue: str
    day: date


class Lake:
    """The tables in a folder that this machine and all workers of Spark see."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Nothing is read or made yet. Java, which may have been started elsewhere, is told the whole path, and that it is of a disk."""
        self._spark = spark
        self.folder = folder.absolute()

    def read(self, table: Table, days: Collection[Day]) -> DataFrame:
        """What a table holds of some days, as far as they are there; SchemaDiffers if files have other columns than it has now."""
        place = self.folder / table.name
        there = [day for day in sorted(days) if self._place(table, day).is_dir()]
        if not there:
            return self._spark.createDataFrame([], table.schema)
        paths = [literally(self._place(table, day)) for day in there]
        for path in _unlike(file for day in there for file in self._place(table, day).glob("*.parquet")):
            table.check_stored(self._spark.read.parquet(literally(path)).schema, str(place))
        return self._spark.read.schema(table.schema).option("basePath", on_disk(place)).parquet(*paths)

    def days(self, table: Table, queue: str) -> set[Day]:
        """The days that a table holds anything of."""
        places = (self.folder / table.name / _named(queue)).glob("day=*")
        return {Day(queue, date.fromisoformat(place.name.removeprefix("day="))) for place in places}

    def write(self, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
        """Have a table hold these rows for the days they are under, in place of what it held, and none for others of `days`.

        New files come to lie beside the old ones before these are removed, so that whoever is killed meanwhile leaves rows twice, and
        never a day without any. One process writes a table at a time.
        """
        place, staged = self.folder / table.name, self.folder / _STAGED / table.name
        rows = table.checked(frame, str(place)).hint("rebalance", *PARTITIONS)
        rows.write.mode("overwrite").partitionBy(*PARTITIONS).option("maxRecordsPerFile", _ROWS).parquet(on_disk(staged))
        written = {path.relative_to(staged) for path in staged.glob("queue=*/day=*")}
        place.mkdir(parents=True, exist_ok=True)
        for day in written | {self._place(table, day).relative_to(place) for day in days}:
            _replace(place / day, staged / day)
        shutil.rmtree(staged)

    def _place(self, table: Table, day: Day) -> Path:
        return self.folder / table.name / _named(day.queue) / f"day={day.day.isoformat()}"


def _replace(place: Path, staged: Path) -> None:
    """Have a folder hold what another one does, of which every file has a name of its own, and be gone if that is nothing."""
    old = list(place.glob("*"))
    for fresh in list(staged.glob("*")):
        place.mkdir(parents=True, exist_ok=True)
        fresh.rename(place / fresh.name)
    for path in old:
        path.unlink()
    if not staged.is_dir() and place.is_dir():
        place.rmdir()


def _named(queue: str) -> str:
    return f"queue={quote(queue, safe='')}"


def days_of(frame: DataFrame) -> dict[Day, int]:
    """The days that a frame has rows of, and how many."""
    return {Day(row["queue"], row["day"]): row["count"] for row in frame.groupBy(*PARTITIONS).count().collect()}


def _unlike(files: Iterable[Path]) -> Collection[Path]:
    """One of all files that have the same columns."""
    return {parquet.read_schema(path).remove_metadata(): path for path in files}.values()


def only(days: Collection[Day], of: Column | None = None) -> Column:
    """Whether a row is of one of these days, or some other day of it."""
    found = F.lit(col=False)
    its = F.col("day") if of is None else of
    for queue in sorted({day.queue for day in days}):
        found = found | ((F.col("queue") == queue) & its.isin(*[day.day for day in days if day.queue == queue]))
    return found
