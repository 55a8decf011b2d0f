"""A folder of Parquet tables, partitioned by queue and day; what is written for a day takes the place of what was there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote
from uuid import uuid4

from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.errors import AstyqueueError
from astyqueue.spark.paths import literally, on_disk
from astyqueue.spark.pipelines.folderlock import locked
from astyqueue.spark.pipelines.outputs import PARTITIONS, Table

#: Rows in one file; each row is a few hundred bytes.
_ROWS: Final = 5_000_000
#: What permissions of a folder are to its files.
_READERS: Final = 0o666
#: Where files lie until they are whole; readers pass over folders that are named so.
_STAGED: Final = "_staged"
#: Writers: the batch job's, of all tables but the stream's.
BATCH: Final = "batch"
LIVE_WRITER: Final = "live"


class Day(NamedTuple):
    """One day of one queue."""

    queue: str
    day: date

    @property
    def path(self) -> Path:
        """Its folder in that of a table."""
        return Path(_named(self.queue), f"day={self.day.isoformat()}")


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

    @contextmanager
    def writer(self, name: str = BATCH, *, wait: int | None = 0) -> Iterator[Writer]:
        """What writes tables, for the length of the block, in which no other process or thread has a writer of this name.

        While there is one, this waits up to `wait` microseconds (None: without limit), then raises FolderInUse. What a writer left
        that was killed is removed.
        """
        with locked(self.folder, name, wait=wait):
            staging = self.folder / _STAGED / name
            shutil.rmtree(staging, ignore_errors=True)
            try:
                yield Writer(self.folder, staging / uuid4().hex)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def _place(self, table: Table, day: Day) -> Path:
        return self.folder / table.name / day.path


class Writer:
    """Replaces days of tables in a folder; used by one thread."""

    def __init__(self, folder: Path, staging: Path) -> None:
        """Files are first written to a folder that no other writer uses."""
        self._folder = folder
        self._staging = staging

    def write(self, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
        """Have a table hold the frame's rows of these days in place of what it held, and none for days that the frame has no rows of.

        Rows of other days are left out: a frame that Spark computed again, because a machine was lost, may have some that were
        not there when its days were counted.
        """
        place, staged = self._folder / table.name, self._staging / table.name
        rows = table.checked(frame, str(place)).where(only(days)).hint("rebalance", *PARTITIONS)
        rows.write.partitionBy(*PARTITIONS).option("maxRecordsPerFile", _ROWS).parquet(on_disk(staged))
        publish(staged, place, {day.path for day in days}, lasting=bool(table.always))
        shutil.rmtree(staged)


def publish(staged: Path, place: Path, days: Collection[Path], *, lasting: bool) -> None:
    """Have each of these folders of days in `place` hold what it holds in `staged`, in which every file has a name of its own.

    New files come to lie beside the old ones before these are removed, so that a process that is killed meanwhile leaves rows
    twice, and never a day without any. A day that `staged` lacks is removed, except in a table that is `lasting`, which cannot be
    built again. FilesLost if staged files are missing; then nothing was removed.

    Whoever may use the folder of all tables may read the files, and nobody else: Spark makes them for everybody.
    """
    if not staged.is_dir():
        raise FilesLost(staged)
    fresh = {path.relative_to(staged): list(path.iterdir()) for path in staged.glob("queue=*/day=*")}
    for day in {*fresh, *days}:
        if not fresh.get(day, not lasting):
            raise FilesLost(staged / day)
    place.mkdir(parents=True, exist_ok=True)  # a table of which there is nothing is a folder too
    mode = place.parent.stat().st_mode & _READERS
    for path in (file for files in fresh.values() for file in files):
        if path.stat().st_uid == os.geteuid():  # workers of a cluster may be another user, who alone can change theirs
            path.chmod(mode)
    for day in {*fresh, *days}:
        _replace(place / day, fresh.get(day, ()))


def _replace(place: Path, fresh: Collection[Path]) -> None:
    """Have a folder hold these files and no others, and be gone if there are none."""
    old = list(place.glob("*"))
    if fresh:
        place.mkdir(parents=True, exist_ok=True)
    for path in fresh:
        path.rename(place / path.name)
    for path in old:
        path.unlink()
    if not fresh and place.is_dir():
        place.rmdir()


class FilesLost(AstyqueueError):
    """Files that were just written for a day are gone; the table still holds what it held of that day."""

    def __init__(self, staged: Path) -> None:
        """Name the folder that should be there."""
        self.staged = staged
        super().__init__(
            f"{staged} was written and is not there any more, so that the table was left as it was: something else removes files in this "
            "folder, or the workers of Spark do not see the same folder as this process"
        )


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
