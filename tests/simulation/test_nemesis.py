"""Faults happen while a simulation runs, and none after their end, when processes without faults drain the rows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.replica import Decision, Replica
from tests.simulation.cassandra.storage import DELETED, Cell
from tests.simulation.engine.client import SimulatedProcess
from tests.simulation.engine.event_loop import EventLoop, SkewedClock
from tests.simulation.engine.fault_profile import Fault, FaultProfile
from tests.simulation.engine.nemesis import Nemesis
from tests.simulation.engine.rng import SeededRandom

SPAN = 2 * SECOND
ROW = "mail:0:0"


class State(NamedTuple):
    """What faults change."""

    up: list[bool]
    paused: list[int]
    off: list[int]
    stopped: list[int]
    tombstones: list[int]
    partitioned: set[frozenset[int]]


class FaultBench:
    """Three servers with an old tombstone on each, a process, and the faults that may hit them."""

    def __init__(self) -> None:
        self.event_loop = EventLoop()
        self.cluster = Cluster(self.event_loop, FaultProfile.fault_free(3), SeededRandom(0), record_accept=_unseen)
        for replica in self.cluster.replicas:
            replica.write(ROW, {b"gone": Cell(1, DELETED, 1, b"")})
        self.client = SimulatedProcess("drainer", SkewedClock(self.event_loop, 0), self.cluster)
        self.nemesis = Nemesis(self.cluster, [self.client], SeededRandom(0))

    def state(self) -> State:
        """The present state."""
        replicas = self.cluster.replicas
        machines: list[Replica | SimulatedProcess] = [*replicas, self.client]
        return State(
            [machine.up for machine in machines],
            [machine.paused_until for machine in machines],
            [machine.clock.skew for machine in machines],
            [replica.life for replica in replicas],
            [len(replica.row(ROW).cells) for replica in replicas],
            set(self.cluster.network.partitioned),
        )

    def is_hit(self) -> bool:
        """Whether any fault happens within the time for which faults are planned."""
        before, end = self.state(), self.event_loop.now + SPAN
        while self.event_loop.now < end:
            self.event_loop.advance_to(self.event_loop.now + SECOND // 100)
            if self.state() != before:
                return True
        return False


def _unseen(row: str, proposal: Decision, replica: Replica) -> None:
    """Keep no record of what is accepted."""


FAULTS = [fault for fault in Fault if FaultBench().nemesis.injects(fault)]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_planned_happens_while_the_simulation_is_at_work(fault: Fault) -> None:
    bench = FaultBench()
    bench.nemesis.plan(fault, SPAN, 1)
    assert bench.is_hit()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_planned_for_after_the_end_does_not_happen(fault: Fault) -> None:
    """If it stopped the process that drains the rows, every message that is not due yet would look passed over."""
    bench = FaultBench()
    bench.nemesis.plan(fault, SPAN, 1)
    bench.nemesis.end()
    assert not bench.is_hit()
