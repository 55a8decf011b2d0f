"""Duration of the pipeline, from a synthetic history of a day to tables and a report.

Measured apart: a session of Spark to start, reading and building everything the first time, doing so again with nothing
new but the last hour, and the report. The history is on SQLite, where a day is one partition of Spark. The picture in
`docs/how-to/pipeline.md` shows the page of `--messages 5000 --report FILE` in a browser of 1120 pixels' width.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from astyqueue import connect
from astyqueue.spark import session
from astyqueue.spark.pipeline.batch import Job, Span
from astyqueue.spark.pipeline.report.page import write
from astyqueue.units import SECOND
from benchmarks.figures import Run, figures, rounded, table
from benchmarks.synthetic_history import make_up
from benchmarks.target import CLOCK
from benchmarks.target_options import progress, whole_number

T = TypeVar("T")
_QUEUE: Final = "shop"
_DAY: Final = 86_400 * SECOND
_HOUR: Final = 3_600 * SECOND
_MEGABYTE: Final = 1024


def main(arguments: list[str]) -> int:
    """Measure, and print; `python -m benchmarks pipeline --help` lists the options."""
    options = _parser().parse_args(arguments)
    runs = [_run(options, number) for number in range(1, options.runs + 1)]
    conditions = {
        "messages": options.messages,
        "master": options.master,
        "memory": options.memory,
        "approximate": options.approximate,
    }
    found = {"question": "pipeline", "conditions": conditions, "figures": figures(runs)}
    print(json.dumps(found, indent=2) if options.json else table(figures(runs)))
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks pipeline", description=__doc__)
    made.add_argument("--messages", type=whole_number(1), default=100_000, help="default: %(default)s")
    made.add_argument("--master", default="local[2]", help="of Spark (default: %(default)s)")
    made.add_argument("--memory", default="2g", help="of the Java (default: %(default)s)")
    made.add_argument("--approximate", action="store_true", help="sketch percentiles")
    made.add_argument("--report", type=Path, metavar="FILE", help="keep the page here")
    made.add_argument("--runs", type=whole_number(1), default=1, help="default: %(default)s")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return made


def _run(options: argparse.Namespace, number: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="astyqueue-") as directory:
        folder = Path(directory)
        url = f"sqlite:///{folder}/queue.db?synchronous=normal"
        # All of it within one day, the last that is over.
        since = CLOCK.now() // _DAY * _DAY - _DAY
        progress(f"run {number} of {options.runs}: making up {options.messages} messages")
        with connect(url) as connection:
            queue = connection.queue(_QUEUE, concurrency_shards=4, history="all")
            events, made_s = _timed(lambda: make_up(queue, options.messages, since=since, length=_DAY - _HOUR))
        return {"events": float(events), "making_up_s": made_s, **_measured(options, folder, url)}


def _measured(options: argparse.Namespace, folder: Path, url: str) -> dict[str, float]:
    settings = {"spark.driver.memory": options.memory, "spark.sql.shuffle.partitions": "8", "spark.log.level": "ERROR"}
    spark, session_s = _timed(lambda: session(options.master, name="benchmark", settings=settings))
    try:
        job = Job(spark, folder / "lake", approximately=options.approximate)
        progress("the first run")
        _, first_s = _timed(lambda: job.run(url, [_QUEUE], Span(kept=2 * _DAY)))
        progress("a run with nothing new but the last hour")
        _, again_s = _timed(lambda: job.run(url, [_QUEUE], Span(since=CLOCK.now() // _DAY * _DAY - 2 * _HOUR)))
    finally:
        spark.stop()
    page = (options.report or folder / "report.html").absolute()
    found, report_s = _timed(lambda: write(folder / "lake", page))
    assert found[0].counts()["sent"] == options.messages  # noqa: S101 - a figure of something else would be worth nothing
    size = sum(path.stat().st_size for path in (folder / "lake").rglob("*.parquet"))
    return {
        "session_s": session_s,
        "first_run_s": first_s,
        "again_s": again_s,
        "report_s": report_s,
        "messages_per_s": options.messages / first_s,
        "tables_mb": rounded(size / 1e6),
        "report_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEGABYTE,
    }


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    began = CLOCK.monotonic()
    return action(), (CLOCK.monotonic() - began) / SECOND
