"""The batch job: read what is new in the history, and build anew every day that it touches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's own examples use

from astyqueue.clock import SECOND, Clock, SystemClock, instant
from astyqueue.spark.pipelines import manifest as manifests
from astyqueue.spark.pipelines.attempts import attempts
from astyqueue.spark.pipelines.facts import approximate, exact, facts
from astyqueue.spark.pipelines.failures import failures
from astyqueue.spark.pipelines.lake import Day, Lake, days_of, only
from astyqueue.spark.pipelines.manifest import Manifest, ReadSoFar
from astyqueue.spark.pipelines.marking import marked
from astyqueue.spark.pipelines.messages import joined, messages, waited_once
from astyqueue.spark.pipelines.objectives import Objectives
from astyqueue.spark.pipelines.outputs import APART, ATTEMPTS, EVENTS, FACTS, FAILURES, MESSAGES, SCHEDULES, Table
from astyqueue.spark.pipelines.schedules import schedules
from astyqueue.spark.pipelines.source import events

_log: Final = logging.getLogger("astyqueue.pipeline")
_HOUR: Final = 3_600 * SECOND
_DAY: Final = 24 * _HOUR

Reader = Callable[[str, int, int], DataFrame]


@dataclass(frozen=True, slots=True)
class Span:
    """What to read: from `since` up to `until` (None: now), in microseconds; what is ahead of now is left to later runs.

    Without `since` it goes on where the last run ended, less `lateness`; a first run reads as far back as history is `kept`.
    """

    since: int | None = None
    until: int | None = None
    lateness: int = _HOUR
    kept: int = 30 * _DAY

    def stretch(self, mark: int | None, now: int) -> tuple[int, int]:
        """The same of a queue that was read up to a mark (None: not yet), in moments."""
        until = now if self.until is None else min(self.until, now)
        if self.since is not None:
            return self.since, until
        return (max(0, until - self.kept) if mark is None else mark - self.lateness), until


@dataclass(frozen=True, slots=True)
class Built:
    """What a run did: the days it built, and how many events of them there are now."""

    days: tuple[Day, ...] = ()
    events: int = 0
    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Job:
    """Builds the tables of a folder."""

    def __init__(self, spark: SparkSession, out: Path, *, objectives: Objectives | None = None, approximately: bool = False) -> None:
        """Percentiles are exact unless they may be approximate, which takes less memory where a day has very many values."""
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._spark = spark
        self._lake = Lake(spark, out)
        self._objectives = objectives or Objectives()
        self._percentiles = approximate if approximately else exact

    def run(self, url: str, queues: Iterable[str], span: Span | None = None, *, clock: Clock | None = None) -> Built:
        """Read the history of these queues and bring the tables up to date; the same again changes nothing."""
        return self.run_on(lambda queue, since, until: events(self._spark, url, queue, since=since, until=until), queues, span, clock=clock)

    def run_on(self, read: Reader, queues: Iterable[str], span: Span | None = None, *, clock: Clock | None = None) -> Built:
        """As `run`, with events from wherever `read(queue, since, until)` has them."""
        asked = span or Span()
        now = (clock or SystemClock()).now()
        before = manifests.load(self._lake.folder)
        marks = {queue: before.mark(queue, now) for queue in sorted(set(queues))}
        stretches = {queue: asked.stretch(mark, now) for queue, mark in marks.items()}
        if not stretches:
            return Built()
        fresh = reduce(DataFrame.unionByName, [read(queue, *stretch) for queue, stretch in stretches.items()]).persist()
        try:
            touched = days_of(fresh)
            self._land(fresh, touched)
        finally:
            fresh.unpersist()
        unbuilt = {day for queue in stretches for day in self._lake.days(EVENTS, queue) if day.day not in before.built(queue)}
        built = self.rebuild({Day(day.queue, day.day - timedelta(days=back)) for day in touched for back in (0, 1)} | unbuilt)
        self._note(before, {queue: (marks[queue], *stretch) for queue, stretch in stretches.items()}, built.days)
        return Built(built.days, built.events, stretches)

    def _land(self, fresh: DataFrame, touched: Collection[Day]) -> None:
        """Add events to those that are there, each once; that one came to nothing is known later than that it happened."""
        together = self._lake.read(EVENTS, touched).unionByName(fresh)
        same = Window.partitionBy(*APART).orderBy(F.col("lost").desc_nulls_last())
        self._lake.write(EVENTS, together.withColumn("rank", F.row_number().over(same)).where("rank = 1").drop("rank"), touched)

    def rebuild(self, days: Collection[Day]) -> Built:
        """Build all other tables for these days from the events that were read, and mend messages that were sent earlier."""
        if not days:
            return Built()
        around = {Day(day.queue, day.day + timedelta(days=ahead)) for day in days for ahead in (0, 1)}
        known = marked(self._lake.read(EVENTS, around)).persist()
        try:
            counted = days_of(known)
            there = sorted(counted.keys() & set(days))
            of_days = waited_once(known.where(only(there)), self._mend(known, around))
            self._write(ATTEMPTS, attempts(of_days), there)
            self._write(FACTS, facts(of_days, self._objectives, self._percentiles), there)
            self._write(FAILURES, failures(of_days), there)
            self._write(SCHEDULES, schedules(of_days, self._percentiles), there)
            return Built(tuple(there), sum(counted[day] for day in there))
        finally:
            known.unpersist()

    def _mend(self, known: DataFrame, read: Collection[Day]) -> DataFrame:
        """Put what is known of messages together with what was known of them, whenever they were sent; the rows of their days.

        Where every day was read from their sending to what was known last, that does not count any more: some of it may have come
        to nothing since.
        """
        found = messages(known).persist()
        try:
            days = days_of(found)
            life = F.sequence(F.to_date("sent"), F.to_date("changed"))
            others = self._lake.read(MESSAGES, days).where(~F.forall(life, lambda day: only(read, day)))
            self._write(MESSAGES, joined(others.unionByName(found)), ())
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

    def _write(self, table: Table, frame: DataFrame, days: Collection[Day]) -> None:
        _log.info("pipeline writes table=%s", table.name)
        self._lake.write(table, frame, days)


def told(built: Built) -> str:
    """What a run did, in a line."""
    if not built.days:
        return "nothing new was read"
    first, last = built.days[0].day, built.days[-1].day
    days = f"{first}" if first == last else f"{len(built.days)} days ({first} to {last})"
    ends = max(until for _, until in built.read.values())
    return f"built {days} from {built.events:,} events, read up to {instant(ends):%Y-%m-%d %H:%M:%S} UTC"
