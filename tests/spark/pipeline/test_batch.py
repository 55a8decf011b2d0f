"""The batch job: a day built again is the same, what comes late is added, and nothing that was read is forgotten."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from astyqueue.model.event import Event, Kind
from astyqueue.spark.errors import HistoryGone
from astyqueue.spark.pipeline import progress
from astyqueue.spark.pipeline.batch import Span, summary
from astyqueue.spark.pipeline.progress import BadManifest
from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, MESSAGES, SCHEDULES, SchemaDiffers
from astyqueue.spark.session import configured
from astyqueue.units import SECOND
from tests.spark.pipeline import histories
from tests.spark.pipeline.histories import DAY, NOON, QUEUE, Life
from tests.spark.pipeline.snapshots import HOUR, Store

TODAY, TOMORROW = date(2026, 3, 14), date(2026, 3, 15)


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(spark, tmp_path / "lake")


def files(out: Path) -> dict[str, int]:
    """Parquet files by their folders, as their names change; how many rows a folder holds, its reader tells."""
    return {str(path.parent.relative_to(out)): path.stat().st_size for path in out.rglob("*.parquet")}


def test_a_second_run_changes_nothing_and_goes_on_where_the_first_ended(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    store.add(Life("a").claimed(1).done(2), Life("b", 1).claimed(2).failed(3))
    first = store.run(100)
    before = (store.figures().counts(), store.figures().lengths(), sorted(store.rows(FACTS)), files(out).keys())
    again = store.run(200)
    assert (store.figures().counts(), store.figures().lengths(), sorted(store.rows(FACTS)), files(out).keys()) == before
    assert (first.events, again.events) == (7, 7)
    assert store.asked[1] == (NOON + 100 * SECOND - HOUR * SECOND, NOON + 200 * SECOND)
    assert summary(again) == "built 2026-03-14 from 7 events, read up to 2026-03-14 12:03:20 UTC"


@pytest.mark.full
def test_days_with_approximate_percentiles_are_known_until_they_are_built_exactly(
    store: Store, spark: SparkSession, tmp_path: Path
) -> None:
    approximate = Store(spark, tmp_path / "lake", approximately=True)
    for made in (store, approximate):
        made.add(Life("a").claimed(1).done(2))
    store.run(100)
    assert store.figures().approximate == 0
    approximate.run(200)
    assert store.figures().approximate == 1
    store.rebuild(TODAY)
    assert store.figures().approximate == 0
    approximate.rebuild(TODAY)
    assert store.figures().approximate == 1
    store.run(300)
    assert store.figures().approximate == 0


def test_events_that_were_written_late_are_found_by_the_next_run(store: Store) -> None:
    late = Life("late", 50).claimed(60).done(70)
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.add(late)
    store.run(101)
    assert store.figures().counts()["done"] == 2


def test_a_message_that_is_done_the_next_day_is_mended_where_it_was_sent(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    message = Life("a").claimed(1)
    store.add(message)
    store.run(100)
    assert store.figures().counts() | {"in flight": 1, "done": 0} == store.figures().counts()
    message.done(20 * HOUR)
    store.events = message.events
    built = store.run(21 * HOUR)
    assert [day.day for day in built.days] == [TODAY, TOMORROW]
    assert (store.figures().counts()["done"], store.figures().counts()["in flight"]) == (1, 0)
    # The attempt ended tomorrow, so that today has none, not even the one that was open.
    assert {name for name in files(out) if name.startswith("attempts")} == {f"attempts/queue={QUEUE}/day={TOMORROW}"}
    message.done(5 * 24 * HOUR)
    store.events = message.events
    store.run(5 * 24 * HOUR + 60)
    assert store.figures().lengths()["end"].longest == 5 * DAY


@pytest.mark.full
def test_what_the_queue_has_forgotten_stays_in_the_tables(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.events = histories.told(Life("b", 200).claimed(201).done(202))
    store.run(300, Span(since=NOON - DAY))
    assert store.figures().counts()["done"] == 2


def test_a_done_that_turns_out_not_to_have_come_about_is_taken_back(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.events = Life("a").claimed(1).done(2, lost=True).events
    store.run(101)
    assert (store.figures().counts()["done"], store.figures().counts()["in flight"]) == (0, 1)


def test_files_with_other_columns_are_not_built_upon(store: Store, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    other = spark.createDataFrame([("m", 1, QUEUE, TODAY)], "message string, attempts int, queue string, day date")
    other.write.mode("overwrite").partitionBy("queue", "day").parquet(str(out / "messages"))
    with pytest.raises(SchemaDiffers, match=r"table messages in .* column attempts is int, not bigint"):
        store.run(200)


def test_a_manifest_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "_manifest.json").write_text("{")
    with pytest.raises(BadManifest, match=r"_manifest.json cannot be read: .* remove it"):
        progress.load(tmp_path)


def test_nothing_to_read_is_no_error(store: Store) -> None:
    assert summary(store.run(100)) == "nothing new was read"
    assert store.figures().period is None


@pytest.mark.full
def test_an_end_ahead_of_the_clock_is_not_taken_for_read(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100, Span(since=NOON - DAY // 2, until=NOON + DAY // 2))
    assert store.asked == [(NOON - DAY // 2, NOON + 100 * SECOND)]
    store.add(Life("b", HOUR).claimed(HOUR).done(HOUR + 1))
    store.run(20 * HOUR)
    assert store.figures().counts()["done"] == 2


@pytest.mark.full
def test_a_clock_that_was_ahead_and_is_right_again_loses_nothing(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(48 * HOUR)
    store.add(Life("b", HOUR).claimed(HOUR).done(HOUR + 1))
    store.run(2 * HOUR)
    store.add(Life("c", 3 * HOUR).claimed(3 * HOUR).done(3 * HOUR + 1))
    store.run(30 * HOUR)
    assert store.figures().counts()["done"] == 3


def test_what_lies_between_the_last_run_and_a_later_stretch_is_read_by_the_next_run(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2), Life("b", 30 * HOUR).claimed(30 * HOUR).done(30 * HOUR + 1))
    store.run(100)
    store.run(100 * HOUR, Span(since=NOON + 90 * HOUR * SECOND))
    store.run(101 * HOUR)
    assert store.figures().counts()["done"] == 2


@pytest.mark.full
def test_a_stretch_of_several_queues_that_is_built_again_leaves_finished_what_ended_after_it(store: Store) -> None:
    queues = ("busy", "calm")
    store.add(
        Life("a", queue="busy").claimed(1).done(2),
        Life("b", 20 * HOUR, queue="busy").claimed(20 * HOUR).done(21 * HOUR),
    )
    store.add(Life("c", queue="calm").claimed(1).done(44 * HOUR))
    store.run(90 * HOUR, queues=queues)
    before = store.rows(MESSAGES, "queue = 'calm'")
    assert [row["state"] for row in before] == ["done"]
    store.run(91 * HOUR, Span(since=NOON - DAY // 2, until=NOON + DAY // 2 + DAY), queues=queues)
    assert store.rows(MESSAGES, "queue = 'calm'") == before


@pytest.mark.full
def test_days_apart_that_are_built_again_leave_what_is_known_of_the_days_between(store: Store) -> None:
    store.add(
        Life("a").claimed(1).done(72 * HOUR),
        Life("b", 1).claimed(72 * HOUR).failed(73 * HOUR).claimed(145 * HOUR).done(146 * HOUR),
    )
    store.add(Life("c", 120 * HOUR).claimed(120 * HOUR).done(121 * HOUR))
    store.run(200 * HOUR)
    before = sorted(store.rows(MESSAGES), key=str)
    store.rebuild(TODAY, TODAY + timedelta(days=5))
    assert sorted(store.rows(MESSAGES), key=str) == before


def test_sendings_that_are_told_of_late_and_twice_count_once_when_they_were_sent(store: Store) -> None:
    late = Life("done before it is told of", 10).claimed(20).done(30).sent_told(3_000)
    twice = Life("told of by two tasks", 20).sent_told(90, 95)
    overnight = Life("told of tomorrow", 11.5 * HOUR).claimed(11.6 * HOUR).done(11.7 * HOUR).sent_told(12.5 * HOUR)
    stale = Life("of a batch of last week", -7 * 24 * HOUR).claimed(40).done(50).sent_told(60)
    store.add(late, twice, overnight, stale)
    store.run(13 * HOUR)
    counted = {row["member"]: row["sent"] for row in store.rows(FACTS, "grain = 'minute' AND sent > 0")}
    assert counted == {"2026-03-14T12:00Z": 2, "2026-03-14T23:30Z": 1, "2026-03-14T12:01Z": 1}
    assert sorted(row["state"] for row in store.rows(MESSAGES)) == ["done", "done", "done", "waiting"]
    before = {table: sorted(store.rows(table), key=str) for table in (ATTEMPTS, MESSAGES, FACTS)}
    store.rebuild(TODAY, TOMORROW)
    assert {table: sorted(store.rows(table), key=str) for table in before} == before


def test_a_run_that_comes_after_the_queue_forgot_what_it_did_not_read_fails(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    with pytest.raises(HistoryGone, match="was read up to 2026-03-14T12:01:40Z, and is kept for 30d only"):
        store.run(31 * 24 * HOUR)
    assert store.figures().counts()["done"] == 1
    store.run(31 * 24 * HOUR, Span(accept_gap=True))
    assert store.asked[-1] == (NOON + 100 * SECOND - HOUR * SECOND, NOON + 31 * DAY)


def test_days_are_those_of_utc_in_a_session_of_another_zone_which_keeps_it(store: Store, spark: SparkSession) -> None:
    zone = "spark.sql.session.timeZone"
    store.add(Life("a", 4 * HOUR).claimed(4 * HOUR).done(5 * HOUR))
    with configured(spark, {zone: "Asia/Tokyo"}):  # where it is tomorrow by then
        built = store.run(6 * HOUR)
        assert spark.conf.get(zone) == "Asia/Tokyo"
    assert [day.day for day in built.days] == [TODAY]
    assert [row["member"] for row in store.rows(FACTS, "grain = 'hour' AND done > 0")] == ["2026-03-14T17:00Z"]


def skipped(slot: int) -> Event:
    return Event(
        NOON,
        Kind.SKIPPED,
        QUEUE,
        None,
        key="digest",
        schedule="digest",
        slot=NOON - slot * SECOND,
        reason="the last one runs",
    )


@pytest.mark.full
def test_slots_that_were_skipped_at_one_moment_are_counted_each(store: Store) -> None:
    store.events = [skipped(slot) for slot in range(5)]
    store.run(100)
    store.run(200)
    assert [row["skipped"] for row in store.rows(SCHEDULES)] == [5]


def test_everything_is_built_again_from_events_also_when_the_queue_has_forgotten_them(store: Store) -> None:
    store.add(Life("a").claimed(1).done(2), Life("b", 20 * HOUR).claimed(21 * HOUR).failed(22 * HOUR, dies=True))
    store.run(23 * HOUR)
    before = {table: sorted(store.rows(table), key=str) for table in (ATTEMPTS, MESSAGES, FACTS)}
    store.forget_all_but_events()
    store.events = []
    built = store.run(24 * HOUR)
    assert [day.day for day in built.days] == [TODAY, TOMORROW]
    assert {table: sorted(store.rows(table), key=str) for table in before} == before
    assert summary(store.run(26 * HOUR)) == "nothing new was read"


def rewritten(spark: SparkSession, day: Path, change: str) -> None:
    """Have one day's files as another version wrote them."""
    kept = spark.createDataFrame(spark.read.parquet(str(day)).toArrow())
    kept.selectExpr(*change.split("; ")).write.mode("overwrite").parquet(str(day))


@pytest.mark.full
def test_a_column_that_older_events_lack_is_unknown_there(store: Store, spark: SparkSession) -> None:
    store.add(Life("a", tenant="acme").claimed(1).done(2), Life("b", 20 * HOUR).claimed(20 * HOUR).done(21 * HOUR))
    store.run(23 * HOUR)
    rewritten(spark, store.out / "events" / f"queue={QUEUE}" / f"day={TODAY}", "* except (tenant, failure)")
    store.rebuild(TODAY, TOMORROW)
    assert [(row["state"], row["tenant"]) for row in store.rows(MESSAGES)] == [("done", None)] * 2


@pytest.mark.parametrize(
    "change", ["* except (at)", "* except (attempt); cast(attempt as int) as attempt", "*; 1 as more"]
)
def test_events_of_another_kind_are_not_to_be_removed(store: Store, spark: SparkSession, change: str) -> None:
    store.add(Life("a").claimed(1).done(2), Life("b", 20 * HOUR).claimed(20 * HOUR).done(21 * HOUR))
    store.run(23 * HOUR)
    rewritten(spark, store.out / "events" / f"queue={QUEUE}" / f"day={TOMORROW}", change)
    with pytest.raises(SchemaDiffers, match=r"table events in .* keep `events`") as caught:
        store.rebuild(TODAY, TOMORROW)
    assert "remove" not in str(caught.value)
