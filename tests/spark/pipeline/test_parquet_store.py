"""A folder of tables whose writer is killed, or not alone: no day of it is ever without its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from astyqueue import connect
from astyqueue.cli import main
from astyqueue.spark.pipeline import batch
from astyqueue.spark.pipeline.folder_lock import locked
from astyqueue.spark.pipeline.parquet_store import BATCH, Day, Lake
from astyqueue.spark.pipeline.schemas import ATTEMPTS, EVENTS, FACTS, MESSAGES
from tests.spark.pipeline.histories import QUEUE, Life, frame, told
from tests.spark.pipeline.snapshots import HOUR, Store


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
    monkeypatch.setattr(batch, "marked", killing)
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
    assert [row["state"] for row in pyarrow.parquet.read_table(store.out / MESSAGES.name).to_pylist()] == [
        "done",
        "done",
    ]


def test_rows_that_turn_up_for_a_day_after_the_days_were_counted_replace_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    today, tomorrow = Day(QUEUE, date(2026, 3, 14)), Day(QUEUE, date(2026, 3, 15))
    events = told(Life("a").claimed(1).done(2), Life("b", 20 * HOUR).claimed(20 * HOUR).done(20 * HOUR + 1))
    lake = Lake(spark, tmp_path / "lake")
    with lake.writer() as writer:
        writer.write(EVENTS, frame(spark, events), {today, tomorrow})
        writer.write(EVENTS, frame(spark, events[:4]), {today})
    assert (lake.read(EVENTS, {today}).count(), lake.read(EVENTS, {tomorrow}).count()) == (3, 3)


@pytest.mark.full
@pytest.mark.timeout(900)  # each starts a Java of its own
def test_two_runs_into_one_folder_at_once_each_add_what_they_read(java: Path, tmp_path: Path) -> None:
    url, out = f"sqlite:///{tmp_path / 'work.db'}", tmp_path / "lake"
    queues = ("calls", "letters")
    with connect(url) as connection:
        for name in queues:
            queue = connection.queue(name, history="all")
            queue.send_many(range(30))
            with queue.receive(30):
                pass
    command = [
        sys.executable,
        "-m",
        "astyqueue",
        "pipeline",
        "run",
        "--url",
        url,
        "--out",
        str(out),
        "--wait",
        "10m",
        "--master",
        "local[1]",
    ]
    runs = [subprocess.Popen([*command, "-Q", name], env=os.environ | {"JAVA_HOME": str(java)}) for name in queues]
    try:
        assert [run.wait(800) for run in runs] == [0, 0]
    finally:
        for run in runs:
            run.kill()
    counted = {name: pyarrow.parquet.read_table(out / MESSAGES.name / f"queue={name}").num_rows for name in queues}
    assert counted == dict.fromkeys(queues, 30)
    assert pyarrow.parquet.read_table(out / EVENTS.name).num_rows == 2 * 3 * 30


def test_a_run_into_a_folder_that_another_process_writes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    url, out = f"sqlite:///{tmp_path / 'work.db'}", tmp_path / "lake"
    with connect(url) as connection:
        connection.queue("calls", history="all").send("hello")
    with locked(out, BATCH):
        ended = CliRunner().invoke(main, ["pipeline", "run", "--url", url, "--out", str(out)])
    assert (ended.exit_code, f"the tables in {out} are being written by process {os.getpid()}" in ended.stderr) == (
        1,
        True,
    )
    assert not list(out.rglob("*.parquet"))
    assert spark.range(1).count() == 1
