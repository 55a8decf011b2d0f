"""What a message costs threads and tasks that call a queue: one send each, then one receive and one ack each.

As many threads, or tasks of one event loop, call at a time as `--at-once` says. A store that tasks use without threads
is also measured with a thread for each request (`adapted`). The kinds take turns on one queue, and the medians of the
runs are printed. The processor time is that of this process, so without a server's.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from time import process_time
from typing import Final

from astyqueue import MessageQueue, aio, connect
from astyqueue.clock import SystemClock
from astyqueue.store import AsyncStore, Store
from astyqueue.stores.async_adapter import Threaded, as_async
from astyqueue.units import SECOND
from benchmarks.target import CLOCK, ONE_ROW, QUEUE
from benchmarks.target_options import opened, parser, progress, whole_number

_MICROSECONDS: Final = 1_000_000
#: The aim: at most this multiple of the processor time that a message takes in threads.
AIM: Final = 1.5


class Measured:
    """The processor time and the rate of a block of calls."""

    def __init__(self, calls: int) -> None:
        """Begin; `calls` are made until `end`."""
        self._calls = calls
        self._began, self._busy = CLOCK.monotonic(), process_time()

    def end(self) -> dict[str, float]:
        """Microseconds of processor time of a call, and calls per second."""
        busy, taken = process_time() - self._busy, CLOCK.monotonic() - self._began
        return {"cpu_us": busy * _MICROSECONDS / self._calls, "per_s": self._calls * SECOND / taken}


def main(arguments: list[str]) -> int:
    """Measure and print."""
    options = parser("aio", __doc__, ("sqlite", "memory", "cassandra"))
    options.add_argument("--messages", type=whole_number(1), default=4_000, help="in each run (default: %(default)s)")
    options.add_argument("--at-once", type=whole_number(1), default=32, help="threads or tasks (default: %(default)s)")
    given = options.parse_args(arguments)
    share = given.messages // given.at_once
    kinds = {"threads": in_threads, "tasks": in_tasks, "adapted": in_adapted_tasks}
    if given.store == "sqlite":  # its requests are made in threads anyway
        del kinds["adapted"]
    runs: list[dict[str, dict[str, float]]] = []
    with opened(given) as target, target.fresh() as url:
        for number in range(given.runs + 1):
            results = [(kind, measure(url, share, given.at_once)) for kind, measure in kinds.items()]
            runs.append({f"{kind}_{phase}": made for kind, phases in results for phase, made in phases.items()})
            progress(f"run {number} of {given.runs}")
    report = {
        f"{name}_{unit}": round(statistics.median(run[name][unit] for run in runs[1:]), 1)  # the first warms up
        for name in runs[0]
        for unit in ("cpu_us", "per_s")
    }
    print(json.dumps(report, indent=2) if given.json else page(report, kinds))
    return 0


def in_threads(url: str, share: int, at_once: int) -> dict[str, dict[str, float]]:
    """Each of these threads sends its share, and then receives and acks as much."""

    def send(queue: MessageQueue) -> None:
        for number in range(share):
            queue.send({"number": number})

    def take(queue: MessageQueue) -> None:
        for _ in range(share):
            (delivery,) = queue.receive(1, wait="10s")
            delivery.ack()

    def phase(queue: MessageQueue, work: Callable[[MessageQueue], None]) -> dict[str, float]:
        with ThreadPoolExecutor(at_once) as threads:
            measured = Measured(share * at_once)
            list(threads.map(work, repeat(queue, at_once)))
            return measured.end()

    with connect(url, clock=SystemClock()) as connection:
        queue = connection.queue(QUEUE, **ONE_ROW)
        return {"send": phase(queue, send), "take": phase(queue, take)}


def in_tasks(
    url: str, share: int, at_once: int, adapt: Callable[[Store], AsyncStore] = as_async
) -> dict[str, dict[str, float]]:
    """Each of these tasks sends its share, and then receives and acks as much."""

    async def send(queue: aio.MessageQueue) -> None:
        for number in range(share):
            await queue.send({"number": number})

    async def take(queue: aio.MessageQueue) -> None:
        for _ in range(share):
            (delivery,) = await queue.receive(1, wait="10s")
            await delivery.ack()

    async def phase(
        queue: aio.MessageQueue, work: Callable[[aio.MessageQueue], Coroutine[object, object, None]]
    ) -> dict[str, float]:
        measured = Measured(share * at_once)
        await asyncio.gather(*(work(queue) for _ in range(at_once)))
        return measured.end()

    async def measured() -> dict[str, dict[str, float]]:
        async with await aio.connect(url, clock=SystemClock()) as connection:
            queue = await connection.queue(QUEUE, **ONE_ROW)
            queue.store = adapt(connection.blocking.store)
            return {"send": await phase(queue, send), "take": await phase(queue, take)}

    return asyncio.run(measured())


def in_adapted_tasks(url: str, share: int, at_once: int) -> dict[str, dict[str, float]]:
    """As `in_tasks`, with a thread for each request."""
    return in_tasks(url, share, at_once, Threaded)


def page(report: dict[str, float], kinds: Iterable[str]) -> str:
    """The report as lines of text."""
    lines = []
    for phase in ("send", "take"):
        for kind in kinds:
            cpu = report[f"{kind}_{phase}_cpu_us"]
            times = cpu / report[f"threads_{phase}_cpu_us"]
            rate = report[f"{kind}_{phase}_per_s"]
            lines.append(f"{phase} {kind:<8}{cpu:8.1f} us {rate:8.0f}/s {times:6.2f} times a thread's (aim: {AIM})")
    return "\n".join(lines)
