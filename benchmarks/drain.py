"""How fast messages are sent, claimed, handled and acked, and how soon a handler starts.

Every run measures everything in turn, so that a machine that slows down or speeds up does so for all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from dataclasses import dataclass
from typing import Final

from benchmarks import aims
from benchmarks.bare import fsync_ms, raw_send_per_s, store_write_ms
from benchmarks.figures import Run, figures, percentile, table
from benchmarks.flow import drain, drain_bare, send_per_s
from benchmarks.latency import across_processes_ms, in_process_ms
from benchmarks.place import Place
from benchmarks.work import NotMeasured

_SMALLEST_BODY: Final = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure with."""

    place: Place
    messages: int
    runs: int
    body_bytes: int
    threads: int
    samples: int


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if a handler did not run exactly once for each message."""
    options = _parser().parse_args(arguments)
    place = Place(options.store, options.synchronous, options.directory)
    plan = Plan(place, options.messages, options.runs, options.body_bytes, options.threads, options.latency_messages)
    try:
        runs = [_run(plan, number) for number in range(1, plan.runs + 1)]
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(_report(plan, runs), indent=2) if options.json else _page(plan, runs))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks drain", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full", help="of SQLite (default: %(default)s)")
    parser.add_argument("--directory", help="where files are made (default: the system's for temporary files)")
    parser.add_argument("--messages", type=_from(1), default=100_000, help="for each rate, in each run (default: %(default)s)")
    parser.add_argument("--latency-messages", type=_from(1), default=300, help="for each latency (default: %(default)s)")
    parser.add_argument("--body-bytes", type=_from(_SMALLEST_BODY), default=200, help="of a body as JSON (default: %(default)s)")
    parser.add_argument("--threads", type=_from(1), default=8, help="of the dispatcher (default: %(default)s)")
    parser.add_argument("--runs", type=_from(1), default=5, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


class _from:  # noqa: N801 - argparse names it in its complaints
    """A whole number that is not less than `least`."""

    def __init__(self, least: int) -> None:
        self._least = least
        self.__name__ = f"whole number from {least} on,"

    def __call__(self, text: str) -> int:
        """The number that was written; ValueError for any other text."""
        if (number := int(text)) < self._least:
            raise ValueError
        return number


def _run(plan: Plan, number: int) -> Run:
    """One run: everything in turn."""
    place, messages, size = plan.place, plan.messages, plan.body_bytes
    run: dict[str, float | None] = {}
    _progress(plan, number, "bare inserts")
    run["raw_send_per_s"] = raw_send_per_s(place, messages, size) if place.on_disk else None
    with place.fresh_queue() as queue:
        _progress(plan, number, "sending")
        run["send_per_s"] = send_per_s(queue, messages, size)
        _progress(plan, number, "draining with the steps only")
        run["bare_drain_per_s"] = drain_bare(queue, messages).per_s
    with place.fresh_queue() as queue:
        send_per_s(queue, messages, size)
        _progress(plan, number, "draining with a dispatcher")
        run["drain_per_s"], run["worker_cpu_us_per_message"] = drain(queue, messages, plan.threads)
    _progress(plan, number, "latency")
    within = in_process_ms(place, plan.samples, size, seed=number)
    run["latency_p50_ms"], run["latency_p99_ms"] = percentile(within, 50), percentile(within, 99)
    across = across_processes_ms(place, plan.samples, size, seed=number) if place.on_disk else []
    run["cross_process_latency_p50_ms"], run["cross_process_latency_p99_ms"] = (
        (percentile(across, 50), percentile(across, 99)) if across else (None, None)
    )
    run["fsync_ms"] = fsync_ms(place, plan.samples, seed=number) if place.on_disk else None
    run["store_write_ms"] = store_write_ms(place, plan.samples, size=size, seed=number) if place.on_disk else None
    return run


def _progress(plan: Plan, number: int, part: str) -> None:
    print(f"run {number} of {plan.runs}: {part}", file=sys.stderr, flush=True)


def _report(plan: Plan, runs: list[Run]) -> dict[str, object]:
    conditions: dict[str, object] = {
        "store": plan.place.store,
        "messages": plan.messages,
        "body_bytes": plan.body_bytes,
        "threads": plan.threads,
        "latency_messages": plan.samples,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "processors": os.cpu_count(),
    }
    synchronous = plan.place.synchronous if plan.place.on_disk else None
    return {**figures(runs), "synchronous": synchronous, "conditions": conditions, "aims": aims.judged(runs)}


def _page(plan: Plan, runs: list[Run]) -> str:
    durability = f", synchronous={plan.place.synchronous}" if plan.place.on_disk else ""
    title = f"{plan.messages} messages of {plan.body_bytes} bytes, {plan.place.store}{durability}, {plan.runs} runs"
    return "\n".join([title, "", table(figures(runs)), "", aims.told(aims.judged(runs))])
