"""What messages that a worker claims ahead gain with quick handlers, and cost beside a slow one."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack
from typing import Final

from astyqueue import Delivery, Message
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.queue.connection import connect
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.figures import Figure, Run, figures, table
from benchmarks.target import CLOCK, ONE_ROW, Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.throughput import number_of
from benchmarks.workload import NotMeasured, Tally, bodies, body

_BODY_BYTES: Final = 200
_BOUNDS: Final[dict[str, int | None]] = {"0": 0, "adaptive": None, "200": 200}
_THREADS: Final = 8
_QUICK: Final = SECOND // 50
_SLOW: Final = 5 * SECOND
#: Quick messages before the slow one, from which the bound adapts, and those beside it.
_BEFORE: Final = 100
_BESIDE: Final = 50


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if anything was lost."""
    made = parser("prefetch", __doc__, ("sqlite",))
    made.add_argument("--messages", type=whole_number(100), default=20_000, help="quick ones (default: %(default)s)")
    options = made.parse_args(arguments)
    try:
        with opened(options) as target:
            found = measured(target, options.messages, options.runs)
            report = {"conditions": target.conditions | {"messages": options.messages}, "figures": found}
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else table(found))
    return 0


def measured(target: Target, messages: int, runs: int) -> dict[str, Figure | None]:
    """All bounds in turns, `runs` times."""
    taken: list[Run] = []
    for number in range(runs):
        progress(f"run {number + 1} of {runs}")
        run: dict[str, float | None] = {}
        for name, bound in _BOUNDS.items():
            run[f"{name}: messages a second"] = _rate(target, bound, messages)
            run[f"{name}: longest wait (ms)"] = _longest_wait(target, bound)
        taken.append(run)
    return figures(taken)


def _rate(target: Target, bound: int | None, messages: int) -> float:
    """Messages a second of one worker whose handlers do nothing."""
    with target.fresh() as url, connect(url) as connection:
        queue = connection.queue("quick", **ONE_ROW)
        queue.send_many(bodies(messages, _BODY_BYTES))
        tally, lock = Tally(messages, CLOCK), threading.Lock()

        def handle(delivery: Delivery) -> None:
            with lock:
                tally.mark(number_of(delivery))

        began = CLOCK.monotonic()
        with Dispatcher.builder().threads(_THREADS).queue(queue, backlog=bound).handler(handle).build():
            tally.wait()
            took = CLOCK.monotonic() - began
        tally.check()
    return messages * SECOND / took


def _longest_wait(target: Target, bound: int | None) -> float:
    """Milliseconds until the last quick message began that came behind a slow one, with two workers of one thread."""
    before, beside = Tally(_BEFORE, CLOCK), Tally(_BESIDE, CLOCK)
    waits: list[int] = []
    lock = threading.Lock()

    def handle(delivery: Delivery) -> None:
        number = number_of(delivery)
        with lock:
            if number >= _BEFORE:
                waits.append(CLOCK.monotonic() - sent)
        Wakeup(CLOCK).wait(CLOCK.monotonic() + (_SLOW if delivery.headers else _QUICK))
        with lock:
            if number < _BEFORE:
                before.mark(number)
            elif not delivery.headers:
                beside.mark(number - _BEFORE)

    with target.fresh() as url, ExitStack() as stack:
        queues = [stack.enter_context(connect(url)).queue("mixed", **ONE_ROW) for _ in range(3)]
        for queue in queues[1:]:
            builder = Dispatcher.builder().threads(1).queue(queue, backlog=bound).handler(handle)
            stack.enter_context(builder.build())
        queues[0].send_many(bodies(_BEFORE, _BODY_BYTES))
        before.wait()
        sent = CLOCK.monotonic()
        slow = Message(body(_BEFORE + _BESIDE, _BODY_BYTES), headers={"slow": "yes"})
        queues[0].send_many([slow, *(body(_BEFORE + number, _BODY_BYTES) for number in range(_BESIDE))])
        beside.wait()
        return max(waits) * 1_000 / SECOND
