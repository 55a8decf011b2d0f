"""What a message costs by the kind of its handler: in a thread, as a coroutine, in a child process.

Handlers that do nothing, on one SQLite file. Each run is a new process; the kinds take turns, and the medians of the
rounds are printed. The processor time is that of the dispatcher's process and of its children, from when the first
thousand messages are done (children have started by then) to when all are acked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from astyqueue import App, Dispatcher, MessageQueue, aio
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.target import CLOCK
from benchmarks.target_options import whole_number

#: The aims: at most this multiple of the processor time that a message takes in a thread.
AIMS: Final = {"asyncio": 1.5, "process": 3.0}
KINDS: Final = ("thread", *AIMS)
_FIRST: Final = 1_000
_GLANCE: Final = SECOND // 100
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def plain(_: Delivery) -> None:
    """Do nothing."""


async def awaited(_: aio.Delivery) -> None:
    """Do nothing."""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kinds", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=whole_number(1), default=20_000, help="in each run (default: %(default)s)")
    parser.add_argument("--rounds", type=whole_number(1), default=3, help="of all kinds (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measured(options.one, options.messages)))
        return 0
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind, results in runs.items():
            results.append(_in_new_process(kind, options.messages))
    report = {
        f"{kind}_{name}": round(statistics.median(result[name] for result in results), 1)
        for kind, results in runs.items()
        for name in ("cpu_us", "per_s")
    }
    for kind in AIMS:
        report[f"{kind}_ratio"] = round(report[f"{kind}_cpu_us"] / report["thread_cpu_us"], 2)
    print(json.dumps(report, indent=2) if options.json else _page(report))
    return 0


def _in_new_process(kind: str, messages: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks", "kinds", "--one", kind, "--messages", str(messages)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result: dict[str, float] = json.loads(ran.stdout)
    return result


def measured(kind: str, messages: int) -> dict[str, float]:
    """Processor time (microseconds) of a message, and messages per second, for this kind."""
    with tempfile.TemporaryDirectory() as folder, App(f"sqlite:///{folder}/queue.db") as app:
        queue = app.open()
        queue.send_many(range(_FIRST + messages))
        builder = Dispatcher.builder().queue(queue)
        builder = builder.handler(awaited) if kind == "asyncio" else builder.handler(plain, kind=kind)
        with builder.processes(2).build():
            _when_acked(queue, _FIRST)
            before, began, first = _processor_us(), CLOCK.monotonic(), queue.stats.acked
            _when_acked(queue, _FIRST + messages)
            count = queue.stats.acked - first
            return {
                "cpu_us": (_processor_us() - before) / count,
                "per_s": count * SECOND / (CLOCK.monotonic() - began),
            }


def _when_acked(queue: MessageQueue, count: int) -> None:
    glances = Wakeup(CLOCK)
    while queue.stats.acked < count:
        glances.wait(CLOCK.monotonic() + _GLANCE)


def _processor_us() -> float:
    """The processor time of this process and its children so far, in microseconds."""
    children = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(words[1]) == os.getpid():
            children += int(words[11]) + int(words[12])
    return sum(os.times()[:2]) * SECOND + children * SECOND / _TICKS


def _page(report: dict[str, float]) -> str:
    lines = [f"{kind:<8} {report[f'{kind}_cpu_us']:8.1f} us  {report[f'{kind}_per_s']:8.0f}/s" for kind in KINDS]
    lines += [f"{kind}: {report[f'{kind}_ratio']} times a thread's (aim: {aim})" for kind, aim in AIMS.items()]
    return "\n".join(lines)
