"""One world from one seed: a cluster, clients, a history of a few bursts of work, and the judgement of it."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.testing.simulation.chance import Chance, repeatable
from astyqueue.testing.simulation.client import Client, Meddling, honest
from astyqueue.testing.simulation.cluster import Cluster
from astyqueue.testing.simulation.evidence import Evidence, Oracle
from astyqueue.testing.simulation.history import History
from astyqueue.testing.simulation.oracles import ORACLES, WALKER
from astyqueue.testing.simulation.parts import Parts
from astyqueue.testing.simulation.populace import QUEUE, Populace
from astyqueue.testing.simulation.taker import Taker
from astyqueue.testing.simulation.timeline import Timeline
from astyqueue.testing.simulation.trouble import Trouble
from astyqueue.testing.simulation.truth import Truth
from astyqueue.testing.simulation.weather import GRACE, Fault, Weather

_MINUTE: Final = 60 * SECOND
#: A burst of work that has not ended by then goes on in the next.
_BURST: Final = 90 * SECOND
#: Bursts go on until a world will come to so many requests, of which the end makes that many for each row at least.
_REQUESTS: Final = 168
_AT_THE_END: Final = 28
_FEWEST: Final = 200
#: There are at least and at most so many bursts.
_BURSTS: Final = range(3, 30)
#: When the rows are emptied at the end: at once, behind each of the late looks, and when every lease and pause is over.
_DRAINS: Final = (0, SECOND, 12 * SECOND, 11 * _MINUTE, 11 * _MINUTE, 30 * _MINUTE, 11 * _MINUTE)
#: Where clocks of servers are off, looks begin as far before what was seen, and walk over what went then.
_CLOCKS: Final = frozenset({Fault.NODE_CLOCKS, Fault.CLOCK_JUMPS})
_DAY: Final = 24 * 3_600 * SECOND
_END: Final = 4 * 3_600 * SECOND


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one seed. `operations` are requests to the store; `steps` what was done, by name; `parts` what it was made of."""

    seed: int
    weather: Weather
    violations: tuple[str, ...]
    operations: int
    steps: Counter[str]
    digest: int
    parts: tuple[str, ...]
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
    only: frozenset[str] | None = None,
) -> Judged:
    """Play the world of a seed, always in the same way, and judge it.

    `meddling` stands between every process and the store; `always` are kinds of fault that are not left to chance; graves
    are kept for `grace_us` microseconds; of the parts of the world, `only` these are played.
    """
    collects = gc.isenabled()
    gc.disable()  # a world makes few cycles, and looking for them takes a sixth of the time
    try:
        with repeatable(seed) as chance:
            world = _World(chance, Weather.drawn(chance.own("weather"), grace_us, always), meddling, parts=Parts(only))
            world.play()
            evidence = world.evidence()
            violations = [*world.failures(), *[found for judge in judges for found in judge(evidence)]]
            return world.judged(seed, tuple(violations))
    finally:
        if collects:
            gc.enable()


class _World:
    """The parts of one world."""

    def __init__(self, chance: Chance, weather: Weather, meddling: Meddling, *, parts: Parts) -> None:
        self.parts = parts
        self.weather = weather.without(frozenset(fault for fault in sorted(weather.faults) if not parts.plays(fault)))
        self.history = History()
        self.timeline = Timeline()
        self.truth = Truth(weather.replicas // 2 + 1, f"{QUEUE}:")
        self.network_chance = chance.own("network")
        self.cluster = Cluster(self.timeline, self.weather, self.network_chance, witness=self.truth.witness)
        self.chance = chance
        self.graves = 0
        self.populace = Populace(self.cluster, self.history, chance, meddling=meddling)
        self.trouble = Trouble(self.cluster, self.populace.clients, chance.own("trouble"))

    @property
    def clients(self) -> list[Client]:
        """All processes there ever were."""
        return self.populace.clients

    @property
    def operations(self) -> int:
        """Requests to the store."""
        return sum(client.requests for client in self.clients)

    def play(self) -> None:
        """Bursts of work with faults among them, long pauses between, and in the end peace, and everything is taken."""
        burst = 0
        while self._goes_on(burst):
            chance = self.chance.own(f"burst {burst}")
            self._burst(burst, chance)
            self.timeline.pass_over(self.timeline.now + self.weather.absence(chance))
            if Fault.PURGES in self.weather.faults:
                self._clear_graves(chance)
            burst += 1
        self._drain()

    def _goes_on(self, burst: int) -> bool:
        if self.parts.only is not None:
            return burst <= self.parts.last_burst
        return burst < _BURSTS.start or (burst < _BURSTS.stop and self.operations + _AT_THE_END * len(self.populace.rows) < _REQUESTS)

    def _clear_graves(self, chance: Chance) -> None:
        for replica in self.cluster.replicas:
            if replica.up and chance.random() < 0.7:
                replica.purge(self.weather.grace_us)

    def _burst(self, burst: int, chance: Chance) -> None:
        for client, what, agent in self.populace.deeds(chance):
            part = f"{burst}: {client.name} {what}"
            if self.parts.plays(part):
                own = self.chance.own(part)
                client.start(agent(own), own.choice((0, own.randint(0, SECOND // 2))))  # half of them get in each other's way
        for fault in Fault:
            times = chance.randint(1, 3)
            if fault in self.weather.faults and self.trouble.brings(fault) and self.parts.plays(f"{burst}: {fault}"):
                self.trouble.plan(fault, 2 * SECOND, times)
        self.timeline.run(lambda: not any(client.busy for client in self.clients), self.timeline.now + _BURST)

    def _drain(self) -> None:
        for client in self.clients:
            client.crash()
        self.trouble.end()
        self._finish("drainer", _DRAINS)
        self._finish(WALKER, (0, 2 * _MINUTE, 2 * _MINUTE), back=2 * _DAY)
        self._measure()

    def _finish(self, name: str, moments: tuple[int, ...], *, back: int = 0) -> Taker:
        """Have everything taken and acked by a process whose clock is right."""
        taker = self.populace.taker(name, skew=0)
        taker.forgets = 0
        taker.client.start(taker.drain(moments, back))
        self._wait_for(taker.client)
        return taker

    def _wait_for(self, client: Client) -> None:
        self.timeline.run(lambda: not client.busy, self.timeline.now + _END)

    def _measure(self) -> None:
        """When a few more messages have come and gone in a row, look what the next one there costs, and a poll that finds nothing."""
        passed = self._send_last(2)
        taker = self._finish("measure", (0, 11 * _MINUTE))
        while not (rows := self._send_last_measured(taker)) <= passed:
            passed |= rows
        if self.weather.faults & _CLOCKS:
            taker.client.start(taker.drain((30 * _MINUTE,)))  # by the clock of a server that is ahead these are sent so late
            self._wait_for(taker.client)
        else:
            self.graves = sum(self.cluster.graves[row] for row in rows)
        while self.operations < _FEWEST and taker.client.up:  # a world in which little was done is looked at a little longer
            taker.client.start(taker.drain((_MINUTE,)))
            self._wait_for(taker.client)

    def _send_last_measured(self, taker: Taker) -> set[str]:
        """Send one more, and have it taken; the row in which it is. The graves that this walked over are counted."""
        self.cluster.graves.clear()
        rows = self._send_last(1)
        taker.client.start(taker.drain((SECOND, 11 * _MINUTE)))
        self._wait_for(taker.client)
        return rows

    def _send_last(self, count: int) -> set[str]:
        """Send a few more; the rows in which they are."""
        sender, before = self.populace.sender("last", skew=0), len(self.history.sent)
        sender.client.start(sender.at_once(count))
        self._wait_for(sender.client)
        return {sent.message.row for sent in self.history.sent[before:] if sent.message}

    def failures(self) -> list[str]:
        """Errors that no step of astyqueue should end with."""
        return [f"{client.name} failed: {error!r}" for client in self.clients for error in client.failures]

    def evidence(self) -> Evidence:
        """What is to be judged."""
        return Evidence(self.history, self.truth, self.graves)

    def judged(self, seed: int, violations: tuple[str, ...]) -> Judged:
        """All that came of it."""
        digest = self.network_chance.getrandbits(64)
        return Judged(
            seed, self.weather, violations, self.operations, self.history.steps, digest, tuple(self.parts.played), story=self.history
        )
