"""A frozen and a killed node of three under load: errors, longest stall, time to recover, losses.

One ring of local nodes, three copies. For each fault some threads send to a queue and a dispatcher handles it; after a
while one node is frozen (SIGSTOP) or killed (SIGKILL), and after another while it goes on, or starts again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from astyqueue import MessageQueue
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.figures import Run, figures, table
from benchmarks.target import CLOCK
from benchmarks.target_options import progress, whole_number
from benchmarks.thread_load import Load, Noted
from benchmarks.workload import NotMeasured

#: The node that fails. Requests go to all of them in turn, and every row has a copy on each.
_VICTIM: Final = 2
_NODES: Final = 3
_LEASE: Final = "30s"
_WINDOW: Final = SECOND
#: A fault is over once this part of the earlier rate is reached again and kept.
_ENOUGH: Final = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to a node, and how that is undone."""

    begin: Callable[[LocalCassandra], None]
    end: Callable[[LocalCassandra], None]


FAULTS: Final = {
    "frozen": Fault(lambda nodes: nodes.stop(_VICTIM), lambda nodes: nodes.cont(_VICTIM)),
    "killed": Fault(lambda nodes: nodes.kill(_VICTIM), lambda nodes: nodes.restart(_VICTIM)),
}


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if a message was lost."""
    options = _parser().parse_args(arguments)
    try:
        runs = _runs(options)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    report = {name: figures(each) for name, each in runs.items()}
    print(json.dumps({**report, "conditions": _conditions(options)}, indent=2) if options.json else _page(runs))
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    made.add_argument("--runs", type=whole_number(1), default=3, help="of each fault (default: %(default)s)")
    made.add_argument(
        "--before", type=whole_number(3), default=10, help="seconds of load before the fault (default: %(default)s)"
    )
    made.add_argument("--during", type=whole_number(3), default=20, help="seconds of it (default: %(default)s)")
    made.add_argument("--after", type=whole_number(3), default=15, help="seconds after it (default: %(default)s)")
    made.add_argument("--senders", type=whole_number(1), default=2, help="threads that send (default: %(default)s)")
    made.add_argument("--threads", type=whole_number(1), default=4, help="threads that handle (default: %(default)s)")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return made


def _runs(options: argparse.Namespace) -> dict[str, list[Run]]:
    """Every run of each fault, on one ring."""
    with LocalCassandra(_NODES) as nodes:
        url = nodes.url("faults")
        with administer(url, clock=CLOCK, replication=str(_NODES)) as administration:
            administration.migrate()
        trial = _Trial(url, nodes, options)
        return {name: [trial.run(name) for _ in range(options.runs)] for name in FAULTS}


@dataclass(frozen=True, slots=True)
class _Trial:
    """A ring to break, and how long each part of a run is."""

    url: str
    nodes: LocalCassandra
    options: argparse.Namespace

    def run(self, name: str) -> Run:
        """One fault under load, from the first send until everything that was sent was handled."""
        progress(
            f"{name}: {self.options.before} s of load, {self.options.during} s with one node less, "
            f"{self.options.after} s more"
        )
        with contextlib.closing(open_store(self.url, clock=CLOCK)) as store:
            noted = Noted(store)
            with MessageQueue.builder().store(noted).name(f"faults-{CLOCK.now()}").lease(_LEASE).build() as queue:
                load = Load(queue, senders=self.options.senders, threads=self.options.threads)
                began, ended = self._under(load, FAULTS[name])
        self.nodes.settle()
        if lost := load.lost():
            raise NotMeasured(f"{name}: {lost} messages whose send returned were never handled")
        counted = {"refused_to_the_sender": len(load.failed), "handled_twice": load.twice(), "lost": lost}
        return {**_told(load, began, ended), **noted.counted(began, ended), **counted}

    def _under(self, load: Load, fault: Fault) -> tuple[int, int]:
        """Begin and end the fault under load; when it began and ended."""
        with load:
            _pause(self.options.before)
            began = int(CLOCK.monotonic())
            fault.begin(self.nodes)
            _pause(self.options.during)
            fault.end(self.nodes)
            ended = int(CLOCK.monotonic())
            _pause(self.options.after)
        return began, ended


def _pause(seconds: int) -> None:
    Wakeup(CLOCK).wait(CLOCK.monotonic() + seconds * SECOND)


def _told(load: Load, began: int, ended: int) -> dict[str, float | None]:
    """Rates before, during and after; the longest stall and the recovery of sending and of handling, in seconds."""
    values: dict[str, float | None] = {}
    for name, moments in (("sends", load.sent_at), ("handlings", load.handled_at)):
        before = _rate(moments, min(moments), began)
        values[f"{name}_per_s_before"] = before
        values[f"{name}_per_s_during"] = _rate(moments, began, ended)
        values[f"{name}_per_s_after"] = _rate(moments, ended, load.stopped_sending)
        values[f"{name}_longest_stall_s"] = _longest_gap(moments, began, load.stopped_sending)
        values[f"{name}_recovered_after_s"] = _recovered(moments, began, ended, enough=before * _ENOUGH)
        values[f"{name}_recovered_after_its_end_s"] = _recovered(
            moments, ended, load.stopped_sending, enough=before * _ENOUGH
        )
    return values


def _rate(moments: list[int], since: int, until: int) -> float:
    return sum(since <= moment < until for moment in moments) * SECOND / (until - since)


def _longest_gap(moments: list[int], since: int, until: int) -> float:
    inside = sorted([since, *(moment for moment in moments if since <= moment < until), until])
    return max(later - earlier for earlier, later in pairwise(inside)) / SECOND


def _recovered(moments: list[int], since: int, until: int, *, enough: float) -> float | None:
    """Seconds from `since` until the rate is enough again; None if it never is.

    The first window of one second counts in which the rate, and from which on the median rate, is at least `enough`.
    """
    rates = [_rate(moments, start, start + _WINDOW) for start in range(since, until - _WINDOW, _WINDOW)]
    for number, rate in enumerate(rates):
        if rate >= enough and statistics.median(rates[number:]) >= enough:
            return float(number)
    return None


def _conditions(options: argparse.Namespace) -> dict[str, object]:
    requested = {name: getattr(options, name) for name in ("runs", "before", "during", "after", "senders", "threads")}
    return {
        **requested,
        "lease": _LEASE,
        "nodes": _NODES,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
    }


def _page(runs: dict[str, list[Run]]) -> str:
    return "\n\n".join(f"one node of three {name}\n{table(figures(each))}" for name, each in runs.items())
