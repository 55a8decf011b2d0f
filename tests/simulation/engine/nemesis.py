"""Injects the faults of a profile at random moments, and ends them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.replica import Replica
from tests.simulation.engine.client import SimulatedProcess
from tests.simulation.engine.fault_profile import Fault

_HOUR: Final = 3_600 * SECOND
#: How long servers are away: mostly for moments.
_OUTAGES: Final = (SECOND // 5, 2 * SECOND, 30 * SECOND, 600 * SECOND, 5 * _HOUR)
#: A server that was away longer than hints are kept is repaired before it is used.
_REPAIRED_AFTER: Final = 3 * _HOUR


class Nemesis:
    """The fault injector: it partitions the network, stops machines and moves clocks."""

    def __init__(self, cluster: Cluster, clients: list[SimulatedProcess], rng: random.Random) -> None:
        """Nothing is wrong yet."""
        self._ended = False
        self._cluster = cluster
        self._clients = clients
        self._rng = rng
        self._actions: dict[Fault, Callable[[], None]] = {
            Fault.PARTITIONS: self._part,
            Fault.NODE_PAUSES: self._pause_node,
            Fault.NODE_CRASHES: self._crash_node,
            Fault.LOST_WRITES: self._crash_node,
            Fault.CLOCK_JUMPS: self._jump,
            Fault.CLIENT_PAUSES: self._pause_client,
            Fault.CLIENT_CRASHES: self._crash_client,
            Fault.PURGES: self._purge,
        }

    def injects(self, fault: Fault) -> bool:
        """Whether this is a fault that happens, not one that lasts."""
        return fault in self._actions

    def plan(self, fault: Fault, span: int, times: int) -> None:
        """Have a kind of fault happen `times` times within `span` microseconds, unless `end` was called by then."""
        for _ in range(times):
            self._cluster.event_loop.call_later(int(self._rng.random() * span), self._inject, fault)

    def _inject(self, fault: Fault) -> None:
        """Inject a fault, unless faults have ended: it would hit the processes that drain the rows."""
        if not self._ended:
            self._actions[fault]()

    def _node(self) -> Replica:
        return self._rng.choice(self._cluster.replicas)

    def _part(self) -> None:
        ends = frozenset(replica.number for replica in self._rng.sample(self._cluster.replicas, 2))
        self._cluster.network.partitioned.add(ends)
        self._cluster.event_loop.call_later(
            int(self._rng.expovariate(1 / (2 * SECOND))), self._cluster.network.partitioned.discard, ends
        )

    def _pause_node(self) -> None:
        node = self._node()
        if node.up:
            node.paused_until = self._cluster.event_loop.now + int(self._rng.expovariate(1 / SECOND))

    def _crash_node(self) -> None:
        node = self._node()
        if node.up and sum(replica.up for replica in self._cluster.replicas) > self._cluster.coordinator.quorum:
            node.crash(self._cluster.event_loop.now)
            outage = int(self._rng.choice(_OUTAGES) * self._rng.uniform(0.2, 1))
            self._cluster.event_loop.call_later(outage, self._start_node, node)

    def _start_node(self, node: Replica) -> None:
        node.up = True
        for replica in self._cluster.replicas:
            self._cluster.hand_over_hints(replica)
        if self._cluster.event_loop.now - node.down_since > _REPAIRED_AFTER:
            self._cluster.repair()

    def _jump(self) -> None:
        far = self._rng.choice((SECOND, 10 * SECOND, 300 * SECOND))
        jump = self._rng.randint(-far, far)
        machine = self._rng.choice(
            [*[replica.clock for replica in self._cluster.replicas], *[client.clock for client in self._clients]]
        )
        machine.skew += jump

    def _pause_client(self) -> None:
        client = self._rng.choice(self._clients)
        length = self._rng.choice((SECOND // 50, SECOND, 20 * SECOND, 100 * SECOND))
        client.paused_until = self._cluster.event_loop.now + int(self._rng.random() * length)

    def _crash_client(self) -> None:
        self._rng.choice(self._clients).crash()

    def _purge(self) -> None:
        node = self._node()
        if node.up:
            node.purge(self._cluster.profile.grace_us)

    def correct_clocks(self) -> None:
        """Set all clocks of servers right."""
        for replica in self._cluster.replicas:
            replica.clock.skew = 0

    def end(self) -> None:
        """Let everything be well from now on: all machines up and in touch, hints handed over, and a repair run."""
        self._ended = True
        self._cluster.network.end_faults()
        for replica in self._cluster.replicas:
            replica.up, replica.paused_until = True, 0
        for replica in self._cluster.replicas:
            self._cluster.hand_over_hints(replica)
        self._cluster.repair()
