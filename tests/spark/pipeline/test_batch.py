"""The batch job: a day built again is the same, what comes late is added, and nothing that was read is forgotten."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NoReturn

import pytest
from pyspark.sql import SparkSession

from astyqueue.clock import instant
from astyqueue.model.event import Event, Kind
from astyqueue.spark.errors import HistoryGone
from astyqueue.spark.pipeline import manifest
from astyqueue.spark.pipeline.batch import Built, Span, summary
from astyqueue.spark.pipeline.manifest import BadManifest
from astyqueue.spark.pipeline.parquet_store import Day
from astyqueue.spark.pipeline.schemas import ATTEMPTS, EVENTS, FACTS, MESSAGES, SCHEDULES, SchemaDiffers
from astyqueue.spark.session import configured
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import DAY, NOON, QUEUE, Life
from tests.spark.pipeline.snapshots import HOUR, Left, Store, Tables

TODAY, TOMORROW = date(2026, 3, 14), date(2026, 3, 15)
ZONE: Final = "spark.sql.session.timeZone"
#: One queue for each thing that may happen to a history between runs.
UNCHANGED, LATE, OVERNIGHT, LOST, SENT_LATE = "unchanged", "late", "overnight", "lost", "sent-late"
AFTERNOON, TWO_DAYS, SKIPPED = "afternoon", "two-days", "skipped"
QUEUES: Final = (UNCHANGED, LATE, OVERNIGHT, LOST, SENT_LATE, AFTERNOON, TWO_DAYS, SKIPPED)


class Month:
    """A job that runs now and then for a month. A run takes seconds, so the queues of most tests share them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.store = Store(spark, folder / "lake")
        self.overnight = Life("a", queue=OVERNIGHT).claimed(1)
        self._folder = folder
        self._runs = itertools.count()

    def run(self, at: float, span: Span | None = None) -> Left:
        return self.left(self.store.run(at, span, queues=QUEUES))

    def left(self, built: Built) -> Left:
        return Left(built, self.store.tables.copied(self._folder / f"after-run-{next(self._runs)}"))


@pytest.fixture(scope="module")
def month(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Month:
    return Month(spark, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def after_100_seconds(month: Month) -> Left:
    add = month.store.add
    add(Life("a", queue=UNCHANGED).claimed(1).done(2), Life("b", 1, queue=UNCHANGED).claimed(2).failed(3))
    add(*(Life("a", queue=queue).claimed(1).done(2) for queue in (LATE, LOST, SKIPPED)), month.overnight)
    add(Life("b", 30 * HOUR, queue=SKIPPED).claimed(30 * HOUR).done(30 * HOUR + 1))
    return month.run(100)


@pytest.fixture(scope="module")
def after_200_seconds(month: Month, after_100_seconds: Left) -> Left:
    assert after_100_seconds
    month.store.add(Life("late", 50, queue=LATE).claimed(60).done(70))
    month.store.forget(LOST)
    month.store.add(Life("a", queue=LOST).claimed(1).done(2, lost=True))
    return month.run(200)


@pytest.fixture(scope="module")
def after_21_hours(month: Month, after_200_seconds: Left) -> Left:
    """A run in a session whose time zone is that of Tokyo, where it is tomorrow by then."""
    assert after_200_seconds
    add = month.store.add
    month.store.events.append(month.overnight.done(20 * HOUR).events[-1])
    add(*sent_late(), Life("a", 4 * HOUR, queue=AFTERNOON).claimed(4 * HOUR).done(5 * HOUR))
    add(Life("a", queue=TWO_DAYS).claimed(1).done(2))
    add(Life("b", 20 * HOUR, queue=TWO_DAYS).claimed(20.5 * HOUR).failed(20.9 * HOUR, dies=True))
    with configured(month.spark, {ZONE: "Asia/Tokyo"}):
        left = month.run(21 * HOUR)
        assert month.spark.conf.get(ZONE) == "Asia/Tokyo"
    return left


@pytest.fixture(scope="module")
def refused(month: Month, after_21_hours: Left) -> str:
    """What the job says that has not run for longer than the queues keep their history."""
    assert after_21_hours
    month.store.run(100 * HOUR, Span(since=NOON + 90 * HOUR * SECOND), queues=[SKIPPED])
    month.store.events.append(month.overnight.done(5 * 24 * HOUR).events[-1])
    with pytest.raises(HistoryGone) as caught:
        month.run(31 * 24 * HOUR)
    return str(caught.value)


@pytest.fixture(scope="module")
def after_31_days(month: Month, refused: str) -> Left:
    """A run that accepts the gap."""
    assert refused
    return month.run(31 * 24 * HOUR, Span(accept_gap=True))


@pytest.fixture(scope="module")
def rebuilt(month: Month, after_31_days: Left) -> Left:
    """Two days of one queue that were built again."""
    assert after_31_days
    return month.left(month.store.rebuild(TODAY, TOMORROW, queue=SENT_LATE))


@pytest.fixture(scope="module")
def built_from_events(month: Month, rebuilt: Left) -> Left:
    """A run that finds nothing but the events of earlier runs."""
    assert rebuilt
    month.store.forget_all_but_events()
    month.store.events = []
    return month.run(32 * 24 * HOUR)


def sent_late() -> list[Life]:
    """Messages whose sent event is written late, twice, on the next day, and a week afterwards."""
    return [
        Life("done before it is told of", 10, queue=SENT_LATE).claimed(20).done(30).sent_told(3_000),
        Life("told of by two tasks", 20, queue=SENT_LATE).sent_told(90, 95),
        Life("told of tomorrow", 11.5 * HOUR, queue=SENT_LATE)
        .claimed(11.6 * HOUR)
        .done(11.7 * HOUR)
        .sent_told(12.5 * HOUR),
        Life("of a batch of last week", -7 * 24 * HOUR, queue=SENT_LATE).claimed(40).done(50).sent_told(60),
    ]


def contents(tables: Tables, queue: str) -> dict[str, object]:
    return {table.name: tables.rows(table, queue=queue) for table in (ATTEMPTS, MESSAGES, FACTS)}


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(spark, tmp_path / "lake")


def test_a_run_that_finds_nothing_new_changes_nothing_and_reads_on_where_the_last_one_ended(
    after_100_seconds: Left, after_200_seconds: Left
) -> None:
    first, again = after_100_seconds, after_200_seconds
    counts = {state: number for state, number in first.tables.figures(UNCHANGED).counts().items() if number}
    assert (counts["sent"], counts["done"]) == (2, 1)
    assert contents(again.tables, UNCHANGED) == contents(first.tables, UNCHANGED)
    assert again.tables.files(FACTS, UNCHANGED) == first.tables.files(FACTS, UNCHANGED) == {f"day={TODAY}"}
    assert again.built.read[UNCHANGED] == (NOON + 100 * SECOND - HOUR * SECOND, NOON + 200 * SECOND)


def test_a_run_is_summed_up_in_one_line(after_100_seconds: Left) -> None:
    events = len(after_100_seconds.tables.rows(EVENTS))
    told = f"built 2026-03-14 from {events} events, read up to 2026-03-14 12:01:40 UTC"
    assert summary(after_100_seconds.built) == told
    assert events == 7 + 3 * 3 + 2


def test_the_days_of_several_queues_are_summed_up_from_the_first_to_the_last() -> None:
    days = [Day("a", TODAY), Day("a", TOMORROW), Day("b", TODAY - timedelta(days=9)), Day("b", TODAY)]
    told = summary(Built(tuple(days), 8, {"a": (NOON, NOON), "b": (NOON, NOON)}))
    assert told == "built 3 days (2026-03-05 to 2026-03-15) from 8 events, read up to 2026-03-14 12:00:00 UTC"


def test_days_that_were_built_again_and_not_read_are_summed_up_without_an_end() -> None:
    assert summary(Built((Day("a", TODAY),), 8)) == "built 2026-03-14 from 8 events"


def test_events_that_were_written_late_are_found_by_the_next_run(
    after_100_seconds: Left, after_200_seconds: Left
) -> None:
    assert after_100_seconds.tables.figures(LATE).counts()["done"] == 1
    assert after_200_seconds.tables.figures(LATE).counts()["done"] == 2


@pytest.mark.full
def test_a_message_that_is_done_the_next_day_is_updated_in_the_day_it_was_sent(
    after_200_seconds: Left, after_21_hours: Left, after_31_days: Left
) -> None:
    first, next_day, later = after_200_seconds, after_21_hours, after_31_days
    assert [day.day for day in next_day.built.days if day.queue == OVERNIGHT] == [TODAY, TOMORROW]
    states = [
        (counts["in flight"], counts["done"])
        for counts in (left.tables.figures(OVERNIGHT).counts() for left in (first, next_day))
    ]
    assert states == [(1, 0), (0, 1)]
    # The attempt ended tomorrow, so that today has none, not even the one that was open.
    assert first.tables.files(ATTEMPTS, OVERNIGHT) == {f"day={TODAY}"}
    assert next_day.tables.files(ATTEMPTS, OVERNIGHT) == {f"day={TOMORROW}"}
    assert later.tables.figures(OVERNIGHT).lengths()["end"].longest == 5 * DAY


def test_a_done_that_was_written_and_did_not_happen_is_taken_back(
    after_100_seconds: Left, after_200_seconds: Left
) -> None:
    before, after = (left.tables.figures(LOST).counts() for left in (after_100_seconds, after_200_seconds))
    assert (before["done"], before["in flight"]) == (1, 0)
    assert (after["done"], after["in flight"]) == (0, 1)


@pytest.mark.full
def test_a_gap_between_the_last_run_and_a_later_interval_is_read_by_the_next_run(
    after_21_hours: Left, after_31_days: Left
) -> None:
    assert after_21_hours.tables.figures(SKIPPED).counts()["done"] == 1
    assert after_31_days.tables.figures(SKIPPED).counts()["done"] == 2


@pytest.mark.full
def test_sent_events_that_are_written_late_or_twice_count_once_when_the_message_was_sent(
    after_21_hours: Left, rebuilt: Left
) -> None:
    tables = after_21_hours.tables
    minutes = tables.rows(FACTS, queue=SENT_LATE, grain="minute")
    counted = {row["member"]: row["sent"] for row in minutes if row["sent"]}
    assert counted == {"2026-03-14T12:00Z": 2, "2026-03-14T23:30Z": 1, "2026-03-14T12:01Z": 1}
    states = sorted(str(row["state"]) for row in tables.rows(MESSAGES, queue=SENT_LATE))
    assert states == ["done", "done", "done", "waiting"]
    assert contents(rebuilt.tables, SENT_LATE) == contents(tables, SENT_LATE)


@pytest.mark.full
def test_a_run_that_comes_after_the_queue_forgot_what_it_did_not_read_fails_unless_the_gap_is_accepted(
    after_21_hours: Left,
    refused: str,
    after_31_days: Left,
) -> None:
    assert "was read up to 2026-03-15T09:00:00Z, and is kept for 30d only" in refused
    last = NOON + 21 * HOUR * SECOND
    assert after_31_days.built.read[UNCHANGED] == (last - HOUR * SECOND, NOON + 31 * DAY)
    assert contents(after_31_days.tables, UNCHANGED) == contents(after_21_hours.tables, UNCHANGED)


@pytest.mark.full
def test_days_are_those_of_utc_in_a_session_of_another_zone(after_21_hours: Left) -> None:
    assert [day.day for day in after_21_hours.built.days if day.queue == AFTERNOON] == [TODAY]
    hours = after_21_hours.tables.rows(FACTS, queue=AFTERNOON, grain="hour")
    assert [row["member"] for row in hours if row["done"]] == ["2026-03-14T17:00Z"]


@pytest.mark.full
@pytest.mark.parametrize("queue", [UNCHANGED, LATE, LOST, SENT_LATE, TWO_DAYS])
def test_everything_is_built_again_from_events_also_when_the_queue_has_forgotten_them(
    after_31_days: Left, built_from_events: Left, queue: str
) -> None:
    before, after = after_31_days, built_from_events
    assert {day.day for day in after.built.days if day.queue == TWO_DAYS} == {TODAY, TOMORROW}
    assert contents(after.tables, queue) == contents(before.tables, queue)


@pytest.mark.full
def test_a_run_after_everything_was_built_again_finds_nothing_new(month: Month, built_from_events: Left) -> None:
    until = max(until for _, until in built_from_events.built.read.values())
    assert until == NOON + 32 * DAY
    assert summary(month.store.run(32 * 24 * HOUR + 2 * HOUR, queues=QUEUES)) == "nothing new was read"


@pytest.mark.full
def test_files_with_other_columns_are_not_built_upon(
    after_100_seconds: Left, spark: SparkSession, tmp_path: Path
) -> None:
    store = Store(spark, after_100_seconds.tables.copied(tmp_path / "lake").out)
    store.add(Life("a", queue=UNCHANGED).claimed(1).done(2))
    shutil.rmtree(store.tables.out / MESSAGES.name)
    other = spark.createDataFrame([("m", 1, UNCHANGED, TODAY)], "message string, attempts int, queue string, day date")
    other.write.partitionBy("queue", "day").parquet(str(store.tables.out / MESSAGES.name))
    with pytest.raises(SchemaDiffers, match=r"table messages in .* column attempts is int, not bigint"):
        store.run(200, queues=[UNCHANGED])


@pytest.mark.full
def test_days_with_approximate_percentiles_are_known_until_they_are_built_exactly(
    store: Store, spark: SparkSession, tmp_path: Path
) -> None:
    approximate = Store(spark, tmp_path / "lake", approximately=True)
    for made in (store, approximate):
        made.add(Life("a").claimed(1).done(2))
    store.run(100)
    assert store.tables.figures().approximate == 0
    approximate.run(200)
    assert store.tables.figures().approximate == 1
    store.rebuild(TODAY)
    assert store.tables.figures().approximate == 0
    approximate.rebuild(TODAY)
    assert store.tables.figures().approximate == 1
    store.run(300)
    assert store.tables.figures().approximate == 0


@pytest.mark.full
def test_what_the_queue_has_forgotten_stays_in_the_tables(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.forget(QUEUE)
    store.add(Life("b", 200).claimed(201).done(202))
    store.run(300, Span(since=NOON - DAY))
    assert store.tables.figures().counts()["done"] == 2


def test_a_manifest_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "_manifest.json").write_text("{")
    with pytest.raises(BadManifest, match=r"_manifest.json cannot be read: .* remove it"):
        manifest.load(tmp_path)


@pytest.mark.parametrize(("number", "remedy"), [(errno.EACCES, "make it readable"), (errno.EIO, "run this again")])
def test_a_manifest_that_cannot_be_read_now_is_not_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refused(path: Path) -> NoReturn:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(BadManifest, match=rf"_manifest.json cannot be read: {os.strerror(number)}; .*{remedy}") as told:
        manifest.load(tmp_path)
    assert "remove" not in str(told.value)


def test_durations_of_a_span_are_written_as_everywhere() -> None:
    since = instant(NOON)
    span = Span.of(since=since, lateness="2h", kept=timedelta(days=2), accept_gap=True)
    assert span == Span(since=NOON, lateness=2 * HOUR * SECOND, kept=2 * DAY, accept_gap=True)
    assert Span.of(until=since) == Span(until=NOON)


def test_nothing_to_read_is_no_error(store: Store) -> None:
    assert summary(store.run(100)) == "nothing new was read"
    assert store.tables.figures().period is None


@pytest.mark.full
def test_an_interval_that_ends_ahead_of_the_clock_counts_as_read_up_to_the_clock(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100, Span(since=NOON - DAY // 2, until=NOON + DAY // 2))
    assert store.asked == [(NOON - DAY // 2, NOON + 100 * SECOND)]
    store.add(Life("b", HOUR).claimed(HOUR).done(HOUR + 1))
    store.run(20 * HOUR)
    assert store.tables.figures().counts()["done"] == 2


@pytest.mark.full
def test_a_clock_that_was_ahead_and_is_right_again_loses_nothing(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(48 * HOUR)
    store.add(Life("b", HOUR).claimed(HOUR).done(HOUR + 1))
    store.run(2 * HOUR)
    store.add(Life("c", 3 * HOUR).claimed(3 * HOUR).done(3 * HOUR + 1))
    store.run(30 * HOUR)
    assert store.tables.figures().counts()["done"] == 3


@pytest.mark.full
def test_an_interval_that_is_built_again_keeps_messages_done_that_ended_after_it(store: Store) -> None:
    queues = ("busy", "calm")
    store.add(
        Life("a", queue="busy").claimed(1).done(2),
        Life("b", 20 * HOUR, queue="busy").claimed(20 * HOUR).done(21 * HOUR),
    )
    store.add(Life("c", queue="calm").claimed(1).done(44 * HOUR))
    store.run(90 * HOUR, queues=queues)
    before = store.tables.rows(MESSAGES, queue="calm")
    assert [row["state"] for row in before] == ["done"]
    store.run(91 * HOUR, Span(since=NOON - DAY // 2, until=NOON + DAY // 2 + DAY), queues=queues)
    assert store.tables.rows(MESSAGES, queue="calm") == before


@pytest.mark.full
def test_days_that_are_built_again_keep_what_is_known_of_the_days_between(store: Store) -> None:
    store.add(
        Life("a").claimed(1).done(72 * HOUR),
        Life("b", 1).claimed(72 * HOUR).failed(73 * HOUR).claimed(145 * HOUR).done(146 * HOUR),
    )
    store.add(Life("c", 120 * HOUR).claimed(120 * HOUR).done(121 * HOUR))
    store.run(200 * HOUR)
    before = store.tables.rows(MESSAGES)
    store.rebuild(TODAY, TODAY + timedelta(days=5))
    assert store.tables.rows(MESSAGES) == before


def skipped(occurrence: int) -> Event:
    return Event(
        NOON,
        Kind.SKIPPED,
        QUEUE,
        None,
        key="digest",
        schedule="digest",
        slot=NOON - occurrence * SECOND,
        reason="the last one runs",
    )


@pytest.mark.full
def test_occurrences_that_were_skipped_at_one_moment_are_counted_each(store: Store) -> None:
    store.events = [skipped(occurrence) for occurrence in range(5)]
    store.run(100)
    store.run(200)
    assert [row["skipped"] for row in store.tables.rows(SCHEDULES)] == [5]


@pytest.mark.full
def test_events_of_newer_kinds_at_one_moment_are_kept_each(store: Store) -> None:
    sent = Life("a").events[0]
    store.events = [
        *(replace(sent, kind=Kind.UNKNOWN, raw=f"{number} {{}}") for number in (20, 21)),
        *(Event(NOON, Kind.DONE, QUEUE, reason="this event cannot be read", raw=f"2 {name}") for name in "ab"),
    ]
    store.run(100)
    store.run(200)
    assert len(store.tables.rows(EVENTS)) == 4


def rewritten(spark: SparkSession, day: Path, change: str) -> None:
    """Have one day's files as another version wrote them."""
    kept = spark.createDataFrame(spark.read.parquet(str(day)).toArrow())
    kept.selectExpr(*change.split("; ")).write.mode("overwrite").parquet(str(day))


@pytest.mark.full
def test_a_column_that_older_events_lack_is_unknown_there(store: Store, spark: SparkSession) -> None:
    store.add(Life("a", tenant="acme").claimed(1).done(2), Life("b", 20 * HOUR).claimed(20 * HOUR).done(21 * HOUR))
    store.run(23 * HOUR)
    rewritten(spark, store.tables.out / "events" / f"queue={QUEUE}" / f"day={TODAY}", "* except (tenant, failure)")
    store.rebuild(TODAY, TOMORROW)
    assert [(row["state"], row["tenant"]) for row in store.tables.rows(MESSAGES)] == [("done", None)] * 2


@pytest.mark.parametrize(
    "change", ["* except (at)", "* except (attempt); cast(attempt as int) as attempt", "*; 1 as more"]
)
def test_events_of_another_kind_are_not_to_be_removed(
    after_21_hours: Left, spark: SparkSession, tmp_path: Path, change: str
) -> None:
    store = Store(spark, after_21_hours.tables.copied(tmp_path / "lake").out)
    rewritten(spark, store.tables.out / "events" / f"queue={TWO_DAYS}" / f"day={TOMORROW}", change)
    with pytest.raises(SchemaDiffers, match=r"table events in .* keep `events`") as caught:
        store.rebuild(TODAY, TOMORROW, queue=TWO_DAYS)
    assert "remove" not in str(caught.value)
