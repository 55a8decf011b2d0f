"""Delay of redelivery after a consumer is killed: seconds beyond the end of its lease.

Once in a row of the time shard that is written to now, and once in a row whose time shard closed hours ago.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast

from pydantic_core import to_json

from astyqueue import MessageQueue, ids
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.layout.columns import Type, message_name
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.store import Batch, Slice
from astyqueue.units import SECOND
from benchmarks.figures import Figure, Run, figures, table
from benchmarks.target import QUEUE, Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.workload import NotMeasured

#: How long ago the time of the old message was: its row was closed two hours ago.
_AGO: Final = 3 * 3_600 * SECOND
_RING: Final = {"time_shards": 30, "every": "1h", "concurrency_shards": 8}
_ONE: Final = {"time_shards": 1, "concurrency_shards": 1}
_PROJECT: Final = Path(__file__).parents[1]
#: What is aimed at, seconds beyond the lease.
_BOUNDS: Final = {"late_s": 1, "old_shard_late_s": 3}


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if the next consumer got something else, or too early."""
    made = parser("recovery", __doc__, ("sqlite", "cassandra"))
    made.add_argument("--lease", type=whole_number(1), default=6, help="seconds (default: %(default)s)")
    made.add_argument(
        "--shards", choices=("ring", "one"), default="ring", help="how the queue is laid out (default: %(default)s)"
    )
    options = made.parse_args(arguments)
    try:
        with opened(options) as target:
            runs = [_run(target, options, number) for number in range(1, options.runs + 1)]
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    named = figures(runs)
    conditions = {"store": target.store, "lease_s": options.lease, "shards": options.shards, **_told(target)}
    print(
        json.dumps({**named, "conditions": conditions, "aims": _aims(named)}, indent=2)
        if options.json
        else table(named)
    )
    return 0


def _told(target: Target) -> dict[str, object]:
    return {} if target.store == "cassandra" else target.conditions


def _run(target: Target, options: argparse.Namespace, number: int) -> Run:
    progress(f"run {number} of {options.runs}: the current time shard")
    run: dict[str, float | None] = {"late_s": _late_s(target, options, ago=0)}
    if options.shards == "ring":
        progress(f"run {number} of {options.runs}: an old time shard")
        run["old_shard_late_s"] = _late_s(target, options, ago=_AGO)
    return run


def _aims(named: dict[str, Figure | None]) -> list[dict[str, object]]:
    measured = {name: one["median"] for name, one in named.items() if one}
    return [
        {
            "aim": f"{name}: at most {_BOUNDS[name]} s",
            "measured": late,
            "bound": _BOUNDS[name],
            "reached": cast("float", late) <= _BOUNDS[name],
        }
        for name, late in measured.items()
    ]


def _late_s(target: Target, options: argparse.Namespace, *, ago: int) -> float:
    """Kill the holder while another process waits for work; how late that one gets the message."""
    layout = _RING if options.shards == "ring" else _ONE
    with target.fresh() as url:
        queue = MessageQueue.builder().store(url).name(QUEUE).options(lease=f"{options.lease}s", **layout).build()
        with queue, contextlib.ExitStack() as held:
            _send(queue, ago)
            holder = held.enter_context(_started(url))
            first = _line(holder)
            heir = held.enter_context(_started(url))
            holder.kill()
            holder.wait()
            lease_until = _lease_until(queue, ago)
            second = _line(heir)
    if first["number"] != second["number"] or second["at"] < lease_until:
        message = f"the holder had {first} until {lease_until}, and then another got {second}"
        raise NotMeasured(message)
    return (second["at"] - lease_until) / SECOND


def _lease_until(queue: MessageQueue, ago: int) -> int:
    """When the only lease there is ends; its holder may have renewed it before it was killed."""
    ring, moment = queue.core.ring, queue.core.process.now() - ago
    rows = queue.store.read(tuple(Slice(row, Type.TIMER, 0) for row in ring.current(moment)))
    leases = [column for columns in rows for column in columns]
    if len(leases) != 1:
        message = f"there are {len(leases)} leases where there must be one"
        raise NotMeasured(message)
    return ids.moment(leases[0].name.id)


def _send(queue: MessageQueue, ago: int) -> None:
    """Send one message, for now or with a time long past, as if it had come late into a row that was closed."""
    if not ago:
        queue.send({"number": 1})
        return
    process = queue.core.process
    moment = process.now() - ago
    put = message_put(
        0, message_name(0, ids.at(moment)).id, encode_plain(process.now(), to_json({"number": 1})), sent=process.now()
    )
    queue.run(send(process, Batch(queue.core.ring.row(moment, 0), (put,))))


@contextlib.contextmanager
def _started(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that takes what it can get; it is at work when the block begins."""
    command = [sys.executable, "-m", "benchmarks.processes.consumers", "hold", url]
    process = subprocess.Popen(command, cwd=_PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        _line(process)
        yield process
    finally:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[bytes]) -> dict[str, int]:
    line = cast("IO[bytes]", process.stdout).readline()
    if not line:
        message = "a process ended without having got the message"
        raise NotMeasured(message)
    values: dict[str, int] = json.loads(line)
    return values
