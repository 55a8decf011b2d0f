"""The simulated cluster keeps what every store promises."""

from __future__ import annotations

import pytest

from astyqueue.testing.conformance import StoreConformance
from tests.simulation.cassandra.store import SimulatedClock, SimulatedStore


class TestSimulated(StoreConformance):
    @pytest.fixture
    def clock(self) -> SimulatedClock:
        return SimulatedClock()

    @pytest.fixture
    def store(self, clock: SimulatedClock) -> SimulatedStore:
        return SimulatedStore(clock)
