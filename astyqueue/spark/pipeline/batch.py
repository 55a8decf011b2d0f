"""The batch job: read the new events of the history, and rebuild every day that they belong to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import Final, Protocol, Self

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.clock import Clock, SystemClock, instant
from astyqueue.durations import Duration, as_microseconds, instant_of
from astyqueue.model.event import Kind
from astyqueue.spark.connections import open_read_only, time_of_store
from astyqueue.spark.errors import check_kept
from astyqueue.spark.options import Place, everywhere
from astyqueue.spark.pipeline import manifest as manifests
from astyqueue.spark.pipeline.enrich import is_, marked
from astyqueue.spark.pipeline.manifest import Manifest, ReadSoFar
from astyqueue.spark.pipeline.messages import joined, messages, with_messages
from astyqueue.spark.pipeline.parquet_store import Day, Lake, Writer, days_of, only
from astyqueue.spark.pipeline.schemas import APART, ATTEMPTS, EVENTS, FACTS, FAILURES, MESSAGES, SCHEDULES, Table
from astyqueue.spark.pipeline.slo import Objectives
from astyqueue.spark.pipeline.transforms import (
    approximate_percentiles,
    attempts,
    exact_percentiles,
    facts,
    failures,
    schedules,
)
from astyqueue.spark.session import UTC, configured
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND

_log: Final = logging.getLogger("astyqueue.pipeline")
_HOUR: Final = 3_600 * SECOND


class Reader(Protocol):
    """A source of the events of a queue."""

    def __call__(self, queue: str, *, since: int, until: int) -> DataFrame:
        """The events from `since` up to `until` (microseconds)."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """The interval to read: `since` up to `until` (None: now) in microseconds; later runs read events ahead of now.

    Without `since`, a run continues where the last one ended, less `lateness`; a first run reads back for the duration
    `kept` (None: that for which the queue keeps its history). HistoryGone if events from after the last run have
    expired, unless `accept_gap`.
    """

    since: int | None = None
    until: int | None = None
    lateness: int = _HOUR
    kept: int | None = None
    accept_gap: bool = False

    @classmethod
    def of(
        cls,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        lateness: Duration = "1h",
        kept: Duration | None = None,
        accept_gap: bool = False,
    ) -> Self:
        """The same from aware datetimes, and durations such as "2h", seconds or a timedelta; BadInput for others."""
        begin, end = (None if moment is None else instant_of(moment) for moment in (since, until))
        back = None if kept is None else as_microseconds(kept)
        return cls(begin, end, as_microseconds(lateness), back, accept_gap)

    def stretch(self, queue: str, mark: int | None, *, now: int, kept: int) -> tuple[int, int]:
        """The interval for a queue that was read up to `mark` (None: not yet) and keeps its history for `kept`."""
        until = now if self.until is None else min(self.until, now)
        if self.since is not None:
            return self.since, until
        if mark is None:
            return max(0, until - (kept if self.kept is None else self.kept)), until
        if not self.accept_gap:
            check_kept(queue, read=mark, now=now, kept=kept)
        return mark - self.lateness, until


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a run: the days it built, the number of their events, and the interval read of each queue."""

    days: tuple[Day, ...] = ()
    events: int = 0
    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Job:
    """Builds the tables of a folder."""

    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        *,
        objectives: Objectives | None = None,
        approximately: bool = False,
        wait: Duration = 0,
    ) -> None:
        """Percentiles are exact, or with `approximately` estimated, which takes less memory for days with many values.

        While another process writes the tables, a run waits up to `wait` ("1h", seconds, a timedelta), then raises
        FolderInUse.
        """
        self._spark = spark
        self._lake = Lake(spark, out)
        self._objectives = objectives or Objectives()
        self._approximately = approximately
        self._percentiles = approximate_percentiles if approximately else exact_percentiles
        self._wait = as_microseconds(wait)

    def run(self, url: str, queues: Iterable[str], span: Span | None = None, *, clock: Clock | None = None) -> Built:
        """Read the history of these queues and bring the tables up to date; reading it again changes nothing.

        "Now" is the store's, by which events are dated, unless there is a `clock`.
        """
        kept = {
            queue: open_read_only(Place(everywhere(url), queue)).settings.behaviour.history_kept_us for queue in queues
        }
        now = clock.now if clock else partial(time_of_store, url, kept)
        return self._run_alone(partial(events, self._spark, url), kept, span or Span(), now)

    def run_on(
        self, read: Reader, queues: Mapping[str, int], span: Span | None = None, *, clock: Clock | None = None
    ) -> Built:
        """As `run`, with the events that `read` returns; `queues` has the microseconds that each keeps its history.

        "Now" is this machine's, unless there is a `clock`: it is to be that of who dates the events.
        """
        return self._run_alone(read, queues, span or Span(), (clock or SystemClock()).now)

    def _run_alone(self, read: Reader, queues: Mapping[str, int], span: Span, now: Callable[[], int]) -> Built:
        with configured(self._spark, UTC), self._lake.writer(wait=self._wait) as writer:
            return self._run(writer, read, queues, span, now=now())

    def _run(self, writer: Writer, read: Reader, queues: Mapping[str, int], span: Span, *, now: int) -> Built:
        before = manifests.load(self._lake.folder)
        marks = {queue: before.mark(queue, now) for queue in sorted(queues)}
        ranges = {queue: span.stretch(queue, mark, now=now, kept=queues[queue]) for queue, mark in marks.items()}
        if not ranges:
            return Built()
        landed = (day for queue in ranges for day in self._lake.days(EVENTS, queue))
        unbuilt = {day for day in landed if day.day not in before.built(day.queue)}
        frames = [read(queue, since=since, until=until) for queue, (since, until) in ranges.items()]
        fresh = reduce(DataFrame.unionByName, frames).persist()
        try:
            touched = days_of(fresh)
            changed = {Day(day.queue, day.day - timedelta(days=back)) for day in touched for back in (0, 1)}
            self._begin(before, changed)
            self._land(writer, fresh, touched.keys() | self._doubled(unbuilt - touched.keys()))
        finally:
            fresh.unpersist()
        built = self._rebuild(writer, changed | unbuilt)
        self._note(before, {queue: (marks[queue], *interval) for queue, interval in ranges.items()}, built.days)
        return Built(built.days, built.events, ranges)

    def _land(self, writer: Writer, fresh: DataFrame, days: Collection[Day]) -> None:
        """Add events to those of these days in the table, each once.

        Of duplicates a `lost` one wins: a loss is known later.
        """
        together = self._lake.read(EVENTS, days).unionByName(fresh)
        same = Window.partitionBy(*_of_an_event()).orderBy(F.col("lost").desc_nulls_last())
        once = together.withColumn("rank", F.row_number().over(same)).where("rank = 1").drop("rank")
        writer.write(EVENTS, once, days)

    def _doubled(self, days: Collection[Day]) -> set[Day]:
        """Those of these days with an event more than once: a run was killed as it replaced their files."""
        times = self._lake.read(EVENTS, days).groupBy("day", *_of_an_event()).count()
        return set(days_of(times.where("count > 1")))

    def rebuild(self, days: Collection[Day]) -> Built:
        """Rebuild the other tables for these days from the table of events, and update messages sent earlier."""
        with configured(self._spark, UTC), self._lake.writer(wait=self._wait) as writer:
            before = manifests.load(self._lake.folder)
            self._begin(before, days)
            built = self._rebuild(writer, days)
            self._store(before, built.days)
            return built

    def _begin(self, before: Manifest, days: Iterable[Day]) -> None:
        """Record that these days are not built now, so that the next run builds them if this one is killed."""
        unbuilt = before.without(days)
        if unbuilt != before:
            manifests.store(self._lake.folder, unbuilt)

    def _rebuild(self, writer: Writer, days: Collection[Day]) -> Built:
        if not days:
            return Built()
        known = marked(self._lake.read(EVENTS, _around(days))).persist()
        try:
            counted = days_of(known)
            landed = {day for queue in {day.queue for day in days} for day in self._lake.days(EVENTS, queue)}
            there = sorted((counted.keys() | landed) & set(days))  # all events of a day may be lost since
            of_days = with_messages(known.where(only(there)), self._update_messages(writer, known, days))
            _write(writer, ATTEMPTS, attempts(of_days), there)
            _write(writer, FACTS, facts(of_days, self._objectives, self._percentiles), there)
            _write(writer, FAILURES, failures(of_days), there)
            _write(writer, SCHEDULES, schedules(of_days, self._percentiles), there)
            return Built(tuple(there), sum(counted.get(day, 0) for day in there))
        finally:
            known.unpersist()

    def _update_messages(self, writer: Writer, known: DataFrame, built: Collection[Day]) -> DataFrame:
        """Merge messages in these events into the table, whenever they were sent; returns the rows of their days.

        The old row of a message is dropped if all days from its sending to its last change were read: some of the
        events that it was made of may be lost since. A message that was only sent is kept: that event may lie on a
        later day, and is never lost.
        """
        found = messages(self._placed(known)).persist()
        try:
            read, days = _around(built), days_of(found).keys() | set(built)
            life = F.sequence(F.to_date("sent"), F.to_date("changed"))
            lasting = ~F.forall(life, lambda day: only(read, day)) | (F.col("event") == Kind.SENT.value)
            others = self._lake.read(MESSAGES, days).where(lasting)
            _write(writer, MESSAGES, joined(others.unionByName(found)), days)
        finally:
            found.unpersist()
        return self._lake.read(MESSAGES, days)

    def _placed(self, known: DataFrame) -> DataFrame:
        """These events with the moment of sending of messages that were sent on days before, from their rows.

        The events of deletions and redrives lack it.
        """
        is_placed = F.col("message").isNull() | F.col("sent").isNotNull()
        unplaced = known.where(~is_placed & ~is_(Kind.SENT)).select("queue", "message").distinct()
        queues = {row["queue"] for row in unplaced.select("queue").distinct().collect()}
        if not queues:
            return known
        rows = self._lake.read(MESSAGES, {day for queue in queues for day in self._lake.days(MESSAGES, queue)})
        sent = rows.select("queue", "message", F.col("sent").alias("its_sent"))
        placed = known.join(sent.join(unplaced, ["queue", "message"], "left_semi"), ["queue", "message"], "left")
        return placed.withColumn("sent", F.coalesce("sent", "its_sent")).drop("its_sent")

    def _note(self, before: Manifest, read: Mapping[str, tuple[int | None, int, int]], built: Iterable[Day]) -> None:
        """Record for later runs up to when each queue was read, and which days were built.

        An interval that begins after the mark leaves a gap: the mark stays, and the next run continues from it.
        """
        days: dict[str, dict[date, int]] = {queue: dict(known.days) for queue, known in before.queues.items()}
        for queue, day in built:
            days.setdefault(queue, {})[day] = read[queue][-1]
        queues = dict(before.queues)
        for queue, (mark, since, until) in read.items():
            so_far = until if mark is None else max(mark, until) if since <= mark else mark
            known = before.queues.get(queue)
            queues[queue] = ReadSoFar(
                until_us=so_far,
                days=days.get(queue, {}),
                objective=self._objectives.of(queue).text,
                approximate=known.approximate if known else (),
            )
        self._store(Manifest(queues=queues), built)

    def _store(self, manifest: Manifest, built: Iterable[Day]) -> None:
        manifests.store(self._lake.folder, manifest.with_percentiles(built, approximate=self._approximately))


def _around(built: Collection[Day]) -> set[Day]:
    """The days whose events are read to build these: an attempt may end on the next day."""
    return {Day(day.queue, day.day + timedelta(days=ahead)) for day in built for ahead in (0, 1)}


def _write(writer: Writer, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
    log_event(_log, logging.INFO, "pipeline_writes", table=table.name)
    writer.write(table, frame, days)


def summary(built: Built) -> str:
    """The result of a run in one line."""
    if not built.days:
        return "nothing new was read"
    of_any = {day for _, day in built.days}
    first, last = min(of_any), max(of_any)
    days = f"{first}" if first == last else f"{len(of_any)} days ({first} to {last})"
    done = f"built {days} from {built.events:,} events"
    if not built.read:  # days that were built again
        return done
    ends = max(until for _, until in built.read.values())
    return f"{done}, read up to {instant(ends):%Y-%m-%d %H:%M:%S} UTC"


def _of_an_event() -> list[Column | str]:
    """The columns that are the same in an event that was written twice; of one that cannot be read here, all stored."""
    unread = is_(Kind.UNKNOWN) | F.coalesce("message", "key").isNull()
    return [*APART, F.when(unread, F.col("raw")).alias("stored")]


_FORMAT = "astyqueue"


def events(spark: SparkSession, url: str, queue: str, *, since: int, until: int) -> DataFrame:
    """The events of a queue from `since` up to `until` (microseconds), with the columns of the table `events`."""
    options = stretch_options(url, queue, since=since, until=until)
    return as_events(spark.read.format(_FORMAT).options(**options).load())


def stretch_options(url: str, queue: str, *, since: int, until: int) -> dict[str, str]:
    """Options of the data source for an interval of history, read by a quorum: events missed now are not read again."""
    moments = {"since": instant(since).isoformat(), "until": instant(until).isoformat()}
    return {"url": url, "queue": queue, "table": "history", "consistency": "quorum", **moments}


def followed(spark: SparkSession, url: str, queue: str, *, since: int, accept_gap: bool = False) -> DataFrame:
    """As `events`, a stream that begins at `since` and stays a minute behind.

    It fails if history that it has not read has expired, unless `accept_gap`.
    """
    options = {"url": url, "queue": queue, "table": "history", "since": instant(since).isoformat()}
    return as_events(spark.readStream.format(_FORMAT).options(**options, failOnDataLoss=str(not accept_gap)).load())


def as_events(history: DataFrame) -> DataFrame:
    """Rows of history with the columns of the table `events`."""
    return history.withColumn("day", F.to_date("at")).select(*EVENTS.schema.names)
