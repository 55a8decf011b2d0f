"""The simulated cluster as an ordinary store: each call lets virtual time pass until it has its answer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import ENTRIES, Batch, Column, Expectation, Outcome, Spread, Wanted
from astyqueue.stores import key_codec
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import TIMEOUT, Cluster
from tests.simulation.cassandra.replica import Decision, Replica
from tests.simulation.engine.event_loop import SkewedClock, Timeline
from tests.simulation.engine.fault_profile import Weather
from tests.simulation.engine.rng import Chance


class SimulatedClock(SkewedClock):
    """A clock that is right to the second, so that all within one second has one time; `advance` lets time pass."""

    def __init__(self) -> None:
        """Begin a virtual time."""
        self.timeline = Timeline()
        super().__init__(self.timeline, 0)

    def now(self) -> int:
        """The current second."""
        return super().now() // SECOND * SECOND

    def advance(self, duration: Duration) -> None:
        """Let so much time pass: seconds, a `timedelta`, or text like "10s"."""
        self.timeline.pass_over(self.timeline.now + as_microseconds(duration))


class SimulatedStore:
    """A store of several replicas, without faults or with those of `weather`; safe from many threads.

    Tests cause further faults through `cluster`.
    """

    spread = Spread()
    at_once = 1

    def __init__(
        self, clock: SimulatedClock, *, replicas: int = 3, weather: Weather | None = None, seed: int = 0
    ) -> None:
        """All replicas are up and empty."""
        chance = Chance(seed)
        self.cluster = Cluster(clock.timeline, weather or Weather.fair(replicas), chance, witness=_unseen)
        self._clock = clock
        self._lock = threading.Lock()
        self._open = True

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As the port says."""
        for each in wanted:
            key_codec.known(each.table)
        return cast(
            "list[list[Column]]", self._answer(Read(tuple(replace(each, row=_placed(each)) for each in wanted), exact))
        )

    def send(self, batch: Batch, *more: Batch) -> None:
        """As the port says."""
        for each in (batch, *more):
            key_codec.changes(each)
        placed = [replace(each, row=_placed(each)) for each in (batch, *more)]
        self._answer(Send(placed[0], tuple(placed[1:])))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the port says."""
        key_codec.committed_changes(batch, expects)
        return cast("Outcome", self._answer(Commit(replace(batch, row=_placed(batch)), expects)))

    def close(self) -> None:
        """Refuse all requests from now on."""
        self._open = False

    def _answer(self, asked: Read | Send | Commit) -> object:
        if not self._open:
            message = "this simulated store was closed; open a new one"
            raise Closed(message)
        heard: list[object] = []
        with self._lock:
            timeline = self._clock.timeline

            def hear(answer: object) -> None:
                heard.append(answer)
                timeline.stir()

            self.cluster.request(asked, self._clock, hear)
            timeline.run(lambda: bool(heard), timeline.now + 2 * TIMEOUT)
        if isinstance(heard[0], Exception):
            raise heard[0]
        return heard[0]


def _placed(where: Batch | Wanted) -> str:
    """The cluster has one table; a row of any but the first has another name there."""
    return where.row if where.table == ENTRIES else f"{where.table}/{where.row}"


def _unseen(row: str, proposal: Decision, replica: Replica) -> None:
    """Keep no record of what is accepted."""
