"""A folder of tables whose writer is killed: no day of it is ever without its rows, and the next run puts it right."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from astyqueue.spark.pipelines.job import Job
from astyqueue.spark.pipelines.outputs import ATTEMPTS, EVENTS, FACTS, MESSAGES
from tests.spark.pipeline.histories import Life
from tests.spark.pipeline.keeping import HOUR, Store


class Killed(BaseException):
    """The process is no more."""


def killing(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_a_run_that_is_killed_as_it_replaces_a_day_loses_nothing_that_the_queue_has_forgotten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = Store(spark, tmp_path / "lake")
    forgotten = Life("a").claimed(1).done(2)
    store.add(forgotten)
    store.run(100)
    store.events = Life("b", 4 * HOUR).claimed(4 * HOUR).done(5 * HOUR).events
    monkeypatch.setattr(Path, step, killing)
    with pytest.raises(Killed):
        store.run(6 * HOUR)
    monkeypatch.undo()
    assert {str(event.message) for event in forgotten.events} <= {row["message"] for row in store.rows(EVENTS)}
    built = store.run(7 * HOUR)
    assert (built.events, len(store.rows(EVENTS)), len(store.rows(MESSAGES)), len(store.rows(ATTEMPTS))) == (6, 6, 2, 2)
    assert [(day["sent"], day["done"]) for day in store.rows(FACTS, "grain = 'queue'")] == [(2, 2)]
    assert not list((tmp_path / "lake").rglob("_staged/*"))


def test_days_that_were_read_and_not_built_are_built_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(spark, tmp_path / "lake")
    store.run(100)
    store.add(Life("a", 4 * HOUR).claimed(4 * HOUR).done(5 * HOUR))
    monkeypatch.setattr(Job, "rebuild", killing)
    with pytest.raises(Killed):
        store.run(6 * HOUR)
    monkeypatch.undo()
    store.events = []
    store.run(7 * HOUR)
    assert [row["state"] for row in store.rows(MESSAGES)] == ["done"]


def test_a_folder_is_of_this_machine_and_has_the_name_that_was_said(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, tmp_path / "la[k]e {of} 100%20*")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - where Hadoop looks for paths
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "nowhere://at.all")
    try:
        store.add(Life("a").claimed(1).done(2))
        store.run(100)
        store.add(Life("b", 200).claimed(201).done(202))
        store.run(300)
    finally:
        hadoop.set("fs.defaultFS", before)
    assert [row["state"] for row in pyarrow.parquet.read_table(store.out / MESSAGES.name).to_pylist()] == ["done", "done"]
