"""A dispatcher of many queues, of which a few have messages, compared with a dispatcher of one queue.

As `astyqueue worker` does, each run has full collections of garbage skip what was made at the start.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import process_time
from typing import Final

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.queue.connection import connect
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.figures import figure
from benchmarks.target import CLOCK, ONE_ROW, Target
from benchmarks.target_options import opened, parser, whole_number
from benchmarks.throughput import number_of
from benchmarks.workload import NotMeasured, Tally, bodies

_BODY_BYTES: Final = 200
#: The part of one queue's rate that many queues must reach.
_HOLDS: Final = 0.8
#: Seconds of processor time in a second, of a dispatcher that has nothing to do.
_RESTS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """How many queues, how many of them have messages, and how many messages there are in all."""

    queues: int
    busy: int
    messages: int
    threads: int


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if anything was lost."""
    made = parser("queues", __doc__, ("memory", "sqlite"))
    made.add_argument("--queues", type=whole_number(1), default=1_000, help="served (default: %(default)s)")
    made.add_argument("--busy", type=whole_number(1), default=10, help="with messages (default: %(default)s)")
    made.add_argument("--messages", type=whole_number(100), default=200_000, help="in all (default: %(default)s)")
    made.add_argument("--threads", type=whole_number(1), default=8, help="that all share (default: %(default)s)")
    options = made.parse_args(arguments)
    plan = Plan(options.queues, options.busy, options.messages, options.threads)
    try:
        with opened(options) as target:
            report = measured(target, plan, options.runs)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else page(report))
    return 0


def measured(target: Target, plan: Plan, runs: int) -> dict[str, object]:
    """One queue and many in turns, `runs` times."""
    taken: dict[str, list[float]] = {}
    for _ in range(runs):
        for name, queues, busy in (("one_queue", 1, 1), ("many_queues", plan.queues, plan.busy)):
            for what, value in asdict(_drained(target, plan, queues, busy)).items():
                taken.setdefault(f"{name}_{what}", []).append(value)
        taken.setdefault("ratio", []).append(taken["many_queues_per_s"][-1] / taken["one_queue_per_s"][-1])
    found = {name: figure(values) for name, values in taken.items()}
    return {
        "conditions": target.conditions | {"queues": plan.queues, "busy": plan.busy, "messages": plan.messages},
        "figures": found,
        "aim": f"ratio >= {_HOLDS}",
    }


@dataclass(frozen=True, slots=True)
class Drained:
    """What one dispatcher took: to start, by queue, and for each message that lay there when it began to claim."""

    per_s: float
    cpu_us: float
    threads: float
    start_cpu_ms: float


def _drained(target: Target, plan: Plan, queues: int, busy: int) -> Drained:
    """Start a dispatcher of empty queues, fill some of them once it is at rest, then let it claim."""
    with target.fresh() as url, connect(url) as connection:
        served = [connection.queue(f"q{number}", **ONE_ROW) for number in range(queues)]
        tally = Tally(plan.messages, CLOCK)

        def handle(delivery: Delivery) -> None:
            tally.mark(number_of(delivery))

        builder = Dispatcher.builder().threads(plan.threads)
        for queue in served:
            builder.queue(queue).handler(handle)
        before = process_time()
        with builder.build() as dispatcher:
            threads = len(dispatcher.threads)
            started = _at_rest() - before
            dispatcher.presence.quiet()
            _send(served[:busy], plan.messages)
            gc.collect()
            gc.freeze()
            _at_rest()
            began, cpu = CLOCK.monotonic(), process_time()
            dispatcher.presence.resume()
            tally.wait()
            took, used = CLOCK.monotonic() - began, process_time() - cpu
        gc.unfreeze()
        tally.check()
    return Drained(plan.messages * SECOND / took, used * SECOND / plan.messages, threads, started * 1_000 / queues)


def _at_rest() -> float:
    """Wait until this process has used next to no processor time for a second; returns what it used until then."""
    used = process_time()
    while True:
        Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND)
        if (now := process_time()) - used < _RESTS:
            return used
        used = now


def _send(queues: Sequence[MessageQueue], messages: int) -> None:
    ready = list(bodies(messages, _BODY_BYTES))
    for number, queue in enumerate(queues):
        queue.send_many(ready[number :: len(queues)])


def page(report: dict[str, object]) -> str:
    """The report for people."""
    return json.dumps(report, indent=2)
