"""A process that measures two rows alternately: `python -m benchmarks.processes.poller URL SAMPLES FIRST SECOND`.

FIRST and SECOND are the queues "fresh" and "used", in either order. A poll reads the header and looks for work where
there is none. A claim takes a message that was just sent; it is acked after the clock has stopped.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from typing import Final, TypeVar

from cassandra.cluster import ResponseFuture, Session

from astyqueue import MessageQueue
from astyqueue.protocol.claiming.claim import ClaimResult, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.stores.cassandra import CassandraStore
from astyqueue.units import SECOND
from benchmarks.row_churn import ROWS, snapshot_of
from benchmarks.target import CLOCK
from benchmarks.workload import NotMeasured, body

T = TypeVar("T")
_MILLISECOND: Final = SECOND / 1000
_BODY: Final = 200
_KEYS: Final = {"fresh": "fresh", "used": "after"}
_TOMBSTONES: Final = re.compile(r"(\d+) tombstone cells")


class Row:
    """One row, as this process sees it."""

    def __init__(self, url: str, name: str) -> None:
        """Know nothing of it yet."""
        self.queue = MessageQueue.builder().store(url).name(name).options(**ROWS).build()
        self.snapshot = snapshot_of(self.queue)
        self.polls: list[float] = []
        self.claims: list[float] = []

    def claim(self) -> float:
        """Send a message, and take it: the milliseconds of the taking."""
        self.queue.send(body(0, _BODY))
        claimed, taken = _timed(lambda: self.queue.run(self.look()))
        if sum(len(each.held) for each in claimed.claims) != 1:
            message = f"a claim took {claimed.claims} where one message was sent"
            raise NotMeasured(message)
        self.queue.run(self._ack(claimed))
        return taken

    def poll(self) -> float:
        """Look for work where there is none: the milliseconds of that."""
        claimed, taken = _timed(lambda: self.queue.run(self.polling()))
        if claimed.claims:
            message = f"a poll took {claimed.claims} where nothing was sent"
            raise NotMeasured(message)
        return taken

    def polling(self) -> Steps[ClaimResult]:
        """The steps of a poll."""
        column = yield from read_column(self.snapshot.row, HEADER)
        now = self.queue.core.process.now()
        self.snapshot.learn(column.value if column else None, now, column.written if column else None)
        return (yield from self.look())

    def look(self) -> Steps[ClaimResult]:
        """Claim, and go on while there is more to pass: without cursors the way to the head is long."""
        behaviour = self.queue.settings.behaviour
        request = ClaimRequest(MOST, behaviour.lease_us, behaviour.max_attempts)
        claimed = yield from claim(self.queue.core.process, self.snapshot, request)
        while claimed.more and not claimed.claims:
            claimed = yield from claim(self.queue.core.process, self.snapshot, request)
        return claimed

    def _ack(self, claimed: ClaimResult) -> Steps[None]:
        for taken in claimed.claims:
            outcomes = {one.entry.id: ACK for one in taken.held}
            settled = yield from settle(
                self.queue.core.process, self.snapshot.row, SettleRequest(taken.timer, outcomes)
            )
            for settle_plan in settled.done:
                self.snapshot.settled(settle_plan.timer_change)


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    began = CLOCK.monotonic()
    result = action()
    return result, (CLOCK.monotonic() - began) / _MILLISECOND


def main(url: str, samples: int, names: list[str]) -> None:
    """First claims apart, then polls and claims of both rows alternately, then the tombstones of a poll."""
    rows = {name: Row(url, name) for name in names}
    values: dict[str, float | None] = {f"{_KEYS[name]}_first_claim_ms": row.claim() for name, row in rows.items()}
    for _ in range(samples):
        for row in rows.values():
            row.polls.append(row.poll())
            row.claims.append(row.claim())
    for name, row in rows.items():
        values[f"{_KEYS[name]}_ms"] = statistics.median(row.polls)
        values[f"{_KEYS[name]}_claim_ms"] = statistics.median(row.claims)
    values["tombstones_per_poll"] = tombstones(rows["used"])
    for row in rows.values():
        row.queue.close()
    print(json.dumps(values))


def tombstones(row: Row) -> float | None:
    """The tombstones that the server's trace reports for a poll of this row."""
    store = row.queue.store
    if not isinstance(store, CassandraStore):
        return None
    activities = traced(store, lambda: row.queue.run(row.polling()))
    counted = [int(found[1]) for activity in activities if (found := _TOMBSTONES.search(activity))]
    if not counted:
        message = "the server's trace does not show what it read"
        raise NotMeasured(message)
    return sum(counted)


_PATIENCE_SECONDS: Final = 10


def traced(store: CassandraStore, action: Callable[[], object]) -> list[str]:
    """The activities of every request that the action makes through this store."""
    session: Session = store._session  # noqa: SLF001 - tracing is a wish of the driver's session, which the port has no word for
    futures: list[ResponseFuture] = []
    plain = session.execute_async

    def ask(*arguments: object, **options: object) -> ResponseFuture:
        future = plain(*arguments, **{**options, "trace": True})
        futures.append(future)
        return future

    session.execute_async = ask
    try:
        action()
    finally:
        session.execute_async = plain
    return [
        event.description for future in futures for event in future.get_query_trace(max_wait=_PATIENCE_SECONDS).events
    ]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
