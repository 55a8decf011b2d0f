"""The report where PySpark is not installed: it reads tables, which takes pyarrow and no more."""

from __future__ import annotations

import stat
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from astyqueue.errors import NotFound
from astyqueue.spark.pipeline import manifest
from astyqueue.spark.pipeline.manifest import Manifest, ReadSoFar
from astyqueue.spark.pipeline.report.data import Days, in_short, load
from astyqueue.spark.pipeline.report.page import report as page_on
from astyqueue.spark.pipeline.report.page import write

ROOT = Path(__file__).parents[3]
#: Runs a command in a Python in which some packages are not installed.
RUN = (
    "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(','))); from astyqueue.cli import main; main()"
)
MESSAGE = {
    "message": "m-1",
    "row": "emails:0:0",
    "state": "done",
    "took": 1_000_000,
    "attempts": 1,
    "waited": 500_000,
    "ran": 500_000,
}
NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Tables that tell of one message."""
    folder = tmp_path / "lake"
    manifest.store(folder, Manifest(queues={"emails": ReadSoFar(until_us=0)}))
    day = folder / "messages" / "queue=emails" / "day=2026-03-14"
    day.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist([MESSAGE | {"sent": NOON, "settled": NOON}]), day / "part.parquet")
    return folder


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (None, "schedules are approximate on 2 days, which were built with --approximate; all others are exact."),
        (Days(first=date(2026, 3, 14)), "schedules are approximate on 1 day, which"),
        (Days(first=date(2026, 3, 14), last=date(2026, 3, 14)), "schedules are approximate on 1 day, which"),
    ],
)
def test_a_report_says_which_percentiles_are_approximate(lake: Path, days: Days | None, said: str) -> None:
    read = ReadSoFar(until_us=0, approximate=(date(2026, 3, 13), date(2026, 3, 14)))
    manifest.store(lake, Manifest(queues={"emails": read}))
    write(lake, lake / "report.html", days)
    footer = (lake / "report.html").read_text().partition("<footer>")[2]
    assert said in footer
    assert ("Percentiles are exact" in footer) == said.startswith("Percentiles are exact")


def test_a_service_level_counts_on_the_days_that_were_built_with_it(lake: Path) -> None:
    manifest.store(lake, Manifest(queues={"emails": ReadSoFar(until_us=0, objective="end<=1h")}))
    for day, objective, met in ((13, "wait<=10s", 1), (14, "end<=1h", 9)):
        folder = lake / "facts" / "queue=emails" / f"day=2026-03-{day}"
        folder.mkdir(parents=True)
        fact = {"grain": "queue", "objective": objective, "objective_of": 10, "objective_met": met}
        parquet.write_table(pa.Table.from_pylist([fact]), folder / "part.parquet")
    [figures] = load(lake)
    assert in_short(figures)["met"] == "90 % end<=1h"
    write(lake, lake / "report.html")
    assert ">90 %<" in (lake / "report.html").read_text()


def test_a_page_on_several_queues_leads_to_each_and_counts_what_is_not_done_there(lake: Path) -> None:
    queues = ("calls", "emails")
    manifest.store(lake, Manifest(queues={queue: ReadSoFar(until_us=0) for queue in queues}))
    day = lake / "messages" / "queue=calls" / "day=2026-03-14"
    day.mkdir(parents=True)
    there = [{"message": f"m-{state}", "state": state, "sent": NOON} for state in ("waiting", "in flight", "dead")]
    parquet.write_table(pa.Table.from_pylist(there), day / "part.parquet")
    page = page_on(load(lake))
    assert [link.get("href") for link in page.iter("a")] == ["#queue-calls", "#queue-emails"]
    assert [title.get("id") for title in page.iter("h2")] == ["queue-calls", "queue-emails"]
    unfinished = [card for card in page.iter("div") if card.get("data-name") == "open"]
    assert [(card.findtext("b"), card.findtext("span")) for card in unfinished] == [("2", "not done yet")]


def report(lake: Path, *, missing: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        RUN,
        missing,
        "pipeline",
        "report",
        "--out",
        str(lake),
        "--to",
        str(lake / "report.html"),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_report_needs_no_spark(lake: Path) -> None:
    ended = report(lake, missing="pyspark,py4j")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "emails" in (lake / "report.html").read_text()
    assert stat.S_IMODE((lake / "report.html").stat().st_mode) == 0o600


def test_a_report_of_days_without_data_leaves_the_page_as_it_is(lake: Path) -> None:
    page = lake / "report.html"
    page.write_text("old")
    for days in (Days(first=date(2026, 3, 15)), Days(last=date(2026, 3, 13))):
        with pytest.raises(NotFound, match=r"nothing of the days (from 2026-03-15|to 2026-03-13); .*give other days"):
            write(lake, page, days)
    assert page.read_text() == "old"


def test_what_a_report_lacks_is_said(lake: Path) -> None:
    ended = report(lake, missing="pyspark,py4j,pyarrow")
    assert (ended.returncode, "pip install '.[spark]' in a clone of astyqueue" in ended.stderr) == (2, True)
    assert len(ended.stderr.splitlines()) == 1


def test_a_report_takes_the_place_of_a_file_and_of_nothing_else(lake: Path) -> None:
    theirs, page = lake.parent / "theirs", lake / "report.html"
    theirs.write_text("precious")
    page.symlink_to(theirs)
    ended = report(lake, missing="pyspark")
    assert (ended.returncode, "is a link" in ended.stderr, theirs.read_text()) == (2, True, "precious")
    page.unlink()
    page.write_text("old")
    page.chmod(0o644)
    assert report(lake, missing="pyspark").returncode == 0
    assert (page.read_text() != "old", stat.S_IMODE(page.stat().st_mode)) == (True, 0o644)
    assert [path.name for path in lake.iterdir() if path.name.startswith(".")] == []
