"""The simulated cluster as an ordinary store: each call lets virtual time pass until it has its answer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import ENTRIES, Batch, Column, Expectation, Outcome, Spread, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import TIMEOUT, Cluster
from tests.simulation.cassandra.replica import Decision, Replica
from tests.simulation.engine.event_loop import EventLoop, SkewedClock
from tests.simulation.engine.fault_profile import FaultProfile
from tests.simulation.engine.rng import SeededRandom


class SimulatedClock(SkewedClock):
    """A clock that is right to the second, so that all within one second has one time; `advance` lets time pass."""

    def __init__(self) -> None:
        """Begin a virtual time."""
        self.event_loop = EventLoop()
        super().__init__(self.event_loop, 0)

    def now(self) -> int:
        """The current second."""
        return super().now() // SECOND * SECOND

    def advance(self, duration: Duration) -> None:
        """Let time pass: seconds, a `timedelta`, or text like "10s"."""
        self.event_loop.advance_to(self.event_loop.now + as_microseconds(duration))


class SimulatedStore:
    """A store of several replicas, without faults or with those of `profile`; safe from many threads.

    Tests cause further faults through `cluster`.
    """

    spread = Spread()
    at_once = 1

    def __init__(
        self, clock: SimulatedClock, *, replicas: int = 3, profile: FaultProfile | None = None, seed: int = 0
    ) -> None:
        """All replicas are up and empty."""
        rng = SeededRandom(seed)
        self.cluster = Cluster(
            clock.event_loop, profile or FaultProfile.fault_free(replicas), rng, record_accept=_unseen
        )
        self._clock = clock
        self._lock = threading.Lock()
        self._open = True

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As `Store`."""
        for each in wanted:
            column_name_codec.known(each.table)
        return cast(
            "list[list[Column]]", self._answer(Read(tuple(replace(each, row=_placed(each)) for each in wanted), exact))
        )

    def send(self, batch: Batch, *more: Batch) -> None:
        """As `Store`."""
        for each in (batch, *more):
            column_name_codec.changes(each)
        placed = [replace(each, row=_placed(each)) for each in (batch, *more)]
        self._answer(Send(placed[0], tuple(placed[1:])))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As `Store`."""
        column_name_codec.committed_changes(batch, expects)
        return cast("Outcome", self._answer(Commit(replace(batch, row=_placed(batch)), expects)))

    def close(self) -> None:
        """Refuse all requests from now on."""
        self._open = False

    def _answer(self, request: Read | Send | Commit) -> object:
        if not self._open:
            message = "this simulated store was closed; open a new one"
            raise Closed(message)
        answers: list[object] = []
        with self._lock:
            event_loop = self._clock.event_loop

            def on_answer(answer: object) -> None:
                answers.append(answer)
                event_loop.recheck()

            self.cluster.request(request, self._clock, on_answer)
            event_loop.run(lambda: bool(answers), event_loop.now + 2 * TIMEOUT)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]


def _placed(where: Batch | Wanted) -> str:
    """The cluster has one table; a row of any but the first has another name there."""
    return where.row if where.table == ENTRIES else f"{where.table}/{where.row}"


def _unseen(row: str, proposal: Decision, replica: Replica) -> None:
    """Keep no record of what is accepted."""
