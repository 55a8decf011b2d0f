"""Simulations of replicas, a network, clocks and processes, with faults drawn from a seed, and checks of what happened.

    from tests.simulation.engine.simulation import simulate

    result = simulate(4711)
    assert not result.violations, result

The same seed plays the same simulation again. A simulation runs the steps of the protocol that run everywhere; only
what is below the store's port, and time, is simulated. At most one thread of a process may simulate at a time, because
a simulation replaces the randomness of the whole process.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.checkers.checkers import CHECKERS, RESCANNER
from tests.simulation.checkers.reference_model import ReferenceModel
from tests.simulation.engine.client import Interceptor, SimulatedProcess, original
from tests.simulation.engine.event_loop import START, EventLoop
from tests.simulation.engine.fault_profile import GRACE, Fault, FaultProfile
from tests.simulation.engine.history import Checker, History, RunRecord
from tests.simulation.engine.nemesis import Nemesis
from tests.simulation.engine.rng import SeededRandom, repeatable
from tests.simulation.workload.consumer import Consumer
from tests.simulation.workload.idle_queues import IDLE, IdleFault, IdleQueues
from tests.simulation.workload.locks import GUARD, Locks
from tests.simulation.workload.workload import QUEUE, Workload

_MINUTE: Final = 60 * SECOND
#: A burst of work that has not ended by then goes on in the next.
_BURST: Final = 90 * SECOND
#: Bursts are played until this many steps of the protocol began; then the faults end.
_OPERATIONS: Final = 200
#: When the rows are drained at the end: at once, after each of the late scans, and when every lease and pause is over.
_DRAINS: Final = (0, SECOND, 12 * SECOND, 11 * _MINUTE, 11 * _MINUTE, 30 * _MINUTE, 11 * _MINUTE)
_DAY: Final = 24 * 3_600 * SECOND
#: Repairs are at most this and two absences apart, less than tombstones are kept. The longest absence is 8.4 hours.
_REPAIRS: Final = GRACE // 4
_END: Final = 4 * 3_600 * SECOND
#: How likely a simulation ends with idle queues.
_IDLE: Final = 0.25


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of one seed.

    `operations` counts the steps of the protocol that began before the faults ended, `requests` all requests to the
    store, and `idle_polls` the polls that found nothing to do, each of which was checked. `steps` counts what was done,
    by name; `parts` lists what the simulation was made of.
    """

    seed: int
    profile: FaultProfile
    violations: tuple[str, ...]
    operations: int
    requests: int
    idle_polls: int
    steps: Counter[str]
    digest: int
    parts: tuple[str, ...]
    lock: str
    history: History = field(repr=False, compare=False)

    def __str__(self) -> str:
        """What is wrong, line by line."""
        faults = ", ".join(sorted(self.profile.faults))
        lines = "\n".join(f"  {violation}" for violation in self.violations) or "  nothing is wrong"
        return f"seed {self.seed} ({self.profile.replicas} replicas; {faults}):\n{lines}"


def simulate(
    seed: int,
    *,
    interceptor: Interceptor = original,
    grace_us: int = GRACE,
    checkers: tuple[Checker, ...] = CHECKERS,
    only: frozenset[str] | None = None,
    lock: str | None = None,
    idle: bool = False,
) -> SimulationResult:
    """Play the simulation of a seed, always in the same way, and check it.

    `interceptor` sits between every process and the store. Tombstones are kept for `grace_us` microseconds. Of the
    parts of the simulation, `only` these are played. `lock` is the row lock of the consumers (guard, columns, manager),
    which otherwise is drawn: most simulations have none but the guard. With `idle` it ends with idle queues, as one in
    four does anyway.
    """
    collects = gc.isenabled()
    gc.disable()  # a simulation makes few cycles, and collecting them takes a sixth of the time
    try:
        with repeatable(seed) as rng:
            simulation = _Simulation(
                rng,
                FaultProfile.drawn(rng.derive("weather"), grace_us),
                interceptor,
                lock,
                parts=Components(only),
                idle=idle,
            )
            simulation.play()
            record = simulation.record()
            violations = [*simulation.failures(), *[found for check in checkers for found in check(record)]]
            return simulation.result(seed, tuple(violations))
    finally:
        if collects:
            gc.enable()


class Components:
    """The kinds of fault of a simulation, and in each burst what each process does and which faults happen.

    A part draws from a source of its own, so that it stays as it is when others are left out.
    """

    def __init__(self, only: AbstractSet[str] | None = None) -> None:
        """All there are, or `only` these."""
        self.only = only
        self.played: list[str] = []

    def includes(self, part: str) -> bool:
        """Whether this part is played; it is noted then."""
        if self.only is not None and part not in self.only:
            return False
        self.played.append(part)
        return True

    @property
    def last_burst(self) -> int:
        """The last burst in which anything is played."""
        numbers = [part.partition(":")[0] for part in self.only or ()]
        return max((int(number) for number in numbers if number.isdecimal()), default=-1)


class _Simulation:
    """The parts of one simulation."""

    def __init__(
        self,
        rng: SeededRandom,
        profile: FaultProfile,
        interceptor: Interceptor,
        lock: str | None,
        *,
        parts: Components,
        idle: bool,
    ) -> None:
        self.parts = parts
        self.profile = profile.without(
            frozenset(fault for fault in sorted(profile.faults) if not parts.includes(fault))
        )
        self.history = History()
        self.event_loop = EventLoop()
        self.model = ReferenceModel(profile.replicas // 2 + 1, (f"{QUEUE}:", IDLE))
        self.network_rng = rng.derive("network")
        self.cluster = Cluster(self.event_loop, self.profile, self.network_rng, record_accept=self.model.record_accept)
        self.rng = rng
        self.interceptor = interceptor
        self.idle = idle
        self.tombstones = 0
        self.operations = 0
        self.repaired = self.event_loop.now
        self.locks = self._drawn_locks(lock)
        self.workload = Workload(
            self.cluster,
            self.history,
            rng,
            interceptor=interceptor,
            current_header=self.model.current_header,
            locks=self.locks,
        )
        self.nemesis = Nemesis(self.cluster, self.workload.clients, rng.derive("trouble"))

    def _drawn_locks(self, kind: str | None) -> Locks:
        """The row locks of this simulation; only the guard if they are a part that is not played."""
        own, steps = self.rng.derive("locks"), self.history.steps
        locks = Locks(own, self.event_loop, steps, kind)
        if locks.kind == GUARD or self.parts.includes(f"row locks by {locks.kind}"):
            return locks
        return Locks(own, self.event_loop, steps, GUARD)

    @property
    def clients(self) -> list[SimulatedProcess]:
        """All processes that ever ran."""
        return self.workload.clients

    def play(self) -> None:
        """Play bursts of work with faults, and long pauses between them; then end all faults, and drain the rows."""
        burst = 0
        while self._goes_on(burst):
            rng = self.rng.derive(f"burst {burst}")
            self._burst(burst, rng)
            self.event_loop.advance_to(self.event_loop.now + self.profile.downtime(rng))
            self._repair_in_time()
            if Fault.PURGES in self.profile.faults:
                self._purge_tombstones(rng)
            burst += 1
        self.operations = self.history.operations
        self._drain()
        self._serve_idle_queues()

    def _goes_on(self, burst: int) -> bool:
        if self.parts.only is not None:
            return burst <= self.parts.last_burst
        return self.history.operations < _OPERATIONS

    def _repair_in_time(self) -> None:
        """Repair as operators have to: a replica gets a delete that it missed well before others drop the tombstone."""
        if self.event_loop.now - self.repaired > _REPAIRS:
            self.cluster.repair()
            if all(replica.up for replica in self.cluster.replicas):
                self.repaired = self.event_loop.now

    def _purge_tombstones(self, rng: SeededRandom) -> None:
        for replica in self.cluster.replicas:
            if replica.up and rng.random() < 0.7:
                replica.purge(self.profile.grace_us)

    def _burst(self, burst: int, rng: SeededRandom) -> None:
        for client, what, agent in self.workload.activities(rng):
            part = f"{burst}: {client.name} {what}"
            if self.parts.includes(part):
                own = self.rng.derive(part)
                # Half of the agents begin at once, so that they contend.
                client.start(agent(own), own.choice((0, own.randint(0, SECOND // 2))))
        for fault in Fault:
            times = rng.randint(1, 3)
            if (
                fault in self.profile.faults
                and self.nemesis.injects(fault)
                and self.parts.includes(f"{burst}: {fault}")
            ):
                self.nemesis.plan(fault, 2 * SECOND, times)
        self.event_loop.run(lambda: not any(client.busy for client in self.clients), self.event_loop.now + _BURST)

    def _drain(self) -> None:
        self.locks.record_unreleased(self.clients)
        for client in self.clients:
            client.crash()
        self.nemesis.end()
        self.locks.end_faults()
        self._finish("drainer", _DRAINS)
        self._finish(RESCANNER, (0, 2 * _MINUTE, 2 * _MINUTE), back=self.event_loop.now - START + _DAY)
        self._measure()

    def _finish(self, name: str, moments: tuple[int, ...], *, back: int = 0) -> Consumer:
        """Claim and ack everything, by a process whose clock is right."""
        consumer = self.workload.consumer(name, skew=0)
        consumer.forgets = 0
        consumer.client.start(consumer.drain(moments, back))
        self._wait_for(consumer.client)
        return consumer

    def _wait_for(self, client: SimulatedProcess) -> None:
        self.event_loop.run(lambda: not client.busy, self.event_loop.now + _END)

    def _measure(self) -> None:
        """Measure what one more message and an idle poll cost, in rows where a few of each priority have come and gone.

        A day before, all clocks are set right: until then a scan begins as far before what was seen as the clocks of
        servers differ.
        """
        self.nemesis.correct_clocks()
        self.event_loop.advance_to(self.event_loop.now + _DAY)
        levels = range(self.workload.levels)
        passed = {(row, level) for level in levels for row in self._send_last(2, level)}
        consumer = self._finish("measure", (0, 11 * _MINUTE))
        while not passed.issuperset(
            product(rows := self._send_last_measured(consumer, level := self.rng.choice(levels)), levels)
        ):
            passed.update(product(rows, [level]))
        self.tombstones = sum(self.cluster.tombstones[row] for row in rows)

    def _send_last_measured(self, consumer: Consumer, level: int) -> set[str]:
        """Send one more message, claim it, and count the tombstones passed over; returns the rows of the message."""
        self.cluster.tombstones.clear()
        rows = self._send_last(1, level)
        consumer.client.start(consumer.drain((SECOND, 11 * _MINUTE)))
        self._wait_for(consumer.client)
        return rows

    def _send_last(self, count: int, level: int) -> set[str]:
        """Send a few more messages of one priority; returns their rows."""
        producer, before = self.workload.producer("last", skew=0), len(self.history.sent)
        producer.client.start(producer.send_together(count, level))
        self._wait_for(producer.client)
        return {sent.message.row for sent in self.history.sent[before:] if sent.message}

    def _serve_idle_queues(self) -> None:
        """In some simulations: serve queues that become idle, with faults that only delay their messages."""
        rng = self.rng.derive("idle queues")
        if not (rng.random() < _IDLE or self.idle) or not self.parts.includes("idle queues"):
            return
        kinds = list(IdleFault)
        drawn = rng.sample(kinds, rng.randint(1, 3))
        faults = frozenset(fault for fault in drawn if self.parts.includes(f"idle queues: {fault}"))
        IdleQueues(
            self.cluster, self.history, rng, faults=faults, interceptor=self.interceptor, clients=self.clients
        ).play()

    def failures(self) -> list[str]:
        """Errors that no step of astyqueue should end with."""
        return [f"{client.name} failed: {error!r}" for client in self.clients for error in client.failures]

    def record(self) -> RunRecord:
        """What the checkers read."""
        self.locks.record_unreleased(self.clients)
        return RunRecord(self.history, self.model, self.tombstones, self.locks.record_left_columns(self.cluster))

    def result(self, seed: int, violations: tuple[str, ...]) -> SimulationResult:
        """The result of this simulation, with these violations."""
        digest = self.network_rng.getrandbits(64)
        return SimulationResult(
            seed,
            self.profile,
            violations,
            self.operations,
            sum(client.requests for client in self.clients),
            self.history.idle_polls,
            self.history.steps,
            digest,
            tuple(self.parts.played),
            lock=self.locks.kind,
            history=self.history,
        )
