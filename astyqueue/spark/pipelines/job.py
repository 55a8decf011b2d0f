"""The batch job: read what is new in the history, and build anew every day that it touches."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.clock import SECOND, Clock, SystemClock, instant
from astyqueue.spark.opening import looking
from astyqueue.spark.options import Place, everywhere
from astyqueue.spark.pipelines import manifest as manifests
from astyqueue.spark.pipelines.attempts import attempts
from astyqueue.spark.pipelines.facts import approximate, exact, facts
from astyqueue.spark.pipelines.failures import failures
from astyqueue.spark.pipelines.lake import Day, Lake, Writer, days_of, only
from astyqueue.spark.pipelines.manifest import Manifest, ReadSoFar
from astyqueue.spark.pipelines.marking import marked
from astyqueue.spark.pipelines.messages import joined, messages, waited_once
from astyqueue.spark.pipelines.objectives import Objectives
from astyqueue.spark.pipelines.outputs import APART, ATTEMPTS, EVENTS, FACTS, FAILURES, MESSAGES, SCHEDULES, Table
from astyqueue.spark.pipelines.schedules import schedules
from astyqueue.spark.pipelines.source import events
from astyqueue.spark.retention import check_kept
from astyqueue.spark.session import UTC, configured

_log: Final = logging.getLogger("astyqueue.pipeline")
_HOUR: Final = 3_600 * SECOND


class Reader(Protocol):
    """Has the events of a queue."""

    def __call__(self, queue: str, *, since: int, until: int) -> DataFrame:
        """Those from `since` up to `until` (microseconds)."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """What to read: from `since` up to `until` (None: now), in microseconds; what is ahead of now is left to later runs.

    Without `since` it goes on where the last run ended, less `lateness`; a first run reads as far back as history is `kept` (None:
    for as long as the queue keeps it). If the queue does not keep any more what came after the last run, that raises HistoryGone,
    unless the run may `accept_gap`.
    """

    since: int | None = None
    until: int | None = None
    lateness: int = _HOUR
    kept: int | None = None
    accept_gap: bool = False

    def stretch(self, queue: str, mark: int | None, *, now: int, kept: int) -> tuple[int, int]:
        """The same of a queue that was read up to a mark (None: not yet), and keeps its history for `kept`, in moments."""
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
    """What a run did: the days it built, and how many events of them there are now."""

    days: tuple[Day, ...] = ()
    events: int = 0
    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Job:
    """Builds the tables of a folder."""

    def __init__(
        self, spark: SparkSession, out: Path, *, objectives: Objectives | None = None, approximately: bool = False, wait: int = 0
    ) -> None:
        """Percentiles are exact unless they may be approximate, which takes less memory where a day has very many values.

        While another process writes the tables, a run waits up to `wait` microseconds, then raises FolderInUse.
        """
        self._spark = spark
        self._lake = Lake(spark, out)
        self._objectives = objectives or Objectives()
        self._percentiles = approximate if approximately else exact
        self._wait = wait

    def run(self, url: str, queues: Iterable[str], span: Span | None = None, *, clock: Clock | None = None) -> Built:
        """Read the history of these queues and bring the tables up to date; the same again changes nothing."""
        kept = {queue: looking(Place(everywhere(url), queue)).settings.behaviour.history_kept_us for queue in queues}
        return self.run_on(partial(events, self._spark, url), kept, span, clock=clock)

    def run_on(self, read: Reader, queues: Mapping[str, int], span: Span | None = None, *, clock: Clock | None = None) -> Built:
        """As `run`, with events from wherever `read(queue, since=…, until=…)` has them, of queues that keep them for so long."""
        with configured(self._spark, UTC), self._lake.writer(wait=self._wait) as writer:
            return self._run(writer, read, queues, span or Span(), now=(clock or SystemClock()).now())

    def _run(self, writer: Writer, read: Reader, queues: Mapping[str, int], span: Span, *, now: int) -> Built:
        before = manifests.load(self._lake.folder)
        marks = {queue: before.mark(queue, now) for queue in sorted(queues)}
        stretches = {queue: span.stretch(queue, mark, now=now, kept=queues[queue]) for queue, mark in marks.items()}
        if not stretches:
            return Built()
        fresh = reduce(
            DataFrame.unionByName, [read(queue, since=since, until=until) for queue, (since, until) in stretches.items()]
        ).persist()
        try:
            touched = days_of(fresh)
            self._land(writer, fresh, touched)
        finally:
            fresh.unpersist()
        unbuilt = {day for queue in stretches for day in self._lake.days(EVENTS, queue) if day.day not in before.built(queue)}
        days = {Day(day.queue, day.day - timedelta(days=back)) for day in touched for back in (0, 1)} | unbuilt
        built = self._rebuild(writer, days)
        self._note(before, {queue: (marks[queue], *stretch) for queue, stretch in stretches.items()}, built.days)
        return Built(built.days, built.events, stretches)

    def _land(self, writer: Writer, fresh: DataFrame, touched: Collection[Day]) -> None:
        """Add events to those that are there, each once; that one came to nothing is known later than that it happened."""
        together = self._lake.read(EVENTS, touched).unionByName(fresh)
        same = Window.partitionBy(*APART).orderBy(F.col("lost").desc_nulls_last())
        writer.write(EVENTS, together.withColumn("rank", F.row_number().over(same)).where("rank = 1").drop("rank"), touched)

    def rebuild(self, days: Collection[Day]) -> Built:
        """Build all other tables for these days from the events that were read, and mend messages that were sent earlier."""
        with configured(self._spark, UTC), self._lake.writer(wait=self._wait) as writer:
            return self._rebuild(writer, days)

    def _rebuild(self, writer: Writer, days: Collection[Day]) -> Built:
        if not days:
            return Built()
        around = {Day(day.queue, day.day + timedelta(days=ahead)) for day in days for ahead in (0, 1)}
        known = marked(self._lake.read(EVENTS, around)).persist()
        try:
            counted = days_of(known)
            there = sorted(counted.keys() & set(days))
            of_days = waited_once(known.where(only(there)), self._mend(writer, known, around))
            _write(writer, ATTEMPTS, attempts(of_days), there)
            _write(writer, FACTS, facts(of_days, self._objectives, self._percentiles), there)
            _write(writer, FAILURES, failures(of_days), there)
            _write(writer, SCHEDULES, schedules(of_days, self._percentiles), there)
            return Built(tuple(there), sum(counted[day] for day in there))
        finally:
            known.unpersist()

    def _mend(self, writer: Writer, known: DataFrame, read: Collection[Day]) -> DataFrame:
        """Put what is known of messages together with what was known of them, whenever they were sent; the rows of their days.

        Where every day was read from their sending to what was known last, that does not count any more: some of it may have come
        to nothing since.
        """
        found = messages(known).persist()
        try:
            days = days_of(found)
            life = F.sequence(F.to_date("sent"), F.to_date("changed"))
            others = self._lake.read(MESSAGES, days).where(~F.forall(life, lambda day: only(read, day)))
            _write(writer, MESSAGES, joined(others.unionByName(found)), days)
        finally:
            found.unpersist()
        return self._lake.read(MESSAGES, days)

    def _note(self, before: Manifest, read: Mapping[str, tuple[int | None, int, int]], built: Iterable[Day]) -> None:
        """Tell later runs of each queue where it was read up to and what was read now, and which days were built.

        A stretch that begins after all that was read leaves something between, so that the next run goes on where the last one ended.
        """
        days: dict[str, dict[date, int]] = {queue: dict(known.days) for queue, known in before.queues.items()}
        for queue, day in built:
            days.setdefault(queue, {})[day] = read[queue][-1]
        queues = dict(before.queues)
        for queue, (mark, since, until) in read.items():
            so_far = until if mark is None else max(mark, until) if since <= mark else mark
            queues[queue] = ReadSoFar(until_us=so_far, days=days.get(queue, {}), objective=self._objectives.of(queue).text)
        manifests.store(self._lake.folder, Manifest(queues=queues))


def _write(writer: Writer, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
    _log.info("pipeline writes table=%s", table.name)
    writer.write(table, frame, days)


def told(built: Built) -> str:
    """What a run did, in a line."""
    if not built.days:
        return "nothing new was read"
    first, last = built.days[0].day, built.days[-1].day
    days = f"{first}" if first == last else f"{len(built.days)} days ({first} to {last})"
    ends = max(until for _, until in built.read.values())
    return f"built {days} from {built.events:,} events, read up to {instant(ends):%Y-%m-%d %H:%M:%S} UTC"
