"""Brings about the faults of a world's weather, at random moments, and ends them."""

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


class Trouble:
    """The hand that parts networks, stops machines and moves clocks."""

    def __init__(self, cluster: Cluster, clients: list[SimulatedProcess], chance: random.Random) -> None:
        """Nothing is wrong yet."""
        self._ended = False
        self._cluster = cluster
        self._clients = clients
        self._chance = chance
        self._doing: dict[Fault, Callable[[], None]] = {
            Fault.PARTITIONS: self._part,
            Fault.NODE_PAUSES: self._pause_node,
            Fault.NODE_CRASHES: self._crash_node,
            Fault.LOST_WRITES: self._crash_node,
            Fault.CLOCK_JUMPS: self._jump,
            Fault.CLIENT_PAUSES: self._pause_client,
            Fault.CLIENT_CRASHES: self._crash_client,
            Fault.PURGES: self._purge,
        }

    def brings(self, fault: Fault) -> bool:
        """Whether this is a fault that happens, not one that lasts."""
        return fault in self._doing

    def plan(self, fault: Fault, span: int, times: int) -> None:
        """Have a kind of fault happen so often within so many microseconds, unless all is well again by then."""
        for _ in range(times):
            self._cluster.timeline.after(int(self._chance.random() * span), self._bring, fault)

    def _bring(self, fault: Fault) -> None:
        """What was planned may be due after the end, and would befall those who are to take what is left in peace."""
        if not self._ended:
            self._doing[fault]()

    def _node(self) -> Replica:
        return self._chance.choice(self._cluster.replicas)

    def _part(self) -> None:
        ends = frozenset(replica.number for replica in self._chance.sample(self._cluster.replicas, 2))
        self._cluster.network.parted.add(ends)
        self._cluster.timeline.after(
            int(self._chance.expovariate(1 / (2 * SECOND))), self._cluster.network.parted.discard, ends
        )

    def _pause_node(self) -> None:
        node = self._node()
        if node.up:
            node.paused_until = self._cluster.timeline.now + int(self._chance.expovariate(1 / SECOND))

    def _crash_node(self) -> None:
        node = self._node()
        if node.up and sum(replica.up for replica in self._cluster.replicas) > self._cluster.coordinator.quorum:
            node.crash(self._cluster.timeline.now)
            outage = int(self._chance.choice(_OUTAGES) * self._chance.uniform(0.2, 1))
            self._cluster.timeline.after(outage, self._start_node, node)

    def _start_node(self, node: Replica) -> None:
        node.up = True
        for replica in self._cluster.replicas:
            self._cluster.hand_over_hints(replica)
        if self._cluster.timeline.now - node.down_since > _REPAIRED_AFTER:
            self._cluster.repair()

    def _jump(self) -> None:
        far = self._chance.choice((SECOND, 10 * SECOND, 300 * SECOND))
        jump = self._chance.randint(-far, far)
        machine = self._chance.choice(
            [*[replica.clock for replica in self._cluster.replicas], *[client.clock for client in self._clients]]
        )
        machine.skew += jump

    def _pause_client(self) -> None:
        client = self._chance.choice(self._clients)
        length = self._chance.choice((SECOND // 50, SECOND, 20 * SECOND, 100 * SECOND))
        client.paused_until = self._cluster.timeline.now + int(self._chance.random() * length)

    def _crash_client(self) -> None:
        self._chance.choice(self._clients).crash()

    def _purge(self) -> None:
        node = self._node()
        if node.up:
            node.purge(self._cluster.weather.grace_us)

    def set_clocks(self) -> None:
        """Set all clocks of servers right."""
        for replica in self._cluster.replicas:
            replica.clock.skew = 0

    def end(self) -> None:
        """Let everything be well from now on: all machines up and in touch, hints handed over, and a repair run."""
        self._ended = True
        self._cluster.network.calm = True
        for replica in self._cluster.replicas:
            replica.up, replica.paused_until = True, 0
        for replica in self._cluster.replicas:
            self._cluster.hand_over_hints(replica)
        self._cluster.repair()
