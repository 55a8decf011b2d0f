"""Processor time of a message, part by part.

Each line is measured with everything that it needs and by itself, in turn with the others: the difference of two is
what the one adds to the other. At the end a profiler names the functions; it makes calls look dearer than they are, so
compare its lines with each other only.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from astyqueue import MessageQueue
from benchmarks import cost_breakdown
from benchmarks.cost_breakdown import Costs
from benchmarks.figures import Run, figures, table
from benchmarks.target import ONE_ROW, Target, fresh_queue
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.throughput import send_per_s
from benchmarks.workload import NotMeasured

_FUNCTIONS: Final = 25
_BODY: Final = 200
_PROJECT: Final = Path(__file__).parents[1]

#: Each needs a full queue; the first of them leaves it full.
_PARTS: Final[tuple[Callable[[MessageQueue, int], Costs], ...]] = (
    cost_breakdown.reading,
    cost_breakdown.steps_apart,
    cost_breakdown.steps_joined,
    cost_breakdown.claimer_alone,
    cost_breakdown.one_handler,
    cost_breakdown.many_handlers,
)


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if the messages were not handled as they must be."""
    made = parser("profile", __doc__)
    made.add_argument(
        "--messages", type=whole_number(1), default=50_000, help="for each line, in each run (default: %(default)s)"
    )
    options = made.parse_args(arguments)
    try:
        with opened(options) as target:
            costs = figures([_run(target, options.messages, number) for number in range(1, options.runs + 1)])
            functions = _functions(target, options.messages)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(
            json.dumps(
                {"cpu_us_per_message": costs, "functions": functions, "synchronous": options.synchronous}, indent=2
            )
        )
        return 0
    print(
        f"microseconds of processor time a message\n\n{table(costs)}\n\n"
        "the claimer in one thread, profiled: share of its own time"
    )
    print("\n".join(f"{share:>7.1%}  {name}" for name, share in functions.items()))
    return 0


def _run(target: Target, messages: int, number: int) -> Run:
    """Every part once."""
    with fresh_queue(target, **ONE_ROW) as queue:
        run: Costs = cost_breakdown.sending(queue, messages, _BODY)
    for part in _PARTS:
        progress(f"run {number}: {part.__name__}")
        with fresh_queue(target, **ONE_ROW) as queue:
            send_per_s(queue, messages, _BODY)
            run |= part(queue, messages)
    return run


def _functions(target: Target, messages: int) -> dict[str, float]:
    """The functions in which the claimer spends most, each with its share of the whole."""
    with fresh_queue(target, **ONE_ROW) as queue:
        send_per_s(queue, messages, _BODY)
        profiler = cProfile.Profile()
        profiler.runcall(cost_breakdown.drain_with_claimer, queue, messages)
    own = {_named(*where): figures_of[2] for where, figures_of in pstats.Stats(profiler).stats.items()}  # type: ignore[attr-defined]  # it has stats
    whole = sum(own.values())
    most = sorted(own, key=lambda name: own[name], reverse=True)[:_FUNCTIONS]
    return {name: round(own[name] / whole, 4) for name in most}


def _named(file: str, line: int, function: str) -> str:
    """A function as people find it: ours by file and line, others by their names."""
    path = Path(file)
    return (
        f"{path.relative_to(_PROJECT)}:{line} {function}"
        if path.is_relative_to(_PROJECT)
        else f"{path.name} {function}"
    )
