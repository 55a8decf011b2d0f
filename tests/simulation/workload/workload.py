"""The processes of a simulated simulation, and what they do in each burst of work."""

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
from tests.simulation.engine.client import Agent, Interceptor, SimulatedProcess
from tests.simulation.engine.event_loop import SkewedClock
from tests.simulation.engine.history import History
from tests.simulation.engine.rng import SeededRandom
from tests.simulation.workload.applications import Application
from tests.simulation.workload.consumer import Consumer
from tests.simulation.workload.locks import Locks
from tests.simulation.workload.producers import Producer

QUEUE: Final = "mail"
_MINUTE: Final = 60 * SECOND
#: How likely a process, in a burst, sends in each way that the simulation has, receives, and administers the queue.
_SENDS_WITH_KEYS: Final = 0.6
_SENDS_VALUES: Final = 0.6
_SENDS_TO_GROUPS: Final = 0.6
_SENDS_REPEATEDLY: Final = 0.4
_CREATES_SCHEDULE: Final = 0.5
_SENDS_RECURRING: Final = 0.3
_RECEIVES: Final = 0.5
_ADMINISTERS: Final = 0.4

#: Returns the value of a row's current header.
CurrentHeader = Callable[[str], bytes | None]
#: A process, the name of what it does, and the agent that does it, which draws from the source that it gets.
Activity = tuple[SimulatedProcess, str, Callable[[SeededRandom], Agent]]


class Workload:
    """All processes of a simulation.

    Some simulations have unique keys, last values, schedules, repeated sends, or groups.
    """

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        rng: SeededRandom,
        *,
        interceptor: Interceptor,
        current_header: CurrentHeader,
        locks: Locks,
    ) -> None:
        """One or two applications and two or three consumers; `current_header` returns that of a row."""
        self.clients: list[SimulatedProcess] = []
        self._cluster = cluster
        self._history = history
        self._rng = rng
        self._interceptor = interceptor
        self._current_header = current_header
        self._locks = locks
        own = rng.derive("populace")
        kinds = rng.derive("kinds of queue")
        self._with_values, last_value = (kinds.random() < 0.5 for _ in range(2))
        self._settings = _settings(own, last_value=last_value)
        self._with_keys, self._with_repeats, self._with_schedules = (own.random() < 0.5 for _ in range(3))
        key_models = self._with_keys or self._with_values or self._with_schedules
        self._with_groups = key_models and not last_value and rng.derive("groups").random() < 0.5
        self.rows = [row for row in Ring(QUEUE, self._settings.layout).rows() if key_models or not is_home(row)]
        self._polls: dict[str, Polls] = {}
        self._applications = [self._application(f"person{number}") for number in range(own.randint(1, 2))]
        self._consumers = [self.consumer(f"taker{number}") for number in range(own.randint(2, 3))]

    @property
    def levels(self) -> int:
        """How many priorities the queue has."""
        return self._settings.layout.priorities

    def activities(self, rng: SeededRandom) -> Iterator[Activity]:
        """What the processes do in a burst. Each process that crashed before has a successor."""
        self._applications = [
            (client, runtime) if client.up else self._application(f"{client.name}'")
            for client, runtime in self._applications
        ]
        self._consumers = [
            consumer if consumer.client.up else self.consumer(f"{consumer.client.name}'")
            for consumer in self._consumers
        ]
        for client, runtime in self._applications:
            yield from self._activities_of(client, runtime, rng)
        for consumer in self._consumers:
            turns = rng.randint(2, 5)
            if not consumer.client.busy:
                yield consumer.client, "works", partial(self._works, consumer, turns)

    def _activities_of(self, client: SimulatedProcess, runtime: QueueRuntime, rng: SeededRandom) -> Iterator[Activity]:
        """Draw for everything that the process may do, done or not, so that what is drawn later stays the same."""
        drawn = [(rng.random(), rng.randint(1, 3)) for _ in range(6)]
        sends, repeats, _, keys, receives, looks = (times for _, times in drawn)
        chances = [each for each, _ in drawn]

        def producer(own: SeededRandom) -> Producer:
            return Producer(client, runtime, self._history, own)

        def application(own: SeededRandom) -> Application:
            return Application(client, runtime, self._history, own, self._polls_of(client))

        yield client, "sends", lambda own: producer(own).send_plain(sends)
        if self._with_repeats and chances[1] < _SENDS_REPEATEDLY:
            yield client, "sends repeatedly", lambda own: producer(own).send_repeatedly(repeats + 1)
        if self._with_schedules and chances[2] < _CREATES_SCHEDULE:
            yield client, "makes a schedule", lambda own: producer(own).create_schedule()
        if self._with_keys and chances[3] < _SENDS_WITH_KEYS:
            yield client, "sends uniquely", lambda own: producer(own).send_with_keys(keys + 1)
        if self._with_keys and self._with_schedules and rng.derive(f"{client.name} again").random() < _SENDS_RECURRING:
            yield client, "has come again", lambda own: producer(own).send_recurring(keys + 1)
        yield from self._activities_of_kinds(client, producer, rng)
        if chances[4] < _RECEIVES:
            yield client, "receives", lambda own: application(own).receive(receives)
        if chances[5] < _ADMINISTERS:
            yield client, "looks after", lambda own: application(own).administer(looks, self.rows)

    def _activities_of_kinds(
        self, client: SimulatedProcess, producer: Callable[[SeededRandom], Producer], rng: SeededRandom
    ) -> Iterator[Activity]:
        """What the process does with values and groups, each drawn from a source of its own."""
        values = rng.derive(f"{client.name} values")
        if self._with_values and values.random() < _SENDS_VALUES:
            times = values.randint(2, 5)
            yield client, "sends values", lambda own: producer(own).send_values(times)
        groups = rng.derive(f"{client.name} groups")
        if self._with_groups and groups.random() < _SENDS_TO_GROUPS:
            of_groups = groups.randint(2, 6)
            yield client, "sends to groups", lambda own: producer(own).send_to_groups(of_groups)

    def _polls_of(self, client: SimulatedProcess) -> Polls:
        return self._polls.setdefault(client.name, Polls(client, self._history, self._current_header))

    @staticmethod
    def _works(consumer: Consumer, turns: int, own: SeededRandom) -> Agent:
        consumer.rng = own
        return consumer.work(turns)

    def _client(self, name: str, skew: int | None) -> SimulatedProcess:
        drawn = self._cluster.profile.client_skew(self._rng.derive(f"clock of {name}"))
        client = SimulatedProcess(
            name,
            SkewedClock(self._cluster.event_loop, drawn if skew is None else skew),
            self._cluster,
            interceptor=self._interceptor,
        )
        self.clients.append(client)
        return client

    def _application(self, name: str) -> tuple[SimulatedProcess, QueueRuntime]:
        client = self._client(name, None)
        return client, QueueRuntime(self._settings, client.clock, (), client_options=self._locks.options(client))

    def consumer(self, name: str, skew: int | None = None) -> Consumer:
        """One more process that claims and settles."""
        client = self._client(name, skew)
        settings = self._settings
        own, polls = self._rng.derive(name), self._polls_of(client)
        consumer = Consumer(
            client, self.rows, settings.behaviour, settings.layout.priorities, self._history, own, polls
        )
        consumer.fires = self._with_schedules
        if locked := self._locks.rows_of(client, consumer.process, Ring(QUEUE, settings.layout)):
            consumer.claim_under(locked)
        return consumer

    def producer(self, name: str, skew: int | None = None) -> Producer:
        """One more process that sends."""
        client = self._client(name, skew)
        return Producer(client, QueueRuntime(self._settings, client.clock, ()), self._history, self._rng.derive(name))


def _settings(rng: SeededRandom, *, last_value: bool) -> Settings:
    layout = Layout(
        time_shards=rng.choice((1, 1, 1, 3)),
        time_shard_us=10 * _MINUTE,
        concurrency_shards=rng.choice((1, 1, 1, 2)),
        priorities=rng.choice((1, 1, 2)),
    )
    behaviour = Behaviour(
        lease_us=rng.choice((5, 20, 60)) * SECOND, max_attempts=rng.choice((2, 3, 5)), last_value=last_value
    )
    return Settings(name=QUEUE, layout=layout, behaviour=behaviour)
