"""The processes of a simulated world, and what they do in each burst of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.protocol.layout.rows import Ring, is_home
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.checkers.polls import Polls
from tests.simulation.engine.client import Agent, Meddling, SimulatedProcess
from tests.simulation.engine.event_loop import SkewedClock
from tests.simulation.engine.history import History
from tests.simulation.engine.rng import Chance
from tests.simulation.workload.consumer import Taker
from tests.simulation.workload.locks import Locks
from tests.simulation.workload.operators import Person
from tests.simulation.workload.producers import Sender

QUEUE: Final = "mail"
_MINUTE: Final = 60 * SECOND
#: How likely a process, in a burst, sends in each way that the world has, receives, and administers the queue.
_UNIQUELY: Final = 0.6
_REPEATEDLY: Final = 0.4
_BY_SCHEDULE: Final = 0.5
_AGAIN: Final = 0.3
_RECEIVES: Final = 0.5
_LOOKS_AFTER: Final = 0.4

#: Returns the value of a row's current header.
Standing = Callable[[str], bytes | None]
#: A process, the name of what it does, and the agent that does it, which draws from the source that it gets.
Deed = tuple[SimulatedProcess, str, Callable[[Chance], Agent]]


class Populace:
    """All processes of a world. Some worlds have unique keys, some schedules, and some sends that are repeated."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        chance: Chance,
        *,
        meddling: Meddling,
        standing: Standing,
        locks: Locks,
    ) -> None:
        """One or two processes of users, and two or three consumers. `standing` returns a row's current header."""
        self.clients: list[SimulatedProcess] = []
        self._cluster = cluster
        self._history = history
        self._chance = chance
        self._meddling = meddling
        self._standing = standing
        self._locks = locks
        own = chance.own("populace")
        self._settings = _settings(own)
        self._uniquely, self._repeatedly, self._by_schedule = (own.random() < 0.5 for _ in range(3))
        homes = self._uniquely or self._by_schedule
        self.rows = [row for row in Ring(QUEUE, self._settings.layout).rows() if homes or not is_home(row)]
        self._polls: dict[str, Polls] = {}
        self._people = [self._core(f"person{number}") for number in range(own.randint(1, 2))]
        self._takers = [self.taker(f"taker{number}") for number in range(own.randint(2, 3))]

    @property
    def levels(self) -> int:
        """How many priorities the queue has."""
        return self._settings.layout.priorities

    def deeds(self, chance: Chance) -> Iterator[Deed]:
        """What the processes do in a burst. Each process that crashed before has a successor."""
        self._people = [(client, core) if client.up else self._core(f"{client.name}'") for client, core in self._people]
        self._takers = [taker if taker.client.up else self.taker(f"{taker.client.name}'") for taker in self._takers]
        for client, core in self._people:
            yield from self._of_person(client, core, chance)
        for taker in self._takers:
            turns = chance.randint(2, 5)
            if not taker.client.busy:
                yield taker.client, "works", partial(self._works, taker, turns)

    def _of_person(self, client: SimulatedProcess, core: QueueRuntime, chance: Chance) -> Iterator[Deed]:
        """Draw for everything that the process may do, done or not, so that what is drawn later stays the same."""
        drawn = [(chance.random(), chance.randint(1, 3)) for _ in range(6)]
        sends, repeats, _, keys, receives, looks = (times for _, times in drawn)
        chances = [each for each, _ in drawn]

        def sender(own: Chance) -> Sender:
            return Sender(client, core, self._history, own)

        def person(own: Chance) -> Person:
            return Person(client, core, self._history, own, self._polls_of(client))

        yield client, "sends", lambda own: sender(own).plainly(sends)
        if self._repeatedly and chances[1] < _REPEATEDLY:
            yield client, "sends repeatedly", lambda own: sender(own).repeatedly(repeats + 1)
        if self._by_schedule and chances[2] < _BY_SCHEDULE:
            yield client, "makes a schedule", lambda own: sender(own).by_schedule()
        if self._uniquely and chances[3] < _UNIQUELY:
            yield client, "sends uniquely", lambda own: sender(own).uniquely(keys + 1)
        if self._uniquely and self._by_schedule and chance.own(f"{client.name} again").random() < _AGAIN:
            yield client, "has come again", lambda own: sender(own).again_and_again(keys + 1)
        if chances[4] < _RECEIVES:
            yield client, "receives", lambda own: person(own).take(receives)
        if chances[5] < _LOOKS_AFTER:
            yield client, "looks after", lambda own: person(own).look_after(looks, self.rows)

    def _polls_of(self, client: SimulatedProcess) -> Polls:
        return self._polls.setdefault(client.name, Polls(client, self._history, self._standing))

    @staticmethod
    def _works(taker: Taker, turns: int, own: Chance) -> Agent:
        taker.chance = own
        return taker.work(turns)

    def _client(self, name: str, skew: int | None) -> SimulatedProcess:
        drawn = self._cluster.weather.client_skew(self._chance.own(f"clock of {name}"))
        client = SimulatedProcess(
            name,
            SkewedClock(self._cluster.timeline, drawn if skew is None else skew),
            self._cluster,
            meddling=self._meddling,
        )
        self.clients.append(client)
        return client

    def _core(self, name: str) -> tuple[SimulatedProcess, QueueRuntime]:
        client = self._client(name, None)
        return client, QueueRuntime(self._settings, client.clock, (), ways=self._locks.ways(client))

    def taker(self, name: str, skew: int | None = None) -> Taker:
        """One more process that claims and settles."""
        client = self._client(name, skew)
        settings = self._settings
        own, polls = self._chance.own(name), self._polls_of(client)
        taker = Taker(client, self.rows, settings.behaviour, settings.layout.priorities, self._history, own, polls)
        taker.fires = self._by_schedule
        if locked := self._locks.rows_of(client, taker.process, Ring(QUEUE, settings.layout)):
            taker.claim_under(locked)
        return taker

    def sender(self, name: str, skew: int | None = None) -> Sender:
        """One more process that sends."""
        client = self._client(name, skew)
        return Sender(client, QueueRuntime(self._settings, client.clock, ()), self._history, self._chance.own(name))


def _settings(chance: Chance) -> Settings:
    layout = Layout(
        time_shards=chance.choice((1, 1, 1, 3)),
        time_shard_us=10 * _MINUTE,
        concurrency_shards=chance.choice((1, 1, 1, 2)),
        priorities=chance.choice((1, 1, 2)),
    )
    behaviour = Behaviour(lease_us=chance.choice((5, 20, 60)) * SECOND, max_attempts=chance.choice((2, 3, 5)))
    return Settings(name=QUEUE, layout=layout, behaviour=behaviour)
