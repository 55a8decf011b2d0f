"""Files into a queue: CSV, JSON lines or Parquet, file by file, to be run again until all of it is there.

A manifest remembers what was sent. It also names the run, from which the ids of the messages are made, so a file that was
sent in part is sent again and what is there already stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple, Self

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import any_value, col, count, lit
from pyspark.sql.functions import sum as sum_of

from astyqueue.clock import SECOND, SystemClock
from astyqueue.errors import BadInput
from astyqueue.spark.manifest import Known, Manifest
from astyqueue.spark.paths import literally
from astyqueue.spark.session import configured
from astyqueue.wakeup import Wakeup

FORMATS: Final[Mapping[str, str]] = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
#: A line that cannot be read ends the run: a message is not made of a part of one.
_READING: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"header": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}
_KINDS: Final[Mapping[str, str]] = {"csv": "CSV with a header", "json": "JSON with one object a line", "parquet": "Parquet"}
#: Bytes of a file in one task: small, so that what is tried again is little and progress is seen.
_TASK_BYTES: Final = 4 * 1024 * 1024
_LOOK: Final = SECOND // 5
#: Characters of columns that are shown.
_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class Reading:
    """A file to be sent, and how it is read.

    `infer` turns what looks like a number or a moment in a CSV file into one; else all of it is text. `merge`: rows with one
    id are the same row, and one of them is sent; else they are refused.
    """

    path: Path
    kind: str
    infer: bool = False
    merge: bool = False

    @classmethod
    def of(cls, path: Path, kind: str | None = None, *, infer: bool = False, merge: bool = False) -> Self:
        """This file, of this kind ("csv", "json", "parquet"), or the kind that its name tells."""
        known = kind or FORMATS.get(path.suffix.lower(), "")
        if known not in _READING:
            message = f"{path}: its name does not tell what kind of file it is; say which, one of {', '.join(_READING)}"
            raise BadInput(message)
        return cls(path.resolve(), known, infer, merge)

    @property
    def told(self) -> str:
        """Its name, and what it is taken for."""
        as_text = ", all of it text" if self.kind == "csv" and not self.infer else ""
        return f"{self.path.name}, read as {_KINDS[self.kind]}{as_text}"

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.path.stat().st_size

    def frame(self, spark: SparkSession) -> DataFrame:
        """Its rows."""
        inferring = {"inferSchema": str(self.infer)} if self.kind == "csv" else {}
        return spark.read.format(self.kind).options(**_READING[self.kind], **inferring).load(literally(self.path))


class Progress(NamedTuple):
    """How far a run has come: bytes of files sent, of all; the file at hand."""

    sent: int
    total: int
    file: str


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What a run came to: rows and files sent now, and files that an earlier one had sent."""

    rows: int
    files: int
    skipped: int


class Bulk:
    """Files on their way into a queue."""

    def __init__(self, spark: SparkSession, sink: Mapping[str, str], manifest: Manifest) -> None:
        """Send with these options of the sink."""
        self._spark = spark
        self._sink = dict(sink)
        self._manifest = manifest
        self._clock = SystemClock()

    def send(self, files: Iterable[Reading], progress: Callable[[Progress], None] = lambda _: None) -> Enqueued:
        """Send all of these that were not sent yet. After an error, or the end of this process, run it again."""
        found = list(files)
        known = self._manifest.known(file.path for file in found)
        left = [file for file in found if not known[file.path].done]
        rows, before, total = 0, 0, sum(file.size for file in left)
        for file in left:
            sent = self._try(file, known[file.path], partial(_told, progress, file, sent=before, total=total))
            self._manifest.note(known[file.path], sent)
            rows, before = rows + sent, before + file.size
        return Enqueued(rows, len(left), len(found) - len(left))

    def _try(self, file: Reading, known: Known, progress: Callable[[float], None]) -> int:
        """Send a file; an error bears a note which one it was."""
        try:
            return self._send(file, known, progress)
        except Exception as error:
            error.add_note(file.told)
            raise

    def _send(self, file: Reading, known: Known, progress: Callable[[float], None]) -> int:
        """Send a file, and say how many rows it has; tells how much of it is done meanwhile."""
        with configured(self._spark, {"spark.sql.files.maxPartitionBytes": str(_TASK_BYTES)}):
            return self._send_in_parts(file, known, progress)

    def _send_in_parts(self, file: Reading, known: Known, progress: Callable[[float], None]) -> int:
        counted = Observation()
        rows = file.frame(self._spark)
        _check(file, rows, self._sink.get("id_column"))
        frame = rows.observe(counted, count(lit(1)).alias("rows"))
        options = self._sink | {"query": f"{self._manifest.run}/{known.source}"}
        writing = frame.write.format("astyqueue").mode("append").options(**options)
        self._manifest.note(known)  # the run and the file have to be known by their names from the first row on
        with self._watched(progress):
            writing.save()
        return int(counted.get["rows"])

    @contextlib.contextmanager
    def _watched(self, progress: Callable[[float], None]) -> Iterator[None]:
        """Tell how far it is meanwhile, from a thread of its own: Spark knows a session's data sources in the thread that made it only."""
        ended = Wakeup(self._clock)
        over = Event()

        def watch() -> None:
            while not over.is_set():
                progress(self._part_done())
                ended.wait(self._clock.monotonic() + _LOOK)

        watching = Thread(target=watch, name="astyqueue:progress", daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            ended.set()
            watching.join()
        progress(1.0)

    def _part_done(self) -> float:
        """The part of the tasks under way that have ended; a server that is elsewhere does not say."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
        except PySparkException:
            return 0.0
        stages = [told for stage in tracker.getActiveStageIds() if (told := tracker.getStageInfo(stage))]
        return sum(one.numCompletedTasks for one in stages) / max(1, sum(one.numTasks for one in stages))


def _check(file: Reading, rows: DataFrame, wanted: str | None) -> None:
    """See that there is a column with ids, and that they tell the rows apart: of rows with one id one would be sent."""
    if wanted is None:
        return
    if wanted not in rows.columns:  # it may be no such file at all, so that what it has is quoted and cut
        there = f"it has {', '.join(map(repr, rows.columns)):.{_SHOWN}}" if any(rows.columns) else "it has none"
        message = f"{file.told}, has no column {wanted!r}; {there}"
        raise BadInput(message)
    if not file.merge:
        _check_ids(file, rows, wanted)


def _check_ids(file: Reading, rows: DataFrame, column: str) -> None:
    named = col("`" + column.replace("`", "``") + "`")
    several = rows.groupBy(named.alias("id")).agg(count(lit(1)).alias("rows")).where("id IS NOT NULL AND rows > 1")
    (found,) = several.agg(count(lit(1)), sum_of("rows"), any_value("id")).collect()
    ids, repeated, one = found
    if ids:
        message = (
            f"{file.told}: {repeated} rows share {ids} ids in column {column!r} ({str(one)!r:.{_SHOWN}} is one), so that {ids} of them "
            "would be sent. Nothing of this file was: name a column that tells its rows apart, or say that rows with one id are the "
            "same (--merge, Reading.of(..., merge=True))"
        )
        raise BadInput(message)


def _told(progress: Callable[[Progress], None], file: Reading, part: float, *, sent: int, total: int) -> None:
    progress(Progress(sent + int(part * file.size), total, file.path.name))
