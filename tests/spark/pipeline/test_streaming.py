"""The stream: each minute once the watermark has passed it, once, also when it was interrupted."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from astyqueue.model.event import Event
from astyqueue.spark.pipeline.parquet_store import Lake
from astyqueue.spark.pipeline.schemas import EVENTS, LIVE
from astyqueue.spark.pipeline.streaming import Stream, keep
from tests.spark.pipeline.histories import QUEUE, Life, frame, told


class Arriving:
    """A folder into which events come, and a stream that reads what is new there."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._source = folder / "arriving"
        self.out = folder / "lake"

    def add(self, *events: Event) -> None:
        frame(self._spark, events).coalesce(1).write.mode("append").parquet(str(self._source))

    def follow(self) -> None:
        """As far as there is anything; each call is a new stream that goes on where the last one was."""
        Stream(self._spark, self.out, watermark="1 minute").follow(QUEUE, self._events(), once=True).awaitTermination()

    def minutes(self) -> dict[str, tuple[int, int, int]]:
        rows = (
            self._spark.read.schema(LIVE.schema).parquet(str(self.out / "live")).collect()
            if (self.out / "live").exists()
            else []
        )
        assert len({row["member"] for row in rows}) == len(rows)
        return {row["member"]: (row["sent"], row["done"], row["failed"]) for row in rows}

    def _events(self) -> DataFrame:
        return self._spark.readStream.schema(EVENTS.schema).parquet(str(self._source))


@dataclass(frozen=True)
class Followed:
    """A stream after its last start, and the minutes that it had written after each."""

    arriving: Arriving
    after: tuple[dict[str, tuple[int, int, int]], ...]


@pytest.fixture(scope="module")
def followed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """Four starts of one stream: each takes seconds, so all tests share them."""
    arriving = Arriving(spark, tmp_path_factory.mktemp("stream"))
    after = []
    twice = Life("twice", 130).claimed(131).failed(132, "first").claimed(132).failed(132, "second")
    for events in (
        told(Life("a").claimed(1).done(2), Life("b", 70).claimed(71).failed(72)),
        [*told(Life("late", 30).claimed(31).done(50), twice), *Life("c", 190).events],
        [*told(Life("too late", 40).claimed(41).done(42)), *Life("d", 400).events],
    ):
        arriving.add(*events)
        arriving.follow()
        after.append(arriving.minutes())
    for file in list((arriving.out / "live").rglob("*.parquet")):
        shutil.copy(file, file.with_name(f"old-{file.name}"))
    arriving.add(*Life("e", 700).events)
    arriving.follow()
    return Followed(arriving, (*after, arriving.minutes()))


#: What happened in each minute: sent, done, failed.
FIRST: Final = {"2026-03-14T12:00Z": (2, 2, 0), "2026-03-14T12:01Z": (1, 0, 1)}
TWICE: Final = {"2026-03-14T12:02Z": (1, 0, 2)}
FOURTH: Final = {"2026-03-14T12:03Z": (1, 0, 0)}


def test_a_minute_is_written_when_the_watermark_has_passed_it_also_after_a_restart(followed: Followed) -> None:
    # The latest event is of 12:01:12, so that 12:00:12 is settled: no minute is over yet.
    assert followed.after[:3] == ({}, FIRST, FIRST | TWICE | FOURTH)


def test_attempts_that_fail_at_one_moment_count_each(followed: Followed) -> None:
    [twice] = TWICE
    assert followed.after[2][twice] == TWICE[twice]


def test_a_minute_that_a_killed_writer_left_twice_is_kept_once(followed: Followed) -> None:
    assert followed.after[3] == followed.after[2] | {"2026-03-14T12:06Z": (1, 0, 0)}


def test_a_batch_that_runs_again_adds_no_minute_twice(followed: Followed, spark: SparkSession) -> None:
    out = followed.arriving.out
    batch = spark.createDataFrame(spark.read.schema(LIVE.schema).parquet(str(out / "live")).collect(), LIVE.schema)
    keep(Lake(spark, out), batch)
    assert followed.arriving.minutes() == followed.after[3]
