"""The report on very long names and on very many: the memory it needs has a bound, and it says what it leaves out."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from astyqueue.clock import microseconds
from astyqueue.spark.pipeline import manifest
from astyqueue.spark.pipeline.manifest import Manifest, ReadSoFar
from astyqueue.spark.pipeline.report import data, reader
from astyqueue.spark.pipeline.report.data import load
from astyqueue.spark.pipeline.report.html import count
from astyqueue.spark.pipeline.report.page import write
from astyqueue.spark.pipeline.schemas import (
    ATTEMPTS,
    FACTS,
    FAILURES,
    MESSAGES,
    NAME_LENGTH,
    SCHEDULES,
    Table,
    shortened,
)
from astyqueue.units import SECOND
from tests.spark.pipeline.test_report import Reading

NOON: Final = microseconds(datetime(2026, 3, 14, 12, tzinfo=UTC))
LONG: Final = "t" * 8_000
#: What a report on one attempt needs is most of this: Python, numpy and Arrow themselves.
MEGABYTES: Final = 600
#: Has a small process begin the command: the system tells as its peak no less than what its parent needed just then.
MEASURE: Final = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


def store(folder: Path, table: Table, **told: object) -> None:
    """A table of one day, of which these columns are known."""
    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    arrays = {name: pa.array(values).cast(kinds[table.kinds[name]]) for name, values in told.items()}
    day = folder / table.name / "queue=emails" / "day=2026-03-14"
    day.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(arrays), day / "part.parquet")
    manifest.store(folder, Manifest(queues={"emails": ReadSoFar(until_us=0)}))


def repeated(names: list[str], rows: int) -> pa.Array:
    """These names again and again, so many rows; the last of them once only."""
    codes = np.arange(rows, dtype=np.int32) % (len(names) - 1)
    codes[-1] = len(names) - 1
    return pa.DictionaryArray.from_arrays(codes, names).cast(pa.string())


def hostile(folder: Path, rows: int, different: int) -> None:
    """Tables of so many rows with so many names of each kind, one of them as long as a header may be.

    Failures and schedules have no more than 100 000 rows.
    """
    names = [*(f"task {number}\0" for number in range(different - 1)), LONG]
    ended = NOON + np.arange(rows) * 1_000
    ran = np.arange(rows) % 1_000 * 1_000
    ones = np.ones(rows, dtype=np.int64)
    states = repeated(["dead", "done", "done"], rows)
    store(folder, MESSAGES, sent=ended, changed=ended, settled=ended, state=states, took=ran)
    tasks, outcomes = repeated(names, rows), repeated(["done", "failed"], rows)
    store(folder, ATTEMPTS, task=tasks, ended=ended, outcome=outcomes, waited=ran, ran=ran)
    grains = repeated(["key", "tenant", "host", "key"], rows)
    counted = dict.fromkeys(("sent", "done", "dead", "attempts", "failed", "expired"), ones)
    store(folder, FACTS, grain=grains, member=tasks, ran=ran, **counted)
    hostile_failures_and_schedules(folder, names, min(rows, 100_000))


def hostile_failures_and_schedules(folder: Path, names: list[str], rows: int) -> None:
    """These two tables, of so many rows with the last of these names."""
    last_names = repeated(names[-rows:], rows)
    ones = np.ones(rows, dtype=np.int64)
    store(
        folder,
        FAILURES,
        task=last_names,
        failure=repeated(["<number> is bad", LONG[:200]], rows),
        example=repeated(["4711 is bad", LONG[:1_000]], rows),
        times=ones,
        dead=ones,
        last=NOON + np.arange(rows) * 1_000,
    )
    counted = dict.fromkeys(("fired", "skipped", "started", "within_1s"), ones)
    store(folder, SCHEDULES, schedule=last_names, **counted)


def peak(folder: Path) -> int:
    """Megabytes that the command of the report needed at the most."""
    page = folder / "report.html"
    command = [sys.executable, "-m", "astyqueue", "pipeline", "report", "--out", str(folder), "--to", str(page)]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, check=True, timeout=300
    )
    return int(ended.stdout)


@pytest.mark.full
def test_a_million_rows_of_a_hundred_thousand_names_need_a_bounded_memory(tmp_path: Path) -> None:
    hostile(tmp_path / "small", 100, 10)
    hostile(tmp_path / "large", 1_000_000, 100_001)
    small, large = peak(tmp_path / "small"), peak(tmp_path / "large")
    sys.stdout.write(
        f"1 000 000 attempts, messages and facts with 100 000 names: {large} MB at the most; 100 rows: {small} MB\n"
    )
    assert large < MEGABYTES
    page = (tmp_path / "large" / "report.html").stat().st_size
    assert page < 1_000_000


def rows_of(folder: Path) -> list[list[str]]:
    write(folder, folder / "report.html")
    return [row for row in Reading((folder / "report.html").read_text()).rows if row]


def test_what_is_not_shown_is_in_a_row_of_its_own_so_that_a_table_adds_up(tmp_path: Path) -> None:
    hostile(tmp_path, 10_000, 1_001)
    rows = rows_of(tmp_path)
    others = [row for row in rows if row[0].startswith("and ")]
    assert [row[0] for row in others] == [
        "and 981 others",
        "and 981 others",
        f"and {count(9_980)} others",
        *["and 980 others"] * 2,
    ]
    for told in (row for row in others if row[-1].endswith("%")):
        assert told[1] not in {"0", ""}


def test_names_beyond_those_that_are_distinguished_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_NAMES", 30)
    monkeypatch.setattr(data, "MOST_CAUSES", 30)
    hostile(tmp_path, 1_000, 100)
    rows = rows_of(tmp_path)
    assert {row[0] for row in rows if row[0].startswith("and ")} >= {"and more than 10 others"}
    [figures] = load(tmp_path)
    assert len(figures.attempts.names("task").codes) == 1_000


def test_a_name_that_ends_with_nothing_is_not_the_name_without_that(tmp_path: Path) -> None:
    store(
        tmp_path,
        ATTEMPTS,
        task=["pay", "pay\0", "pay\0\0", None],
        ended=[NOON] * 4,
        outcome=["done"] * 4,
        waited=[0] * 4,
        ran=[SECOND] * 4,
    )
    shown = [row[:2] for row in rows_of(tmp_path) if row[0].startswith(("pay", "(no task)"))]
    assert sorted(shown) == [["(no task)", "1"], ["pay", "1"], ["pay\\u0000", "1"], ["pay\\u0000\\u0000", "1"]]


def test_names_are_cut_and_stay_different(tmp_path: Path) -> None:
    long = [LONG, f"{LONG}!", f"{LONG[:-1]}!"]
    store(tmp_path, ATTEMPTS, task=long, ended=[NOON] * 3, outcome=["done"] * 3, waited=[0] * 3, ran=[SECOND] * 3)
    shown = {row[0] for row in rows_of(tmp_path) if row[0].startswith("ttt")}
    assert shown == set(map(shortened, long))
    assert {len(name) for name in shown} == {NAME_LENGTH}


def test_moments_of_far_ages_are_read_as_they_were_written(tmp_path: Path) -> None:
    far = [datetime(1600, 1, 1, tzinfo=UTC), datetime(5000, 1, 1, tzinfo=UTC)]
    day = tmp_path / MESSAGES.name / "queue=emails" / "day=2026-03-14"
    day.mkdir(parents=True)
    parquet.write_table(
        pa.table({"sent": pa.array(far, pa.timestamp("us", tz="UTC"))}),
        day / "part.parquet",
        use_deprecated_int96_timestamps=True,
    )
    manifest.store(tmp_path, Manifest(queues={"emails": ReadSoFar(until_us=0)}))
    [figures] = load(tmp_path)
    assert figures.period == (microseconds(far[0]), microseconds(far[1]))
