"""A folder of tables whose writer is killed, or not alone: no day of it is ever without its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from astyqueue import connect
from astyqueue.cli import main
from astyqueue.errors import BadInput
from astyqueue.spark.pipeline import batch, parquet_store
from astyqueue.spark.pipeline.batch import Job, Span
from astyqueue.spark.pipeline.folder_lock import locked
from astyqueue.spark.pipeline.parquet_store import BATCH, Day, Lake
from astyqueue.spark.pipeline.schemas import ATTEMPTS, EVENTS, FACTS, MESSAGES
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import NOON, QUEUE, Life, frame, told
from tests.spark.pipeline.snapshots import HOUR, Store, Tables


class Killed(BaseException):
    """The process is no more."""


def killing(*_: object) -> None:
    raise Killed


#: A folder may have any name, also one that Hadoop would take for a pattern or an address.
NAME: Final = "la[k]e {of} 100%20*"


@contextmanager
def files_are_elsewhere(spark: SparkSession) -> Iterator[None]:
    """Have Hadoop look for paths without a scheme on a machine that does not exist."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - where Hadoop looks for paths
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "nowhere://at.all")
    try:
        yield
    finally:
        hadoop.set("fs.defaultFS", before)


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of two runs."""
    store = Store(spark, tmp_path_factory.mktemp("begun") / NAME)
    with files_are_elsewhere(spark):
        store.add(Life("a").claimed(1).done(2))
        store.run(100)
        store.add(Life("b", 200).claimed(201).done(202))
        store.run(300)
    return store.tables


def test_a_folder_is_one_of_this_machine_and_may_have_any_name(begun: Tables) -> None:
    assert begun.out.name == NAME
    states = pyarrow.parquet.read_table(begun.out / MESSAGES.name)["state"].to_pylist()
    assert states == ["done", "done"]


@pytest.mark.full
@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_a_run_that_is_killed_as_it_replaces_a_day_loses_nothing_that_the_queue_has_forgotten(
    spark: SparkSession, begun: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = Store(spark, begun.copied(tmp_path / "lake").out)
    forgotten = {str(row["message"]) for row in begun.rows(EVENTS)}
    store.add(Life("c", 4 * HOUR).claimed(4 * HOUR).done(5 * HOUR))
    monkeypatch.setattr(Path, step, killing)
    with pytest.raises(Killed):
        store.run(6 * HOUR)
    monkeypatch.undo()
    assert len(forgotten) == 2
    assert forgotten <= {row["message"] for row in store.tables.rows(EVENTS)}
    built = store.run(7 * HOUR)
    rows = [len(store.tables.rows(table)) for table in (EVENTS, MESSAGES, ATTEMPTS)]
    assert (built.events, rows) == (9, [9, 3, 3])
    assert [(day["sent"], day["done"]) for day in store.tables.rows(FACTS, grain="queue")] == [(3, 3)]
    assert not list(store.tables.out.rglob("_staged/*"))


@pytest.mark.full
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
    assert [row["state"] for row in store.tables.rows(MESSAGES)] == ["done"]


@pytest.mark.full
@pytest.mark.parametrize("step", ["marked", "attempts"])
def test_an_earlier_day_that_a_killed_run_read_again_is_built_by_the_next_run(
    spark: SparkSession, begun: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = Store(spark, begun.copied(tmp_path / "lake").out)
    store.run(48 * HOUR)
    store.add(Life("late", 10).claimed(20).done(30))
    monkeypatch.setattr(batch, step, killing)
    with pytest.raises(Killed):
        store.run(120 * HOUR, Span(since=NOON, until=NOON + 3_600 * SECOND))
    monkeypatch.undo()
    store.run(121 * HOUR)
    assert [(day["sent"], day["done"]) for day in store.tables.rows(FACTS, grain="queue")] == [(3, 3)]
    assert [row["state"] for row in store.tables.rows(MESSAGES)] == ["done"] * 3


#: Where a run is killed, when what it adds was sent, and how many events that leaves: a day with rows twice, or empty.
HALF_DONE: Final = {"twice": ("unlink", 10, 15), "empty": ("rename", 30 * HOUR, 6)}


@pytest.mark.full
@pytest.mark.parametrize("left", ["twice", "empty"])
def test_an_earlier_day_that_a_killed_run_left_twice_or_empty_is_mended_by_the_next_run(
    spark: SparkSession, begun: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    step, sent, events = HALF_DONE[left]
    store = Store(spark, begun.copied(tmp_path / "lake").out)
    store.run(48 * HOUR)
    store.add(Life("late", sent).claimed(sent + 1).done(sent + 2))
    monkeypatch.setattr(Path, step, killing)
    with pytest.raises(Killed):
        store.run(120 * HOUR, Span(since=NOON, until=NOON + 36 * HOUR * SECOND))
    monkeypatch.undo()
    assert len(store.tables.rows(EVENTS)) == events
    store.run(121 * HOUR)
    mended = 3 if left == "twice" else 2  # what was not written yet is read again by a run from then on
    assert len(store.tables.rows(EVENTS)) == 3 * mended
    assert [(day["sent"], day["done"]) for day in store.tables.rows(FACTS, grain="queue")] == [(mended, mended)]


@pytest.mark.full
def test_events_that_are_there_once_are_left_as_they_are_when_all_days_are_built_anew(
    spark: SparkSession, begun: Tables, tmp_path: Path
) -> None:
    store = Store(spark, begun.copied(tmp_path / "lake").out)
    before = set(store.tables.out.glob("events/**/*.parquet"))
    (store.tables.out / "_manifest.json").unlink()
    store.events = []
    assert store.run(48 * HOUR).days
    assert set(store.tables.out.glob("events/**/*.parquet")) == before


def test_a_queue_whose_folder_would_mean_no_queue_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, tmp_path / "lake")
    name = "__HIVE_DEFAULT_PARTITION__"
    store.add(Life("a", queue=name))
    with pytest.raises(BadInput, match="cannot have tables"):
        store.run(100, queues=[name])
    assert not list(store.tables.out.rglob("*.parquet"))


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


def test_a_job_waits_for_another_writer_as_long_as_it_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int | None] = []

    @contextmanager
    def waiting(*_: object, wait: int | None) -> Iterator[None]:
        waits.append(wait)
        yield

    monkeypatch.setattr(parquet_store, "locked", waiting)
    for wait in ("1m", 60):
        Job(spark, tmp_path / "lake", wait=wait).rebuild([])
    assert waits == [60 * SECOND] * 2
    with pytest.raises(BadInput, match="'soon' is not a duration"):
        Job(spark, tmp_path / "lake", wait="soon")


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
