"""Rates of sending, claiming, handling and acking on one process, and the latency from send to handler.

Each run measures everything once, alternately, so that a machine that slows down or speeds up does so for all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import dataclass
from typing import Final

from astyqueue.units import SECOND
from benchmarks import baselines
from benchmarks.figures import AIMS, Aim, Run, aims_checked, figures, percentile, table, verdict_table
from benchmarks.latency import across_processes_ms, after_an_idle_hour_ms, in_process_ms
from benchmarks.target import ONE_ROW, Target, fresh_queue
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.throughput import drain, drain_bare, send_per_s
from benchmarks.workload import NotMeasured

_SMALLEST_BODY: Final = 64
#: Concurrency shards among which the messages of a call are spread: as many as a queue on Cassandra has by itself.
_SHARDS: Final = 8
#: Messages at random intervals take long: this many are enough.
_IDLE: Final = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure with."""

    target: Target
    messages: int
    runs: int
    body_bytes: int
    threads: int
    samples: int


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if a handler did not run exactly once for each message."""
    options = _parser().parse_args(arguments)
    try:
        with opened(options) as target:
            plan = Plan(
                target=target,
                messages=options.messages,
                runs=options.runs,
                body_bytes=options.body_bytes,
                threads=options.threads,
                samples=options.latency_messages,
            )
            runs = [_run(plan, number) for number in range(1, plan.runs + 1)]
            checked = aims_checked(_aims(plan), runs)
            conditions = _conditions(plan)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    synchronous = options.synchronous if options.store == "sqlite" else None
    report = {**figures(runs), "synchronous": synchronous, "conditions": conditions, "aims": checked}
    print(json.dumps(report, indent=2) if options.json else _page(plan, runs, checked))
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser("drain", __doc__)
    made.add_argument(
        "--messages", type=whole_number(1), default=100_000, help="for each rate, in each run (default: %(default)s)"
    )
    made.add_argument(
        "--latency-messages", type=whole_number(1), default=300, help="for each latency (default: %(default)s)"
    )
    made.add_argument(
        "--body-bytes", type=whole_number(_SMALLEST_BODY), default=200, help="of a body as JSON (default: %(default)s)"
    )
    made.add_argument("--threads", type=whole_number(1), default=8, help="of the dispatcher (default: %(default)s)")
    return made


def _run(plan: Plan, number: int) -> Run:
    """One run: everything once."""
    target, messages, size = plan.target, plan.messages, plan.body_bytes
    run: dict[str, float | None] = {}
    _progress(plan, number, "bare inserts")
    run["raw_send_per_s"] = baselines.raw_send_per_s(target, messages, size)
    run["raw_bytes_per_s"] = baselines.raw_bytes_per_s(target, messages, size)
    with fresh_queue(target, **ONE_ROW) as queue:
        _progress(plan, number, "sending")
        run["send_per_s"] = send_per_s(queue, messages, size)
        _progress(plan, number, "draining with the steps only")
        run["bare_drain_per_s"] = drain_bare(queue, messages).per_s
    with fresh_queue(target, concurrency_shards=_SHARDS) as queue:
        _progress(plan, number, "sending to many rows")
        run["send_spread_per_s"] = send_per_s(queue, messages, size)
    run |= _drained(plan, number)
    run |= _latencies(plan, number)
    run["fsync_ms"] = baselines.fsync_ms(target, plan.samples, seed=number)
    run["store_write_ms"] = baselines.store_write_ms(target, plan.samples, size=size, seed=number)
    return run


def _drained(plan: Plan, number: int) -> Run:
    """Draining with a dispatcher: how fast, at what cost, and in how many claims."""
    with fresh_queue(plan.target) as queue:
        send_per_s(queue, plan.messages, plan.body_bytes)
        _progress(plan, number, "draining with a dispatcher")
        before = plan.target.store_cpu_s()
        drained = drain(queue, plan.messages, plan.threads)
        after = plan.target.store_cpu_s()
        stats = queue.stats
    return {
        "drain_per_s": drained.per_s,
        "worker_cpu_us_per_message": drained.cpu_us,
        "store_cpu_us_per_message": None
        if before is None or after is None
        else (after - before) * SECOND / plan.messages,
        "messages_per_claim": plan.messages / stats.claims,
        "refused_commits_per_message": stats.refused_commits / plan.messages,
    }


def _latencies(plan: Plan, number: int) -> Run:
    """From `send` to the handler: in this process, from another, and from another after an hour without traffic."""
    target, samples, size = plan.target, plan.samples, plan.body_bytes
    _progress(plan, number, "latency")
    taken = {"latency": in_process_ms(target, samples, size, seed=number)}
    if target.shared:
        taken["cross_process_latency"] = across_processes_ms(target, samples, size, seed=number)
        _progress(plan, number, "latency after an idle hour")
        taken["idle_hour_latency"] = after_an_idle_hour_ms(target, min(samples, _IDLE), size, seed=number)
    names = ("latency", "cross_process_latency", "idle_hour_latency")
    return {
        f"{name}_p{part}_ms": percentile(taken[name], part) if name in taken else None
        for name in names
        for part in (50, 99)
    }


def _progress(plan: Plan, number: int, part: str) -> None:
    progress(f"run {number} of {plan.runs}: {part}")


def _conditions(plan: Plan) -> dict[str, object]:
    return {
        "store": plan.target.store,
        "messages": plan.messages,
        "body_bytes": plan.body_bytes,
        "threads": plan.threads,
        "latency_messages": plan.samples,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        **plan.target.conditions,
    }


def _aims(plan: Plan) -> tuple[Aim, ...]:
    """A ring of nodes has aims of its own."""
    return AIMS["ring" if plan.target.conditions.get("nodes", 1) != 1 else plan.target.store]


def _page(plan: Plan, runs: list[Run], checked: list[dict[str, object]]) -> str:
    title = f"{plan.messages} messages of {plan.body_bytes} bytes, {plan.target.store}, {plan.runs} runs"
    return "\n".join([title, "", table(figures(runs)), "", verdict_table(checked)])
