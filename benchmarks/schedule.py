"""Lateness of schedules: many due at one instant, as many over a minute; the cost of idle ones."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from typing import Final

from astyqueue import Delivery, Dispatcher, MessageQueue
from astyqueue.clock import instant
from astyqueue.model.message import Message
from astyqueue.protocol.layout.rows import doorbell_row
from astyqueue.protocol.layout.schedule_column import encode_schedule, occurrence_timer, trigger_name
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, new_schedule
from astyqueue.protocol.steps import Read
from astyqueue.queue.admin.schedules import ScheduleRequest, save, template_of
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Put
from astyqueue.stores import open_store
from astyqueue.testing.faults import Recording
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.figures import Run, figures, percentile, table
from benchmarks.target import CLOCK, ONE_ROW, QUEUE, Target, fresh_queue
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.workload import NotMeasured

_TOGETHER: Final = 60
_MINUTE: Final = 60 * SECOND
#: From when the schedules are in the store until the first of them is due.
_BEFORE: Final = 3 * SECOND
#: ... and how long one of them takes to be put there, at most.
_LOADING: Final = SECOND // 1_000
_PATIENCE: Final = 120 * SECOND
#: After this long a dispatcher knows its rows, and looks at them at its usual pace.
_SETTLED: Final = 75 * SECOND
#: Rows of which a dispatcher hears by the doorbell; a single one it looks at itself, as often as it would listen.
ROWS: Final = {"time_shards": 1, "concurrency_shards": 2}
#: What is aimed at: the 99th percentile of lateness, in milliseconds, and how many reads more a minute idle schedules
#: cost.
_LATE_MS: Final = 1_000
_READS: Final = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and where."""

    target: Target
    schedules: int
    idle: int
    threads: int


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if an occurrence was not fired exactly once."""
    made_parser = parser("schedule", __doc__, ("sqlite", "memory", "cassandra"))
    made_parser.add_argument(
        "--schedules", type=whole_number(1), default=10_000, help="due together (default: %(default)s)"
    )
    made_parser.add_argument(
        "--idle",
        type=whole_number(0),
        default=100_000,
        help="that are not due; 0 leaves that out (default: %(default)s)",
    )
    made_parser.add_argument(
        "--threads", type=whole_number(1), default=8, help="of the dispatcher (default: %(default)s)"
    )
    options = made_parser.parse_args(arguments)
    try:
        with opened(options) as target:
            plan = Plan(target, options.schedules, options.idle, options.threads)
            runs = [_run(plan, number, options.runs) for number in range(1, options.runs + 1)]
            store = target.conditions
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    named = figures(runs)
    conditions = {"store": target.store, "schedules": plan.schedules, "idle": plan.idle, "threads": plan.threads}
    conditions |= {"python": platform.python_version(), "processors": os.cpu_count(), **store}
    print(
        json.dumps({**named, "conditions": conditions, "aims": _aims(runs)}, indent=2) if options.json else table(named)
    )
    return 0


def _run(plan: Plan, number: int, runs: int) -> Run:
    run: dict[str, float | None] = {}
    for name, over in (("", 0), ("spread_", _MINUTE)):
        progress(f"run {number} of {runs}: {plan.schedules} schedules over {over // SECOND} s")
        run |= {name + figure: value for figure, value in _fired(plan, over).items()}
    if plan.idle:
        progress(f"run {number} of {runs}: idle schedules")
        for name, idle in (("", 0), ("_with_idle", plan.idle)):
            run[f"reads_per_minute{name}"], run[f"doorbell_reads_per_minute{name}"] = _reads(plan, idle)
    return run


def _aims(runs: list[Run]) -> dict[str, bool]:
    """Whether every run reached what is aimed at."""
    aims = {
        f"{name}lateness_p99_ms <= {_LATE_MS}": all((run[f"{name}lateness_p99_ms"] or 0) <= _LATE_MS for run in runs)
        for name in ("", "spread_")
    }
    if "reads_per_minute" in runs[0]:
        more = [(run["reads_per_minute_with_idle"] or 0) - (run["reads_per_minute"] or 0) for run in runs]
        aims[f"idle schedules cost at most {_READS} read a minute"] = all(abs(one) <= _READS for one in more)
    return aims


def _fired(plan: Plan, over: int) -> dict[str, float | None]:
    """Fire schedules whose occurrences are spread over a time in microseconds, and handle their messages."""
    with fresh_queue(plan.target, **ONE_ROW) as queue:
        due = CLOCK.now() + _BEFORE + plan.schedules * _LOADING
        load(queue, plan.schedules, first=due, over=over)
        handled = _Handled(plan.schedules)
        cpu = _handle(queue, handled, plan.threads, due=due)
        late = [
            (firing.at - firing.occurrence) / (SECOND / 1_000)
            for one in Schedules(queue).all()
            for firing in one.stored.history
        ]
    if len(late) != plan.schedules or handled.count != plan.schedules:
        message = f"{len(late)} occurrences were fired and {handled.count} messages handled, of {plan.schedules}"
        raise NotMeasured(message)
    return {
        "lateness_p50_ms": percentile(late, 50),
        "lateness_p99_ms": percentile(late, 99),
        "start_lateness_p50_ms": percentile(handled.late, 50),
        "start_lateness_p99_ms": percentile(handled.late, 99),
        "cpu_us_per_firing": cpu * SECOND / plan.schedules,
    }


def _handle(queue: MessageQueue, handled: _Handled, threads: int, *, due: int) -> float:
    """Have a dispatcher fire and handle until all came; the seconds of processor time from when the first was due."""
    with Dispatcher.builder().queue(queue).handler(handled, threads=threads).build():
        Wakeup(CLOCK).wait(CLOCK.monotonic() + due - CLOCK.now())
        before = time.process_time()
        handled.done.wait(CLOCK.monotonic() + _PATIENCE)
        return time.process_time() - before


class _Handled:
    """A handler that counts, and notes how long after its occurrence each message came."""

    def __init__(self, wanted: int) -> None:
        self.late: list[float] = []
        self.done = Wakeup(CLOCK)
        self._wanted = wanted

    @property
    def count(self) -> int:
        return len(self.late)

    def __call__(self, delivery: Delivery) -> None:
        self.late.append((instant(CLOCK.now()) - delivery.due).total_seconds() * 1_000)
        if len(self.late) == self._wanted:
            self.done.set()


def load(queue: MessageQueue, count: int, *, first: int, over: int) -> None:
    """Put `count` schedules into the row, due within `over` microseconds from `first` and again an hour later."""
    core = queue.core
    message = Message({"to": "ada@example.org"})
    template = template_of(core, message)
    if count:
        queue.run(save(core, "schedule 0", ScheduleRequest(Every("1h", start=instant(first)), message), replaces=False))
    for start in range(1, count, _TOGETHER):
        puts: list[Put] = []
        for number in range(start, min(start + _TOGETHER, count)):
            wanted = RequestedSchedule(Every("1h", start=instant(first + over * number // count)), template)
            schedule = new_schedule(f"schedule {number}", wanted, mark="", now=CLOCK.now())
            timer = occurrence_timer(core.process, schedule)
            puts.append(Put(trigger_name(schedule.name), encode_schedule(schedule)))
            puts += [Put(timer.name, timer.value)] if timer else []
        queue.store.commit(Batch(core.ring.home(0), tuple(puts)), ())


def _reads(plan: Plan, idle: int) -> tuple[float, float]:
    """Reads of rows in a minute of a dispatcher that has nothing to do, beside idle schedules that are not due.

    And those that only listened to the doorbell: how often that is depends on how quick reads are, not on schedules.
    """
    with plan.target.fresh() as url, contextlib.closing(Recording(open_store(url, clock=CLOCK))) as store:
        queue = MessageQueue.builder().store(store).name(QUEUE).options(**ROWS).build()
        load(queue, max(1, idle), first=CLOCK.now() + 3_600 * SECOND, over=_MINUTE)
        if not idle:
            Schedules(queue).delete("schedule 0")
        with queue, Dispatcher.builder().queue(queue).handler(_Handled(0), threads=plan.threads).build():
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _SETTLED)
            store.requests.clear()
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _MINUTE)
            reads = [request for request in tuple(store.requests) if isinstance(request, Read)]
        only_bell = sum({wanted.row for wanted in request.wanted} == {doorbell_row(QUEUE)} for request in reads)
        return len(reads) - only_bell, only_bell
