"""The batch job: what is built again comes to the same, what comes late is mended, and nothing that was read is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from astyqueue.clock import SECOND, instant
from astyqueue.model.event import Event
from astyqueue.spark.pipelines import manifest
from astyqueue.spark.pipelines.job import Built, Job, Span, told
from astyqueue.spark.pipelines.manifest import BadManifest
from astyqueue.spark.pipelines.outputs import SchemaDiffers
from astyqueue.spark.pipelines.report.figures import Figures, load
from astyqueue.testing import TimeMachine
from tests.spark.pipeline import histories
from tests.spark.pipeline.histories import DAY, NOON, QUEUE, Life, frame

HOUR = 3_600
TODAY, TOMORROW = date(2026, 3, 14), date(2026, 3, 15)


class Store:
    """Keeps a history, and hands it out as the data source does."""

    def __init__(self, spark: SparkSession, out: Path) -> None:
        self.events: list[Event] = []
        self.asked: list[tuple[int, int]] = []
        self._spark = spark
        self._job = Job(spark, out)

    def add(self, *lives: Life) -> None:
        self.events += histories.told(*lives)

    def run(self, at: float, span: Span | None = None) -> Built:
        """Run the job so many seconds after noon."""
        clock = TimeMachine(instant(NOON + int(at * SECOND)))
        return self._job.run_on(self._read, [QUEUE], span, clock=clock)

    def _read(self, queue: str, since: int, until: int) -> DataFrame:
        assert queue == QUEUE
        self.asked.append((since, until))
        return frame(self._spark, _within(self.events, since, until))


def _within(events: Iterable[Event], since: int, until: int) -> list[Event]:
    return [event for event in events if since <= event.at < until]


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(spark, tmp_path / "lake")


def figures(out: Path) -> Figures:
    [found] = load(out)
    return found


def files(out: Path) -> dict[str, int]:
    """Parquet files by their folders: how many rows each folder holds is told by its reader, not by names, which change."""
    return {str(path.parent.relative_to(out)): path.stat().st_size for path in out.rglob("*.parquet")}


def test_a_second_run_changes_nothing_and_goes_on_where_the_first_ended(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    store.add(Life("a").claimed(1).done(2), Life("b", 1).claimed(2).failed(3))
    first = store.run(100)
    before = (figures(out).counts(), figures(out).lengths(), list(figures(out).facts), files(out).keys())
    again = store.run(200)
    assert (figures(out).counts(), figures(out).lengths(), list(figures(out).facts), files(out).keys()) == before
    assert (first.events, again.events) == (7, 7)
    assert store.asked[1] == (NOON + 100 * SECOND - HOUR * SECOND, NOON + 200 * SECOND)
    assert told(again) == "built 2026-03-14 from 7 events, read up to 2026-03-14 12:03:20 UTC"


def test_events_that_were_written_late_are_found_by_the_next_run(store: Store, tmp_path: Path) -> None:
    late = Life("late", 50).claimed(60).done(70)
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.add(late)
    store.run(101)
    assert figures(tmp_path / "lake").counts()["done"] == 2


def test_a_message_that_is_done_the_next_day_is_mended_where_it_was_sent(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    message = Life("a").claimed(1)
    store.add(message)
    store.run(100)
    assert figures(out).counts() | {"in flight": 1, "done": 0} == figures(out).counts()
    message.done(20 * HOUR)
    store.events = message.events
    built = store.run(21 * HOUR)
    assert [day.day for day in built.days] == [TODAY, TOMORROW]
    assert (figures(out).counts()["done"], figures(out).counts()["in flight"]) == (1, 0)
    # The attempt ended tomorrow, so that today has none, not even the one that was open.
    assert {name for name in files(out) if name.startswith("attempts")} == {f"attempts/queue={QUEUE}/day={TOMORROW}"}
    message.done(5 * 24 * HOUR)
    store.events = message.events
    store.run(5 * 24 * HOUR + 60)
    assert figures(out).lengths()["end"].longest == 5 * DAY


def test_what_the_queue_has_forgotten_stays_in_the_tables(store: Store, tmp_path: Path) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.events = histories.told(Life("b", 200).claimed(201).done(202))
    store.run(300, Span(since=NOON - DAY))
    assert figures(tmp_path / "lake").counts()["done"] == 2


def test_a_done_that_turns_out_not_to_have_come_about_is_taken_back(store: Store, tmp_path: Path) -> None:
    store.add(Life("a").claimed(1).done(2))
    store.run(100)
    store.events = Life("a").claimed(1).done(2, lost=True).events
    store.run(101)
    assert (figures(tmp_path / "lake").counts()["done"], figures(tmp_path / "lake").counts()["in flight"]) == (0, 1)


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
        manifest.load(tmp_path)


def test_nothing_to_read_is_no_error(store: Store, tmp_path: Path) -> None:
    assert told(store.run(100)) == "nothing new was read"
    assert figures(tmp_path / "lake").period is None
