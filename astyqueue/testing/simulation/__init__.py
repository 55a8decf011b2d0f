"""Whole worlds from one number: replicas, a network, clocks and processes that fail in every way, and a judgement of what came of it.

    from astyqueue.testing.simulation import simulate

    judged = simulate(4711)
    assert not judged.violations, judged

The same seed plays the same world again. Inside run the steps that run everywhere; only what is below the store's port, and
time, is simulated. Not for several threads of one process at once: the randomness of the whole process is in its hand.
"""

from __future__ import annotations

from astyqueue.testing.simulation.client import Meddling, honest
from astyqueue.testing.simulation.evidence import Evidence, Oracle
from astyqueue.testing.simulation.oracles import ORACLES
from astyqueue.testing.simulation.weather import Fault, Weather
from astyqueue.testing.simulation.world import Judged, simulate

__all__ = ["ORACLES", "Evidence", "Fault", "Judged", "Meddling", "Oracle", "Weather", "honest", "simulate"]
