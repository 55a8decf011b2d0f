"""A folder of Parquet tables, partitioned by queue and day; a write replaces whole days."""

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

from astyqueue.errors import AstyqueueError, BadInput
from astyqueue.files import sync_names
from astyqueue.spark.pipeline.folder_lock import locked
from astyqueue.spark.pipeline.manifest import mode_in
from astyqueue.spark.pipeline.schemas import PARTITIONS, Table
from astyqueue.spark.session import literally, on_disk

#: Rows in one file; each row is a few hundred bytes.
_ROWS: Final = 5_000_000
#: The folder of files that are not complete yet; readers skip names with a leading underscore.
_STAGED: Final = "_staged"
#: The name of a folder of rows without a value, in Spark, Hive and Arrow.
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: Names of writers: the batch job writes all tables but `live`, the stream writes `live`.
BATCH: Final = "batch"
LIVE_WRITER: Final = "live"


class Day(NamedTuple):
    """One day of one queue."""

    queue: str
    day: date

    @property
    def path(self) -> Path:
        """Its folder, relative to that of a table."""
        return Path(_named(self.queue), f"day={self.day.isoformat()}")


class Lake:
    """The tables in a folder that this machine and all workers of Spark can access."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Nothing is read or made yet. Java gets absolute file:// paths: it may have another working directory."""
        self._spark = spark
        self.folder = folder.absolute()

    def read(self, table: Table, days: Collection[Day]) -> DataFrame:
        """The rows of a table for these days, if there are any; SchemaDiffers if files differ from its declaration."""
        place = self.folder / table.name
        there = [day for day in sorted(days) if self._place(table, day).is_dir()]
        if not there:
            return self._spark.createDataFrame([], table.schema)
        paths = [literally(self._place(table, day)) for day in there]
        for path in _unlike(file for day in there for file in self._place(table, day).glob("*.parquet")):
            table.check_stored(self._spark.read.parquet(literally(path)).schema, str(place))
        return self._spark.read.schema(table.schema).option("basePath", on_disk(place)).parquet(*paths)

    def days(self, table: Table, queue: str) -> set[Day]:
        """The days of a queue that a table has files of."""
        files = (self.folder / table.name / _named(queue)).glob("day=*/*.parquet")
        return {Day(queue, date.fromisoformat(file.parent.name.removeprefix("day="))) for file in files}

    @contextmanager
    def writer(self, name: str = BATCH, *, wait: int | None = 0) -> Iterator[Writer]:
        """The only writer of this name in all processes and threads, valid during the block.

        While there is another one, this waits up to `wait` microseconds (None: without limit), then raises FolderInUse.
        Staged files of a writer that was killed are removed.
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
        """Files are first written to `staging`, a folder that no other writer uses."""
        self._folder = folder
        self._staging = staging

    def write(self, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
        """Replace these days of a table by the frame's rows of them; a day without rows becomes empty.

        Rows of other days are left out: a frame that Spark computed again, because a machine was lost, may have rows
        that were not there when its days were counted.
        """
        place, staged = self._folder / table.name, self._staging / table.name
        rows = table.checked(frame, str(place)).where(only(days)).hint("rebalance", *PARTITIONS)
        rows.write.partitionBy(*PARTITIONS).option("maxRecordsPerFile", _ROWS).parquet(on_disk(staged))
        publish(staged, place, {day.path for day in days}, lasting=bool(table.always))
        shutil.rmtree(staged)


def publish(staged: Path, place: Path, days: Collection[Path], *, lasting: bool) -> None:
    """Replace these folders of days in `place` by those in `staged`, whose file names are all unique.

    New files are moved in, and are on the disk, before the old ones are removed: a process that is killed in between,
    or a machine that fails, leaves rows twice, and never a day without rows. A day that `staged` lacks is removed,
    except in a table that is `lasting`, which cannot be built again. FilesLost if staged files are missing; then
    nothing was removed.

    The files get the permissions of the folder of all tables: Spark makes them readable for all users.
    """
    if not staged.is_dir():
        raise FilesLost(staged)
    fresh = {path.relative_to(staged): list(path.iterdir()) for path in staged.glob("queue=*/day=*")}
    for day in {*fresh, *days}:
        if not fresh.get(day, not lasting):
            raise FilesLost(staged / day)
    place.mkdir(parents=True, exist_ok=True)  # an empty table has a folder too
    mode = mode_in(place.parent)
    for path in (file for files in fresh.values() for file in files):
        if path.stat().st_uid == os.geteuid():  # workers of a cluster may run as another user: its files stay
            path.chmod(mode)
        _sync(path)
    for day in {*fresh, *days}:
        _replace(place / day, fresh.get(day, ()))
    for folder in {place.parent, place, *((place / day).parent for day in {*fresh, *days})}:
        if folder.is_dir():  # that of a queue none of whose days has rows may not be there
            sync_names(folder)


def _replace(place: Path, fresh: Collection[Path]) -> None:
    """Replace the files of a folder by these; without any the folder is removed."""
    old = list(place.glob("*"))
    if fresh:
        place.mkdir(parents=True, exist_ok=True)
    for path in fresh:
        path.rename(place / path.name)
    if fresh:
        sync_names(place)
    for path in old:
        path.unlink()
    if fresh:
        sync_names(place)
    elif place.is_dir():
        place.rmdir()


def _sync(path: Path) -> None:
    """Return when the content of this file, which another process wrote, is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class FilesLost(AstyqueueError):
    """Files that were just written for a day are missing; the table was not changed."""

    def __init__(self, staged: Path) -> None:
        """Name the missing folder."""
        self.staged = staged
        super().__init__(
            f"{staged} was written and is missing now, so the table was left as it was: another process removes "
            "files in this folder, or the workers of Spark do not see the same folder as this process"
        )


def _named(queue: str) -> str:
    if queue == _NO_VALUE:
        message = (
            f"queue {queue} cannot have tables: its folder is that of rows without a queue. Name other queues (-Q)"
        )
        raise BadInput(message)
    return f"queue={quote(queue, safe='')}"


def days_of(frame: DataFrame) -> dict[Day, int]:
    """The days that a frame has rows of, with the number of rows."""
    return {Day(row["queue"], row["day"]): row["count"] for row in frame.groupBy(*PARTITIONS).count().collect()}


def _unlike(files: Iterable[Path]) -> Collection[Path]:
    """One file for each different set of columns."""
    return {parquet.read_schema(path).remove_metadata(): path for path in files}.values()


def only(days: Collection[Day], of: Column | None = None) -> Column:
    """A condition: the row's queue and its `day`, or the day `of`, are among these days."""
    found = F.lit(col=False)
    its = F.col("day") if of is None else of
    for queue in sorted({day.queue for day in days}):
        found = found | ((F.col("queue") == queue) & its.isin(*[day.day for day in days if day.queue == queue]))
    return found
