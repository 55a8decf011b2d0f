"""The cost of each row lock: one process, two processes, and a row in which many locks were taken.

The guard (with the row lease), the column lock, and a manager of the user's that locks files, side by side in each run,
in an order that turns from run to run. Ratios are of figures of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from itertools import product
from typing import Final

from astyqueue import MessageQueue
from astyqueue.protocol.claiming.claim import ClaimResult, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.row_lock import release_columns
from astyqueue.protocol.steps import Steps
from astyqueue.queue.options import DEFAULT_OPTIONS, with_lock
from benchmarks.figures import Figure, Run, figures, table
from benchmarks.parallel_drain import drained_by
from benchmarks.processes.consumers import files_in, lock_of
from benchmarks.processes.poller import Row, tombstones
from benchmarks.target import CLOCK, QUEUE, Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.throughput import drain, send_per_s
from benchmarks.workload import NotMeasured

_OTHERS: Final = ("columns", "manager")
_BODY: Final = 200
_PROCESSES: Final = 2
_COMPARED: Final = ("drain_per_s", "processes_per_s", "claim_ms")


class LockedRow(Row):
    """One row, claimed from under its lock, as the claimer does."""

    def __init__(self, url: str, name: str, lock: tuple[str, str]) -> None:
        """Know nothing of it yet; each lock, by its name and as it is written, has queues of its own."""
        super().__init__(url, f"{name}-{lock[0]}")
        self._lock = with_lock(DEFAULT_OPTIONS, lock_of(lock[1]), "5s").lock(self.queue.core.process, CLOCK)

    def look(self) -> Steps[ClaimResult]:
        """Acquire, claim, let go."""
        row = self.snapshot.row
        grip = yield from self._lock.acquire(row)
        if grip is None:
            message = f"row {row} is locked, and there is no other process"
            raise NotMeasured(message)
        behaviour = self.queue.settings.behaviour
        request = ClaimRequest(
            MOST, behaviour.lease_us, behaviour.max_attempts, leases=self._lock.leases, unlocks=grip.columns
        )
        claimed = yield from claim(self.queue.core.process, self.snapshot, request)
        if grip.columns and not claimed.committed:
            yield from release_columns(row, grip.columns)
        grip.let_go()
        return claimed


def churned(url: str, lock: tuple[str, str], claims: int) -> None:
    """Claim `claims` messages, one by one, from the used row."""
    row = LockedRow(url, "used", lock)
    for _ in range(claims):
        row.claim()
    row.queue.close()


def compared(url: str, lock: tuple[str, str], samples: int) -> Run:
    """Polls and claims of the used row and of the fresh one, alternately; milliseconds, and ratios of their medians."""
    fresh, used = (LockedRow(url, name, lock) for name in ("fresh", "used"))
    for row in (fresh, used):
        row.claim()
    for _ in range(samples):
        for row in (fresh, used):
            row.polls.append(row.poll())
            row.claims.append(row.claim())
    poll, claimed = ([statistics.median(getattr(row, kind)) for row in (fresh, used)] for kind in ("polls", "claims"))
    read = tombstones(used)
    _close(fresh.queue, used.queue)
    return {
        "poll_ms": poll[1],
        "claim_ms": claimed[1],
        "poll_ratio": poll[1] / poll[0],
        "claim_ratio": claimed[1] / claimed[0],
        "tombstones_per_poll": read,
    }


def _close(*queues: MessageQueue) -> None:
    for queue in queues:
        queue.close()


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if a message was not handled exactly once."""
    made = parser("locks", __doc__, ("sqlite", "cassandra"))
    made.add_argument(
        "--messages", type=whole_number(1), default=40_000, help="to drain, in each run (default: %(default)s)"
    )
    made.add_argument("--threads", type=whole_number(1), default=8, help="of the dispatcher (default: %(default)s)")
    made.add_argument(
        "--claims", type=whole_number(1), default=2_000, help="through the used row, before (default: %(default)s)"
    )
    made.add_argument(
        "--samples", type=whole_number(1), default=100, help="polls and claims in each run (default: %(default)s)"
    )
    options = made.parse_args(arguments)
    began = os.getloadavg()
    try:
        with opened(options) as target, tempfile.TemporaryDirectory(prefix="astyqueue-locks-") as directory:
            locks = {"guard": "guard", "columns": "columns", "manager": files_in(directory)}
            drained = [_drained(target, options, _turned(locks, number)) for number in range(options.runs)]
            runs = [
                _with_ratios({**one, **other})
                for one, other in zip(drained, _rows(target, options, locks), strict=True)
            ]
            measured = figures(runs)
            conditions = {**_conditions(target, options), "load": {"before": began, "after": os.getloadavg()}}
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps({**measured, "conditions": conditions}, indent=2) if options.json else _page(measured))
    return 0


def _turned(locks: dict[str, str], number: int) -> list[tuple[str, str]]:
    """The locks, beginning with another one in each run."""
    every = list(locks.items())
    first = number % len(every)
    return [*every[first:], *every[:first]]


def _drained(target: Target, options: argparse.Namespace, locks: list[tuple[str, str]]) -> Run:
    """One run of drains: by one process, and by two that share eight rows."""
    run: dict[str, float | None] = {}
    for lock, written in locks:
        progress(f"draining under the lock {lock}")
        shared = drained_by(target, _PROCESSES, options.messages, lock=written)
        run |= {f"{lock}_{name.replace(f'_{_PROCESSES}', '')}": value for name, value in shared.items()}
        with (
            target.fresh() as url,
            MessageQueue.builder().store(url).name(QUEUE).row_lock(lock_of(written)).build() as queue,
        ):
            send_per_s(queue, options.messages, _BODY)
            alone = drain(queue, options.messages, options.threads)
        run |= {f"{lock}_drain_per_s": alone.per_s, f"{lock}_worker_cpu_us_per_message": alone.cpu_us}
    return run


def _rows(target: Target, options: argparse.Namespace, locks: dict[str, str]) -> list[Run]:
    """All runs of polls and claims, of rows in which each lock was taken often and of fresh ones."""
    with target.fresh() as url:
        for lock, written in locks.items():
            progress(f"{options.claims} claims under the lock {lock}")
            churned(url, (lock, written), options.claims)
        return [_compared(url, options.samples, _turned(locks, number)) for number in range(options.runs)]


def _compared(url: str, samples: int, locks: list[tuple[str, str]]) -> Run:
    run: dict[str, float | None] = {}
    for lock, written in locks:
        progress(f"polls and claims under the lock {lock}")
        run |= {f"{lock}_{name}": value for name, value in compared(url, (lock, written), samples).items()}
    return run


def _with_ratios(run: Run) -> Run:
    """The same, and each lock's figures against those of the guard."""
    ratios: dict[str, float | None] = {}
    for lock, name in product(_OTHERS, _COMPARED):
        mine, usual = run[f"{lock}_{name}"], run[f"guard_{name}"]
        ratios[f"{lock}_to_guard_{name}"] = mine / usual if mine and usual else None
    return dict(sorted({**run, **ratios}.items()))


def _conditions(target: Target, options: argparse.Namespace) -> dict[str, object]:
    requested = {name: getattr(options, name) for name in ("messages", "threads", "claims", "samples", "runs")}
    return {"store": target.store, **requested, "processors": os.cpu_count(), **target.conditions}


def _page(measured: dict[str, Figure | None]) -> str:
    return table(measured)
