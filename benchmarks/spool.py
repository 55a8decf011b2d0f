"""A send into a spool: how long it takes with the store there, away and back, beside a send without a spool.

The store is away for the middle third of the sends: every request of the forwarder fails. Then all is forwarded and
consumed, and a message that is missing, doubled or out of order ends the run with an error. At last a backlog of a
queue of eight rows is forwarded to a store at some distance: the rows one after the other, then at the same time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Request
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.figures import Run, figures, percentile, table

_PHASES: Final = ("there", "away", "back")
_ROWS: Final = 8
_TAKEN: Final = 200
_clock: Final = SystemClock()


class _Away(Faulty):
    """A store that cannot be reached while `is_away`."""

    is_away = False

    def perform(self, request: Request) -> object:
        if self.is_away:
            message = "away, as the benchmark wants it"
            raise StoreUnavailable(message)
        return super().perform(request)


class _Distant(_Away):
    """A store whose answers take a round trip, and the number of concurrent calls that it says are useful."""

    def __init__(self, store: Store, at_once: int, round_trip_us: int) -> None:
        super().__init__(store)
        self._at_once = at_once
        self._round_trip_us = round_trip_us

    @property
    def at_once(self) -> int:
        return self._at_once

    def perform(self, request: Request) -> object:
        if not self.is_away:
            Wakeup(_clock).wait(_clock.monotonic() + self._round_trip_us)
        return super().perform(request)


def main(arguments: list[str]) -> int:
    """Measure, and print."""
    made = argparse.ArgumentParser("python -m benchmarks spool", description=__doc__)
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--runs", type=int, default=3, help="default: %(default)s")
    made.add_argument("--messages", type=int, default=200_000, help="sent into the spool (default: %(default)s)")
    made.add_argument("--plain", type=int, default=2_000, help="sent without a spool (default: %(default)s)")
    made.add_argument("--durability", choices=("none", "batch", "each"), default="batch", help="default: %(default)s")
    made.add_argument("--backlog", type=int, default=20_000, help="forwarded from eight rows (default: %(default)s)")
    made.add_argument("--round-trip", type=int, default=2_000, help="of it, in microseconds (default: %(default)s)")
    made.add_argument("--url", help="an empty store (default: a SQLite file in the temporary folder)")
    options = made.parse_args(arguments)
    named = figures([_run(options) for _ in range(options.runs)])
    conditions = {
        name: getattr(options, name) for name in ("runs", "messages", "plain", "durability", "backlog", "round_trip")
    }
    found = {"question": "spool", "conditions": conditions, **named}
    print(json.dumps(found, indent=2) if options.json else table(named))
    return 0


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="spool-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(options: argparse.Namespace) -> Run:
    with _scratch() as folder:
        url = options.url or f"sqlite:///{folder}/queue.db"
        with closing(open_store(url, clock=_clock)) as store:
            return _plain(store, options.plain) | _spooled(store, folder, options) | _of_rows(store, folder, options)


def _queue(store: Store, name: str) -> MessageQueue:
    builder = MessageQueue.builder().store(store).name(name)
    return builder.time_shards(1).concurrency_shards(1).build()


def _plain(store: Store, count: int) -> dict[str, float | None]:
    with _queue(store, "plain") as queue:
        return _delays("plain", [_timed(queue, number) for number in range(count)])


def _spooled(store: Store, folder: Path, options: argparse.Namespace) -> dict[str, float | None]:
    gate = _Away(store)
    run: dict[str, float | None] = {}
    third = options.messages // len(_PHASES)
    with _queue(store, "spooled") as consumer:
        builder = MessageQueue.builder().store(gate).name("spooled")
        with builder.spool(folder / "spool", cap=None, durability=options.durability).build() as queue:
            for place, phase in enumerate(_PHASES):
                gate.is_away = phase == "away"
                first = place * third
                run |= _delays(phase, [_timed(queue, number) for number in range(first, first + third)])
            waiting, began = queue.spool.status().messages, _clock.monotonic()
            queue.spool.drain("1h")
            seconds = (_clock.monotonic() - began) / SECOND
            run["backlog"] = waiting
            run["forwarded_per_s"] = waiting / seconds
        _check(consumer, len(_PHASES) * third)
    return run


def _of_rows(store: Store, folder: Path, options: argparse.Namespace) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, at_once in (("in_turn", 1), ("at_once", 64)):
        distant = _Distant(store, at_once, options.round_trip)
        builder = MessageQueue.builder().store(distant).name(f"rows-{name}").time_shards(1).concurrency_shards(_ROWS)
        with builder.spool(folder / name, cap=None).build() as queue:
            distant.is_away = True
            queue.send_many(range(options.backlog))
            distant.is_away = False
            began, cpu = _clock.monotonic(), time.process_time()
            queue.spool.drain("1h")
            found[f"rows_{name}_per_s"] = options.backlog * SECOND / (_clock.monotonic() - began)
            found[f"rows_{name}_cpu_us"] = (time.process_time() - cpu) * SECOND / options.backlog
            queue.clear()
    return found


def _timed(queue: MessageQueue, number: int) -> float:
    began = _clock.monotonic()
    queue.send(number)
    return float(_clock.monotonic() - began)


def _delays(name: str, samples: list[float]) -> dict[str, float | None]:
    named: dict[str, float | None] = {f"{name}_p{percent}_us": percentile(samples, percent) for percent in (50, 99)}
    return named | {f"{name}_greatest_us": max(samples)}


def _check(consumer: MessageQueue, count: int) -> None:
    """Consume all; RuntimeError unless each message comes once and in order."""
    found: list[object] = []
    while received := consumer.receive(_TAKEN):
        found += [delivery.body for delivery in received]
        received.ack()
    if found != list(range(count)):
        message = f"{len(found)} of {count} messages came, or they were out of order"
        raise RuntimeError(message)
