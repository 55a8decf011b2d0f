"""Simulated worlds: replicas, a network, clocks and processes with faults of every kind, drawn from a seed, and judged.

    from tests.simulation.engine.simulation import simulate

    judged = simulate(4711)
    assert not judged.violations, judged

The same seed plays the same world again. A world runs the steps of the protocol that run everywhere; only what is below
the store's port, and time, is simulated. At most one thread of a process may simulate at a time, because a simulation
replaces the randomness of the whole process.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.checkers.checkers import ORACLES, WALKER
from tests.simulation.checkers.reference_model import Truth
from tests.simulation.engine.client import Meddling, SimulatedProcess, honest
from tests.simulation.engine.components import Parts
from tests.simulation.engine.event_loop import START, Timeline
from tests.simulation.engine.fault_profile import GRACE, Fault, Weather
from tests.simulation.engine.history import Evidence, History, Oracle
from tests.simulation.engine.nemesis import Trouble
from tests.simulation.engine.rng import Chance, repeatable
from tests.simulation.workload.consumer import Taker
from tests.simulation.workload.locks import GUARD, Locks
from tests.simulation.workload.workload import QUEUE, Populace

_MINUTE: Final = 60 * SECOND
#: A burst of work that has not ended by then goes on in the next.
_BURST: Final = 90 * SECOND
#: Bursts go on until so many steps of the protocol began, before the faults end.
_OPERATIONS: Final = 200
#: When the rows are drained at the end: at once, after each of the late scans, and when every lease and pause is over.
_DRAINS: Final = (0, SECOND, 12 * SECOND, 11 * _MINUTE, 11 * _MINUTE, 30 * _MINUTE, 11 * _MINUTE)
_DAY: Final = 24 * 3_600 * SECOND
#: Repairs are at most this and two absences apart, less than tombstones are kept. The longest absence is 8.4 hours.
_REPAIRS: Final = GRACE // 4
_END: Final = 4 * 3_600 * SECOND


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of one seed.

    `operations` counts the steps of the protocol that began before the faults ended, `requests` all requests to the
    store, and `idle_polls` the polls that found nothing to do, each of which was judged. `steps` counts what was done,
    by name; `parts` lists what the world was made of.
    """

    seed: int
    weather: Weather
    violations: tuple[str, ...]
    operations: int
    requests: int
    idle_polls: int
    steps: Counter[str]
    digest: int
    parts: tuple[str, ...]
    lock: str
    story: History = field(repr=False, compare=False)

    def __str__(self) -> str:
        """What is wrong, line by line."""
        faults = ", ".join(sorted(self.weather.faults))
        told = "\n".join(f"  {violation}" for violation in self.violations) or "  nothing is wrong"
        return f"seed {self.seed} ({self.weather.replicas} replicas; {faults}):\n{told}"


def simulate(
    seed: int,
    *,
    meddling: Meddling = honest,
    grace_us: int = GRACE,
    judges: tuple[Oracle, ...] = ORACLES,
    only: frozenset[str] | None = None,
    lock: str | None = None,
) -> Judged:
    """Play the world of a seed, always in the same way, and judge it.

    `meddling` stands between every process and the store. Tombstones are kept for `grace_us` microseconds. Of the parts
    of the world, `only` these are played. `lock` is the row lock of the consumers (guard, columns, manager), which
    otherwise is drawn: most worlds have none but the guard.
    """
    collects = gc.isenabled()
    gc.disable()  # a world makes few cycles, and collecting them takes a sixth of the time
    try:
        with repeatable(seed) as chance:
            world = _World(chance, Weather.drawn(chance.own("weather"), grace_us), meddling, lock, parts=Parts(only))
            world.play()
            evidence = world.evidence()
            violations = [*world.failures(), *[found for judge in judges for found in judge(evidence)]]
            return world.judged(seed, tuple(violations))
    finally:
        if collects:
            gc.enable()


class _World:
    """The parts of one world."""

    def __init__(self, chance: Chance, weather: Weather, meddling: Meddling, lock: str | None, *, parts: Parts) -> None:
        self.parts = parts
        self.weather = weather.without(frozenset(fault for fault in sorted(weather.faults) if not parts.plays(fault)))
        self.history = History()
        self.timeline = Timeline()
        self.truth = Truth(weather.replicas // 2 + 1, f"{QUEUE}:")
        self.network_chance = chance.own("network")
        self.cluster = Cluster(self.timeline, self.weather, self.network_chance, witness=self.truth.witness)
        self.chance = chance
        self.graves = 0
        self.operations = 0
        self.repaired = self.timeline.now
        self.locks = self._drawn_locks(lock)
        self.populace = Populace(
            self.cluster, self.history, chance, meddling=meddling, standing=self.truth.standing, locks=self.locks
        )
        self.trouble = Trouble(self.cluster, self.populace.clients, chance.own("trouble"))

    def _drawn_locks(self, kind: str | None) -> Locks:
        """The row locks of this world; only the guard if they are a part that is not played."""
        own, steps = self.chance.own("locks"), self.history.steps
        locks = Locks(own, self.timeline, steps, kind)
        if locks.kind == GUARD or self.parts.plays(f"row locks by {locks.kind}"):
            return locks
        return Locks(own, self.timeline, steps, GUARD)

    @property
    def clients(self) -> list[SimulatedProcess]:
        """All processes that ever ran."""
        return self.populace.clients

    def play(self) -> None:
        """Play bursts of work with faults, and long pauses between them; then end all faults, and drain the rows."""
        burst = 0
        while self._goes_on(burst):
            chance = self.chance.own(f"burst {burst}")
            self._burst(burst, chance)
            self.timeline.pass_over(self.timeline.now + self.weather.absence(chance))
            self._repair_in_time()
            if Fault.PURGES in self.weather.faults:
                self._clear_graves(chance)
            burst += 1
        self.operations = self.history.operations
        self._drain()

    def _goes_on(self, burst: int) -> bool:
        if self.parts.only is not None:
            return burst <= self.parts.last_burst
        return self.history.operations < _OPERATIONS

    def _repair_in_time(self) -> None:
        """Repair as operators have to: a replica gets a delete that it missed well before others drop the tombstone."""
        if self.timeline.now - self.repaired > _REPAIRS:
            self.cluster.repair()
            if all(replica.up for replica in self.cluster.replicas):
                self.repaired = self.timeline.now

    def _clear_graves(self, chance: Chance) -> None:
        for replica in self.cluster.replicas:
            if replica.up and chance.random() < 0.7:
                replica.purge(self.weather.grace_us)

    def _burst(self, burst: int, chance: Chance) -> None:
        for client, what, agent in self.populace.deeds(chance):
            part = f"{burst}: {client.name} {what}"
            if self.parts.plays(part):
                own = self.chance.own(part)
                # Half of the agents begin at once, so that they contend.
                client.start(agent(own), own.choice((0, own.randint(0, SECOND // 2))))
        for fault in Fault:
            times = chance.randint(1, 3)
            if fault in self.weather.faults and self.trouble.brings(fault) and self.parts.plays(f"{burst}: {fault}"):
                self.trouble.plan(fault, 2 * SECOND, times)
        self.timeline.run(lambda: not any(client.busy for client in self.clients), self.timeline.now + _BURST)

    def _drain(self) -> None:
        self.locks.look_for_kept(self.clients)
        for client in self.clients:
            client.crash()
        self.trouble.end()
        self.locks.make_peace()
        self._finish("drainer", _DRAINS)
        self._finish(WALKER, (0, 2 * _MINUTE, 2 * _MINUTE), back=self.timeline.now - START + _DAY)
        self._measure()

    def _finish(self, name: str, moments: tuple[int, ...], *, back: int = 0) -> Taker:
        """Claim and ack everything, by a process whose clock is right."""
        taker = self.populace.taker(name, skew=0)
        taker.forgets = 0
        taker.client.start(taker.drain(moments, back))
        self._wait_for(taker.client)
        return taker

    def _wait_for(self, client: SimulatedProcess) -> None:
        self.timeline.run(lambda: not client.busy, self.timeline.now + _END)

    def _measure(self) -> None:
        """Measure what one more message and an idle poll cost, in rows where a few of each priority have come and gone.

        A day before, all clocks are set right: until then a scan begins as far before what was seen as the clocks of
        servers differ.
        """
        self.trouble.set_clocks()
        self.timeline.pass_over(self.timeline.now + _DAY)
        levels = range(self.populace.levels)
        passed = {(row, level) for level in levels for row in self._send_last(2, level)}
        taker = self._finish("measure", (0, 11 * _MINUTE))
        while not passed.issuperset(
            product(rows := self._send_last_measured(taker, level := self.chance.choice(levels)), levels)
        ):
            passed.update(product(rows, [level]))
        self.graves = sum(self.cluster.graves[row] for row in rows)

    def _send_last_measured(self, taker: Taker, level: int) -> set[str]:
        """Send one more message, claim it, and count the tombstones passed over; returns the rows of the message."""
        self.cluster.graves.clear()
        rows = self._send_last(1, level)
        taker.client.start(taker.drain((SECOND, 11 * _MINUTE)))
        self._wait_for(taker.client)
        return rows

    def _send_last(self, count: int, level: int) -> set[str]:
        """Send a few more messages of one priority; returns their rows."""
        sender, before = self.populace.sender("last", skew=0), len(self.history.sent)
        sender.client.start(sender.at_once(count, level))
        self._wait_for(sender.client)
        return {sent.message.row for sent in self.history.sent[before:] if sent.message}

    def failures(self) -> list[str]:
        """Errors that no step of astyqueue should end with."""
        return [f"{client.name} failed: {error!r}" for client in self.clients for error in client.failures]

    def evidence(self) -> Evidence:
        """What the oracles judge."""
        self.locks.look_for_kept(self.clients)
        return Evidence(self.history, self.truth, self.graves, self.locks.look_at_rows(self.cluster))

    def judged(self, seed: int, violations: tuple[str, ...]) -> Judged:
        """The judgement of this world, with these violations."""
        digest = self.network_chance.getrandbits(64)
        return Judged(
            seed,
            self.weather,
            violations,
            self.operations,
            sum(client.requests for client in self.clients),
            self.history.idle_polls,
            self.history.steps,
            digest,
            tuple(self.parts.played),
            lock=self.locks.kind,
            story=self.history,
        )
