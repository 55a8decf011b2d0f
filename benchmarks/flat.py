"""Polls and claims stay cheap in a row that half a million messages have passed through.

Half a million messages of three priorities go through one row; one in a hundred is released once, one in a hundred was
sent with a delay, and at the end some are backing off. The fresh row has as many that are backing off, and nothing else
was ever in it. New processes measure both in turn, after a flush and with no compaction asked for; and again when the
cursors were deleted from the header of the row. At the end some minutes of load, in ten windows, show whether the rate
holds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from astyqueue import MessageQueue
from astyqueue.protocol.layout.columns import HEADER, decode_header
from astyqueue.protocol.row.header_commit import RowTransaction
from astyqueue.protocol.steps import Steps, read_column
from benchmarks import steady
from benchmarks.cassandra import OnCassandra
from benchmarks.figures import Figure, Run, figures, table
from benchmarks.row_churn import ROWS, back_off, pass_through
from benchmarks.target import Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.workload import NotMeasured

_PROJECT: Final = Path(__file__).parents[1]
_MOST: Final = 1.2
_RATIOS: Final = ("poll_ratio", "claim_ratio")


@dataclass(frozen=True, slots=True)
class Rows:
    """The two queues, each of one row."""

    url: str
    fresh: MessageQueue
    used: MessageQueue


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if anything was lost."""
    made = parser("flat", __doc__, ("cassandra", "sqlite"))
    made.add_argument(
        "--messages", type=whole_number(100), default=500_000, help="through the row (default: %(default)s)"
    )
    made.add_argument(
        "--backing-off", type=whole_number(1), default=50_000, help="in either row at the end (default: %(default)s)"
    )
    made.add_argument(
        "--minutes",
        type=float,
        default=25,
        help="of load, to see whether the rate holds; 0 leaves it out (default: %(default)s)",
    )
    made.add_argument(
        "--samples", type=whole_number(1), default=100, help="polls and claims in each run (default: %(default)s)"
    )
    options = made.parse_args(arguments)
    try:
        with opened(options) as target:
            with target.fresh() as url:
                report = _report(target, options, url)
            held = steady.measured(target, steady.Plan(options.minutes)) if options.minutes else None
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps({**report, "steady": held}, indent=2) if options.json else _page(report, held))
    return 0 if report["without_cursors"] else 1


def _report(target: Target, options: argparse.Namespace, url: str) -> dict[str, object]:
    with _queue(url, "fresh") as fresh, _queue(url, "used") as used:
        rows = Rows(url, fresh, used)
        progress(f"{options.messages} messages through one row")
        passed = pass_through(used, options.messages)
        for queue in (fresh, used):
            progress(f"{options.backing_off} messages backing off in the {queue.settings.name} row")
            back_off(queue, options.backing_off)
        measured = figures(_runs(target, options, rows, text="with cursors"))
        progress("deleting the cursors from the header")
        used.run(_delete_cursors(used))
        without = _without(target, options, rows)
        if without:
            _check(rows, options.backing_off)
    conditions = {
        "store": target.store,
        "messages": options.messages,
        "backing_off": options.backing_off,
        **passed,
        **target.conditions,
    }
    return {
        **measured,
        "without_cursors": without,
        "conditions": conditions,
        "aims": [*_aims(measured, ""), *_aims(without or dict.fromkeys(_RATIOS), "without cursors, ")],
    }


def _without(target: Target, options: argparse.Namespace, rows: Rows) -> dict[str, Figure | None] | None:
    """The same figures when the cursors are gone; none, and said so, where no process finds its way through the row."""
    try:
        return figures(_runs(target, options, rows, text="without cursors"))
    except NotMeasured as failure:
        print(f"not measured without cursors: {failure}", file=sys.stderr)
        return None


def _queue(url: str, name: str) -> MessageQueue:
    return MessageQueue.builder().store(url).name(name).options(**ROWS).build()


def _runs(target: Target, options: argparse.Namespace, rows: Rows, *, text: str) -> list[Run]:
    """New processes, one after the other; each measures both rows in turn. The first finds the row as it was left."""
    if isinstance(target, OnCassandra):
        progress("flushing")
        target.flush()
    runs = []
    for number in range(1, options.runs + 1):
        progress(f"run {number} of {options.runs}, {text}")
        command = [
            sys.executable,
            "-m",
            "benchmarks.processes.poller",
            rows.url,
            str(options.samples),
            *(("used", "fresh") if number % 2 else ("fresh", "used")),
        ]
        finished = subprocess.run(command, cwd=_PROJECT, check=False, capture_output=True, text=True)
        if finished.returncode:
            message = f"the measuring process failed: {finished.stderr}"
            raise NotMeasured(message)
        runs.append(_ratios(json.loads(finished.stdout)))
    return runs


def _ratios(run: dict[str, float]) -> Run:
    return {
        **run,
        "poll_ratio": run["after_ms"] / run["fresh_ms"],
        "claim_ratio": run["after_claim_ms"] / run["fresh_claim_ms"],
    }


def _delete_cursors(queue: MessageQueue) -> Steps[None]:
    """Raise the header to one without cursors, as if they had been lost."""
    row = queue.core.ring.rows()[0]
    column = yield from read_column(row, HEADER, exact=True)
    if column is None:
        message = f"row {row} has no header"
        raise NotMeasured(message)
    header = decode_header(row, column.value)
    change = RowTransaction(row)
    change.bump_header(column.value, replace(header, version=header.version + 1, cursors=()))
    yield from change.commit()


def _check(rows: Rows, backing_off: int) -> None:
    """See that nothing was lost: what is backing off is there, and nothing else."""
    for queue in (rows.fresh, rows.used):
        counts = queue.counts()
        if (counts.total, counts.backing_off) != (backing_off, backing_off):
            message = (
                f"{backing_off} messages must be backing off in the {queue.settings.name} row, "
                f"and nothing else be there: {counts}"
            )
            raise NotMeasured(message)


def _aims(measured: dict[str, Figure | None], text: str) -> list[dict[str, object]]:
    checked: list[dict[str, object]] = []
    for name in _RATIOS:
        one = measured[name]
        median = one["median"] if one else None
        reached = isinstance(median, float | int) and median <= _MOST
        checked.append(
            {"aim": f"{text}{name}: at most {_MOST}", "measured": median, "bound": _MOST, "reached": reached}
        )
    return checked


def _page(report: dict[str, object], held: dict[str, object] | None) -> str:
    named = {name: one for name, one in report.items() if name not in ("conditions", "aims", "without_cursors")}
    parts = [table(named), "", "without cursors:", table(report["without_cursors"] or {})]  # type: ignore[arg-type]  # these are figures
    if held is not None:
        parts += ["", "under load, in ten windows:", steady.page(held)]
    return "\n".join(parts)
