"""Import of files into a queue: CSV, JSON lines or Parquet, file by file; run it again until every file is sent.

A manifest records the files that were sent. It also has the name of the run, from which the ids of the messages are
made: a file that was sent in part is sent again, and its messages that are in the queue already stay as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple, Self

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import any_value, col, count, lit
from pyspark.sql.functions import sum as sum_of

from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput
from astyqueue.files import replace_file
from astyqueue.spark.pipeline.folder_lock import locked
from astyqueue.spark.session import configured, literally
from astyqueue.stores.url import locate
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

FORMATS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
#: A line that cannot be read ends the run: no message is made from a part of a line.
_SPARK_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"header": "true", "mode": "FAILFAST", "escape": '"'},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}
_KINDS: Final[Mapping[str, str]] = {
    "csv": "CSV with a header",
    "json": "JSON with one object a line",
    "parquet": "Parquet",
}
_CASSANDRA: Final = "cassandra"
_USUAL_PORT: Final = ":9042"
#: The first characters of names that Spark passes over.
_PASSED_OVER: Final = ("_", ".")
#: Bytes of a file in one task: small, so that a retried task repeats little and progress is visible.
_TASK_BYTES: Final = 4 * 1024 * 1024
_LOOK: Final = SECOND // 5
#: What happened to a file when its run finds another one in the manifest.
_NOTHING_SENT: Final = (
    "nothing of this file was sent. Run this again when that run has ended: it then continues that run"
)
_ALL_SENT: Final = (
    "all {rows} rows of this file were sent under the ids of this run, and are not recorded. That run sends them a "
    "second time, unless it is stopped or given other files"
)
#: What the user of a file learns under whose name another content was sent.
_SENT_BEFORE: Final = (
    "{file} was sent before with another content: rows whose messages were done or deleted more than a day ago (the "
    "queue's setting deduplication) are sent again. To send only new rows, give them in a file of another name"
)
#: Characters of columns that are shown.
_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to be sent, and how it is read.

    `infer`: a value of a CSV file that looks like a number or a timestamp becomes one; else all values are text.
    `merge`: of rows with the same id one is sent; else the file is refused.
    """

    path: Path
    kind: str
    infer: bool = False
    merge: bool = False

    @classmethod
    def of(cls, path: Path, kind: str | None = None, *, infer: bool = False, merge: bool = False) -> Self:
        """This file, of this kind ("csv", "json", "parquet"). Default: by its extension.

        BadInput if its extension is another one, or if Spark reads no files of such names.
        """
        known = kind or FORMATS.get(path.suffix.lower(), "")
        if known not in _SPARK_OPTIONS:
            message = (
                f"{path}: the kind of this file does not follow from its name; give one of {', '.join(_SPARK_OPTIONS)}"
            )
            raise BadInput(message)
        found = path.resolve()
        if found.name.startswith(_PASSED_OVER):
            message = f"{path}: Spark reads no file whose name begins with '_' or '.': give it another name"
            raise BadInput(message)
        return cls(found, known, infer, merge)

    @property
    def description(self) -> str:
        """Its name, and the format that it is read as."""
        as_text = ", all of it text" if self.kind == "csv" and not self.infer else ""
        return f"{self.path.name}, read as {_KINDS[self.kind]}{as_text}"

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.path.stat().st_size

    def frame(self, spark: SparkSession) -> DataFrame:
        """Its rows as a DataFrame, which Spark reads when it is used."""
        inferring = {"inferSchema": str(self.infer)} if self.kind == "csv" else {}
        return spark.read.format(self.kind).options(**_SPARK_OPTIONS[self.kind], **inferring).load(literally(self.path))


class Progress(NamedTuple):
    """The progress of a run: bytes of files sent, bytes of all files to be sent, and the name of the current file."""

    sent: int
    total: int
    file: str


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The result of a run: the rows and files that it sent, and the files that it skipped as sent before."""

    rows: int
    files: int
    skipped: int


class Bulk:
    """Sends files to a queue and records them in a manifest."""

    def __init__(self, spark: SparkSession, sink: Mapping[str, str], manifest: Manifest) -> None:
        """Send with these options of the sink."""
        self._spark = spark
        self._sink = dict(sink)
        self._manifest = manifest
        self._clock = SystemClock()

    def send(
        self,
        files: Iterable[SourceFile],
        progress: Callable[[Progress], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> Enqueued:
        """Send those of these files that were not sent yet. Call it again after an error or a crash.

        `warn` gets a sentence for each that was sent before with another content.
        """
        found = list(files)
        known = self._manifest.known(file.path for file in found)
        left = [file for file in found if not known[file.path].done]
        for file in left:
            if self._manifest.has_other_content(known[file.path]):
                warn(_SENT_BEFORE.format(file=file.path.name))
        rows, before, total = 0, 0, sum(file.size for file in left)
        for file in left:
            sent = self._try(file, known[file.path], partial(_report, progress, file, sent=before, total=total))
            self._manifest.note(known[file.path], sent)
            rows, before = rows + sent, before + file.size
        return Enqueued(rows, len(left), len(found) - len(left))

    def _try(self, file: SourceFile, known: Known, progress: Callable[[float], None]) -> int:
        """Send a file; a note on an error names the file."""
        try:
            return self._send(file, known, progress)
        except Exception as error:
            error.add_note(file.description)
            raise

    def _send(self, file: SourceFile, known: Known, progress: Callable[[float], None]) -> int:
        """Send a file, and return the number of its rows; `progress` gets the part that is done, from 0 to 1."""
        with configured(self._spark, {"spark.sql.files.maxPartitionBytes": str(_TASK_BYTES)}):
            return self._send_in_parts(file, known, progress)

    def _send_in_parts(self, file: SourceFile, known: Known, progress: Callable[[float], None]) -> int:
        counted = Observation()
        rows = file.frame(self._spark)
        _check(file, rows, self._sink.get("id_column"))
        frame = rows.observe(counted, count(lit(1)).alias("rows"))
        options = self._sink | {"query": f"{self._manifest.run}/{known.source}"}
        writing = frame.write.format("astyqueue").mode("append").options(**options)
        self._manifest.note(known)  # before the first row: another run must use the same names, hence the same ids
        with self._watched(progress):
            writing.save()
        _check_content(file, known)
        return int(counted.get["rows"])

    @contextlib.contextmanager
    def _watched(self, progress: Callable[[float], None]) -> Iterator[None]:
        """Report the progress during the block from another thread.

        The write stays in this one: Spark knows the data sources of a session only in the thread that made the session.
        """
        ended = Wakeup(self._clock)
        over = Event()

        def watch() -> None:
            most = 0.0
            while not over.is_set():
                # A stage that has ended is not active, and the sink commits after it.
                most = max(most, self._part_done())
                progress(most)
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
        """The part of the tasks of active stages that have ended; 0 with a Spark Connect server, which does not say."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
        except PySparkException:
            return 0.0
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
        return sum(one.numCompletedTasks for one in stages) / max(1, sum(one.numTasks for one in stages))


def _check_content(file: SourceFile, known: Known) -> None:
    """BadInput if the file is another one than was looked up in the manifest, which may be hours ago."""
    if _content(file.path) != known.content:
        message = (
            f"{file.path} changed while this command ran, so it is not recorded as sent: run this again when "
            "nothing writes to the file. It sends only what is missing"
        )
        raise BadInput(message)


def _check(file: SourceFile, rows: DataFrame, wanted: str | None) -> None:
    """Check that the id column exists and that its ids are unique: of rows with the same id one would be sent."""
    if wanted is None:
        return
    if wanted not in rows.columns:  # the file may be of another kind, so its column names are quoted and cut
        there = f"it has {', '.join(map(repr, rows.columns)):.{_SHOWN}}" if any(rows.columns) else "it has none"
        message = f"{file.description}, has no column {wanted!r}; {there}"
        raise BadInput(message)
    if not file.merge:
        _check_ids(file, rows, wanted)


def _check_ids(file: SourceFile, rows: DataFrame, column: str) -> None:
    named = col("`" + column.replace("`", "``") + "`")
    several = rows.groupBy(named.alias("id")).agg(count(lit(1)).alias("rows")).where("id IS NOT NULL AND rows > 1")
    (found,) = several.agg(count(lit(1)), sum_of("rows"), any_value("id")).collect()
    ids, repeated, one = found
    if ids:
        message = (
            f"{file.description}: {repeated} rows share {ids} ids in column {column!r} "
            f"(for example {str(one)!r:.{_SHOWN}}), so only {ids} of them would be sent. Nothing of this file was "
            "sent: name a column whose values are unique, or merge rows with the same id "
            "(--merge, SourceFile.of(..., merge=True))"
        )
        raise BadInput(message)


def _report(progress: Callable[[Progress], None], file: SourceFile, part: float, *, sent: int, total: int) -> None:
    progress(Progress(sent + int(part * file.size), total, file.path.name))


class Known(NamedTuple):
    """A file in a manifest: the SHA-256 of its content, its name in message ids, and whether all of it was sent."""

    content: str
    source: str
    done: bool


@dataclass
class Manifest:
    """The files that a run has sent so far, kept in a file.

    `files` has, by the hash of their content, the names of files with the number of rows sent; None for a file that was
    begun and not finished.
    """

    path: Path
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    target: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, int | None]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, target: dict[str, str]) -> Manifest:
        """The manifest in this file, or a new one; BadInput if it is of a run to another target, or not a manifest."""
        if not path.exists():
            return cls(path, target=target)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            to = {name: str(value) for name, value in kept["target"].items()}
            loaded = cls(path, kept["run"], to, kept.get("files", {}))
            of_paths = "done" in kept
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path} is not a manifest of an enqueue ({error!r}): name another file, or remove it"
            raise BadInput(message) from error
        if of_paths:
            message = (
                f"{path} was written by an earlier version, which knew files by their paths: finish that run with the "
                "earlier version, or name another manifest and give it only files that were not sent yet"
            )
            raise BadInput(message)
        if not _is_same(loaded.target, target):
            message = (
                f"{path} is the manifest of another run ({loaded.target}), and this one is to {target}: name another "
                'file; or, if that is the same store, correct "store" in this one, which records what was sent'
            )
            raise BadInput(message)
        return loaded

    def known(self, files: Iterable[Path]) -> dict[Path, Known]:
        """The entries of these files. One that was renamed since it was sent keeps the name that it was sent under."""
        alike: dict[str, list[Path]] = {}
        for file in dict.fromkeys(files):
            alike.setdefault(_content(file), []).append(file)
        return {file: known for content, some in alike.items() for file, known in self._of_content(content, some)}

    def _of_content(self, content: str, files: list[Path]) -> Iterator[tuple[Path, Known]]:
        """The entries of all files with this content; a recorded name that no file has now is that of a renamed one."""
        sent = self.files.get(content, {})
        names = [self._name(file) for file in files]
        unused = [name for name in sent if name not in names]
        for file, name in zip(files, names, strict=True):
            source = name if name in sent or not unused else unused.pop(0)
            yield file, Known(content, source, sent.get(source) is not None)

    def _name(self, file: Path) -> str:
        """Its path relative to the folder of the manifest, so that both may be moved together."""
        return Path(os.path.relpath(file, self.path.parent.resolve())).as_posix()

    def has_other_content(self, file: Known) -> bool:
        """Whether a file was sent completely under this name, with another content."""
        return any(
            names.get(file.source) is not None for content, names in self.files.items() if content != file.content
        )

    def note(self, file: Known, rows: int | None = None) -> None:
        """Record that a file was begun (`rows` is None), or that all of it was sent, which was this number of rows."""
        self.files.setdefault(file.content, {})[file.source] = rows
        self.save(_NOTHING_SENT if rows is None else _ALL_SENT.format(rows=rows))

    def save(self, outcome: str = _NOTHING_SENT) -> None:
        """Write it, whole or not at all, readable by its owner only, with what another process of its run noted.

        One process does so at a time. BadInput, with the outcome, if another run has begun to use the file.
        """
        with locked(self.path.parent, self.path.name, wait=None):
            self._take_in_stored(outcome)
            replace_file(
                self.path, json.dumps({"run": self.run, "target": self.target, "files": self.files}, indent=1).encode()
            )

    def _take_in_stored(self, outcome: str) -> None:
        """Add the files that were sent since this was loaded; BadInput if another run has begun to use the file."""
        if not self.path.exists():
            return
        stored = Manifest.load(self.path, self.target)
        if stored.run != self.run:
            message = (
                f"{self.path} was begun by another run meanwhile, which sends its rows under ids of its own: {outcome}"
            )
            raise BadInput(message)
        for content, names in stored.files.items():
            known = self.files.setdefault(content, {})
            known.update({name: rows for name, rows in names.items() if known.get(name) is None})


def place_of(url: str) -> str:
    """The store that a URL names, without user names, passwords and options."""
    location = locate(url)
    place = location.place.rpartition("@")[2] if location.scheme == _CASSANDRA else location.place
    return f"{location.scheme}://{place}"


def _is_same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two targets are the same: any of its nodes may name a Cassandra, in any order."""
    stores = [target.get("store", "") for target in (one, other)]
    same_store = len(set(stores)) == 1 or not _nodes(stores[0]).isdisjoint(_nodes(stores[1]))
    return same_store and {**one, "store": ""} == {**other, "store": ""}


def _nodes(store: str) -> set[str]:
    """The nodes that name a Cassandra, each with the keyspace; none for another store."""
    scheme, _, place = store.partition("://")
    hosts, _, keyspace = place.rpartition("/")
    nodes = hosts.split(",") if scheme == _CASSANDRA else ()
    return {f"{node.strip().removesuffix(_USUAL_PORT)}/{keyspace}" for node in nodes}


def _content(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
