"""Rates with many consumers: threads of one process, and processes that share rows.

Sixty-four threads receive one message at a time; one thread does so through the claimer and by the bare steps; one,
two, four and eight processes drain the same eight rows. Each run measures everything once, alternately.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from benchmarks.figures import Figure, Run, figures, rounded, table
from benchmarks.parallel_drain import drained_by
from benchmarks.receivers import many_consumers, one_consumer
from benchmarks.target import Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.workload import NotMeasured

_PROCESSES: Final = (1, 2, 4, 8)


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if a message was not handled exactly once."""
    made = parser("contention", __doc__, ("cassandra", "sqlite", "memory"))
    made.add_argument(
        "--messages", type=whole_number(1), default=40_000, help="for the processes, in each run (default: %(default)s)"
    )
    made.add_argument(
        "--consumers", type=whole_number(2), default=64, help="threads of one process (default: %(default)s)"
    )
    made.add_argument("--processes", type=whole_number(1), default=8, help="at most (default: %(default)s)")
    made.add_argument(
        "--taken",
        type=whole_number(100),
        default=6_400,
        help="messages for the threads, in each run (default: %(default)s)",
    )
    options = made.parse_args(arguments)
    try:
        with opened(options) as target:
            runs = [_run(target, options, number) for number in range(1, options.runs + 1)]
            report = {**figures(runs), "conditions": _conditions(target, options), "aims": _aims(runs)}
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else _page(figures(runs), _aims(runs)))
    return 0


def _run(target: Target, options: argparse.Namespace, number: int) -> Run:
    progress(f"run {number} of {options.runs}: {options.consumers} consumers")
    run: dict[str, float | None] = {**many_consumers(target, options.taken, options.consumers)}
    progress(f"run {number} of {options.runs}: one consumer, with and without combining")
    combined, alone = one_consumer(target, options.taken)
    run |= {
        "one_consumer_per_s": combined,
        "without_combining_per_s": alone,
        "one_consumer_to_without": combined / alone,
    }
    for count in [each for each in _PROCESSES if target.shared and each <= options.processes]:
        progress(f"run {number} of {options.runs}: {count} process{'es' * (count > 1)}")
        run |= drained_by(target, count, options.messages)
    return run


def _conditions(target: Target, options: argparse.Namespace) -> dict[str, object]:
    return {
        "store": target.store,
        "messages": options.messages,
        "consumers": options.consumers,
        "taken": options.taken,
        **target.conditions,
    }


def _aims(runs: list[Run]) -> list[dict[str, object]]:
    """Whether the medians are as they should be."""
    named = figures(runs)
    checked = [
        _checked(
            "64 consumers: fewer than 0.1 attempts at a lock a message",
            named["lock_attempts_per_message"],
            0.1,
            most=True,
        ),
        _checked(
            "64 consumers: the fastest gets less than twice what the slowest gets",
            named["fastest_to_slowest_consumer"],
            2,
            most=True,
        ),
        _checked("one consumer: within 5 % of no combining", named["one_consumer_to_without"], 0.95, most=False),
    ]
    for fewer, more in pairwise(_PROCESSES):
        text = f"{more} processes drain no slower than {fewer}"
        slower = [(run.get(f"processes_{more}_per_s"), run.get(f"processes_{fewer}_per_s")) for run in runs]
        ratios: list[Run] = [{"ratio": after / before} for after, before in slower if after and before]
        checked += [_checked(text, figures(ratios)["ratio"], 1, most=False)] if ratios else []
    return checked


def _checked(aim: str, measured: Figure | None, bound: float, *, most: bool) -> dict[str, object]:
    median = measured["median"] if measured else None
    reached = isinstance(median, float | int) and (median <= bound if most else median >= bound)
    return {
        "aim": aim,
        "measured": rounded(median) if isinstance(median, float | int) else None,
        "bound": bound,
        "reached": reached,
    }


def _page(named: dict[str, Figure | None], checked: Iterable[dict[str, object]]) -> str:
    lines = [
        f"{'reached' if one['reached'] else 'NOT REACHED':<12}{one['aim']}: {one['measured']} (bound {one['bound']})"
        for one in checked
    ]
    return "\n".join([table(named), "", *lines])
