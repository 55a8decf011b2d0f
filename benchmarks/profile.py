"""Where does the processor time of a message go, and what does each part add?

Parts are added one after the other, each measured with everything below it, interleaved; the differences are what the
parts cost. The requests of the steps are timed apart, and at the end a profiler names the functions (it makes calls look
dearer than they are: compare its lines with each other only).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
from collections.abc import Callable
from typing import Final

from benchmarks.figures import Run, figures, table
from benchmarks.flow import drain, drain_bare, send_per_s
from benchmarks.parts import Meter, claim_then_ack, drain_with_claimer, read_all
from benchmarks.place import Place
from benchmarks.work import NotMeasured

_FUNCTIONS: Final = 25

Function = dict[str, object]


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if the messages were not handled as they must be."""
    options = _parser().parse_args(arguments)
    place = Place(options.store, options.synchronous, options.directory)
    try:
        runs = [_run(place, options.messages, number) for number in range(1, options.runs + 1)]
        functions = _functions(place, options.messages)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    if options.json:
        report = {"cpu_us_per_message": figures(runs), "functions": functions, "synchronous": options.synchronous}
        print(json.dumps(report, indent=2))
    else:
        print(_page(runs, functions))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks profile", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full", help="of SQLite (default: %(default)s)")
    parser.add_argument("--directory", help="where files are made (default: the system's for temporary files)")
    parser.add_argument("--messages", type=int, default=50_000, help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _run(place: Place, messages: int, number: int) -> Run:
    """Microseconds of processor time a message, for each part with all below it."""
    run: dict[str, float | None] = {}

    def measured(name: str, cpu_us: Callable[[], float]) -> None:
        print(f"run {number}: {name}", file=sys.stderr, flush=True)
        run[name] = cpu_us()

    def filled(name: str, *work: tuple[str, Callable[..., float]]) -> None:
        with place.fresh_queue() as queue:
            measured(name, lambda: Meter().around(lambda: send_per_s(queue, messages, 200)) / messages)
            for part, cpu_us in work:
                measured(part, lambda cpu_us=cpu_us: cpu_us(queue, messages))

    filled(
        "send: send_many",
        ("drain: read", lambda queue, count: read_all(queue, count, decoded=False)),
        ("drain: read, decode", lambda queue, count: read_all(queue, count, decoded=True)),
        ("drain: steps, acks joined to claims", lambda queue, count: drain_bare(queue, count).cpu_us),
    )
    filled("send: again", ("drain: steps, acks in commits of their own", lambda queue, count: claim_then_ack(queue, count, run)))
    filled("send: once more", ("drain: claimer, one thread", drain_with_claimer))
    filled("send: a fourth time", ("drain: dispatcher, 1 thread", lambda queue, count: drain(queue, count, 1).cpu_us))
    filled("send: a fifth time", ("drain: dispatcher, 8 threads", lambda queue, count: drain(queue, count, 8).cpu_us))
    return run
