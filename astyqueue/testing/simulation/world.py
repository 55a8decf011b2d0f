"""One world from one seed: a cluster, clients, a history of a few bursts of work, and the judgement of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.protocol.rows import Ring
from astyqueue.queue.core import Core
from astyqueue.testing.simulation.chance import Chance, repeatable
from astyqueue.testing.simulation.client import Agent, Client, Meddling, honest
from astyqueue.testing.simulation.cluster import Cluster
from astyqueue.testing.simulation.history import History
from astyqueue.testing.simulation.oracles import ORACLES, WALKER, Evidence, Oracle
from astyqueue.testing.simulation.people import Person
from astyqueue.testing.simulation.taker import Taker
from astyqueue.testing.simulation.timeline import SkewedClock, Timeline
from astyqueue.testing.simulation.trouble import Trouble
from astyqueue.testing.simulation.truth import Truth
from astyqueue.testing.simulation.weather import GRACE, Fault, Weather

QUEUE: Final = "mail"
_MINUTE: Final = 60 * SECOND
#: A burst of work that has not ended by then goes on in the next.
_BURST: Final = 90 * SECOND
#: When the rows are emptied at the end: at once, behind each of the late looks, and when every lease and pause is over.
_DRAINS: Final = (0, SECOND, 12 * SECOND, 11 * _MINUTE, 11 * _MINUTE, 30 * _MINUTE, 11 * _MINUTE)
_DAY: Final = 24 * 3_600 * SECOND
_END: Final = 4 * 3_600 * SECOND


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one seed. `operations` are requests to the store; `steps` what was done, by name."""

    seed: int
    weather: Weather
    violations: tuple[str, ...]
    operations: int
    steps: Counter[str]
    digest: int
    story: History = field(repr=False, compare=False)

    def __str__(self) -> str:
        """What is wrong, in lines."""
        faults = ", ".join(sorted(self.weather.faults))
        told = "\n".join(f"  {violation}" for violation in self.violations) or "  nothing is wrong"
        return f"seed {self.seed} ({self.weather.replicas} replicas; {faults}):\n{told}"


def simulate(
    seed: int,
    *,
    meddling: Meddling = honest,
    grace_us: int = GRACE,
    always: frozenset[Fault] = frozenset(),
    judges: tuple[Oracle, ...] = ORACLES,
) -> Judged:
    """Play the world of a seed, always in the same way, and judge it.

    `meddling` stands between every process and the store; `always` are kinds of fault that are not left to chance; graves
    are kept for `grace_us` microseconds.
    """
    with repeatable(seed) as chance:
        world = _World(chance, Weather.drawn(chance, grace_us, always), meddling)
        world.play()
        evidence = world.evidence()
        violations = [*world.failures(), *[found for judge in judges for found in judge(evidence)]]
        return Judged(seed, world.weather, tuple(violations), world.operations, world.history.steps, chance.getrandbits(64), world.history)


class _World:
    """The parts of one world."""

    def __init__(self, chance: Chance, weather: Weather, meddling: Meddling) -> None:
        self.weather = weather
        self.history = History()
        self.timeline = Timeline()
        self.truth = Truth(weather.replicas // 2 + 1, f"{QUEUE}:")
        self.cluster = Cluster(self.timeline, weather, chance, witness=self.truth.witness)
        self.chance = chance
        self.clients: list[Client] = []
        self.graves = 0
        self._meddling = meddling
        self._settings = Settings(
            name=QUEUE,
            layout=Layout(
                time_shards=chance.choice((1, 1, 1, 3)),
                time_shard_us=10 * _MINUTE,
                concurrency_shards=chance.choice((1, 1, 1, 2)),
                priorities=chance.choice((1, 1, 2)),
            ),
            behaviour=Behaviour(lease_us=chance.choice((5, 20, 60)) * SECOND, max_attempts=chance.choice((2, 3, 5))),
        )
        ring = Ring(QUEUE, self._settings.layout)
        self._rows = [row for row in ring.rows() if ":home:" not in row]
        self.trouble = Trouble(self.cluster, self.clients, chance)

    @property
    def operations(self) -> int:
        """Requests to the store."""
        return sum(client.requests for client in self.clients)

    def play(self) -> None:
        """Bursts of work with faults among them, long pauses between, and in the end peace, and everything is taken."""
        people = [self._person(f"person{number}") for number in range(self.chance.randint(1, 2))]
        takers = [self._taker(f"taker{number}") for number in range(self.chance.randint(2, 3))]
        for _ in range(self.chance.randint(3, 4)):
            people = [person if person.client.up else self._person(f"{person.client.name}'") for person in people]
            takers = [taker if taker.client.up else self._taker(f"{taker.client.name}'") for taker in takers]
            self._burst(people, takers)
            self.timeline.pass_over(self.timeline.now + self.weather.absence(self.chance))
            if Fault.PURGES in self.weather.faults:
                self._clear_graves()
        self._drain()

    def _clear_graves(self) -> None:
        for replica in self.cluster.replicas:
            if replica.up and self.chance.random() < 0.7:
                replica.purge(self.weather.grace_us)

    def _burst(self, people: list[Person], takers: list[Taker]) -> None:
        for person in people:
            self._begin(person.client, person.send(self.chance.randint(3, 6)))
            if self.chance.random() < 0.5:
                self._begin(person.client, person.take(self.chance.randint(1, 3)))
            if self.chance.random() < 0.3:
                self._begin(person.client, person.look_after(self.chance.randint(1, 3), self._rows))
        for taker in [taker for taker in takers if not taker.client.busy]:
            self._begin(taker.client, taker.work(self.chance.randint(4, 9)))
        self.trouble.plan(2 * SECOND)
        self.timeline.run(lambda: not any(client.busy for client in self.clients), self.timeline.now + _BURST)

    def _begin(self, client: Client, agent: Agent) -> None:
        client.start(agent, self.chance.randint(0, SECOND // 2))

    def _drain(self) -> None:
        for client in self.clients:
            client.crash()
        self.trouble.end()
        self._finish("drainer", _DRAINS)
        self._finish(WALKER, (0, 2 * _MINUTE, 2 * _MINUTE), back=2 * _DAY)
        self._measure()

    def _finish(self, name: str, moments: tuple[int, ...], back: int = 0) -> Taker:
        """Have everything taken and acked by a process whose clock is right."""
        taker = self._taker(name, skew=0)
        taker.forgets = 0
        taker.client.start(taker.drain(moments, back))
        self._wait_for(taker.client)
        return taker

    def _wait_for(self, client: Client) -> None:
        self.timeline.run(lambda: not client.busy, self.timeline.now + _END)

    def _measure(self) -> None:
        """When one more message has come and gone, look what a poll costs that finds nothing."""
        person, before = self._person("last", skew=0), len(self.history.sent)
        person.client.start(person.send(2))
        self._wait_for(person.client)
        rows = {sent.message.row for sent in self.history.sent[before:] if sent.message}
        taker = self._finish("measure", (0, SECOND, 12 * SECOND, 11 * _MINUTE, 11 * _MINUTE))
        self.cluster.graves.clear()
        taker.client.start(taker.drain((_MINUTE,)))
        self._wait_for(taker.client)
        self.graves = sum(self.cluster.graves[row] for row in rows)

    def _client(self, name: str, skew: int | None) -> Client:
        clock = SkewedClock(self.timeline, self.weather.client_skew(self.chance) if skew is None else skew)
        client = Client(name, clock, self.cluster, meddling=self._meddling)
        self.clients.append(client)
        return client

    def _taker(self, name: str, skew: int | None = None) -> Taker:
        client = self._client(name, skew)
        settings = self._settings
        return Taker(client, self._rows, settings.behaviour, settings.layout.priorities, self.history, self.chance)

    def _person(self, name: str, skew: int | None = None) -> Person:
        client = self._client(name, skew)
        return Person(client, Core(self._settings, client.clock, ()), self.history, self.chance)

    def failures(self) -> list[str]:
        """Errors that no step of astyqueue should end with."""
        return [f"{client.name} failed: {error!r}" for client in self.clients for error in client.failures]

    def evidence(self) -> Evidence:
        """What is to be judged."""
        return Evidence(self.history, self.truth, self.graves)
