"""The fault profile of one simulation: a few kinds of fault, drawn anew for each seed, and their strength."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from astyqueue.units import SECOND

_MINUTE: Final = 60 * SECOND
_HOUR: Final = 3_600 * SECOND
#: Kinds of fault in one simulation: at least, and at most.
_FEWEST: Final = 3
_MOST: Final = 8
#: How long tombstones are kept by default.
GRACE: Final = 24 * _HOUR


class Fault(StrEnum):
    """A kind of fault."""

    DROPS = "messages dropped"
    DUPLICATES = "messages duplicated"
    DELAYS = "messages delayed"
    PARTITIONS = "network partitioned"
    NODE_PAUSES = "servers paused"
    NODE_CRASHES = "servers crashed"
    LOST_WRITES = "unsynced writes lost"
    NODE_CLOCKS = "server clocks off"
    CLIENT_CLOCKS = "client clocks off"
    CLOCK_JUMPS = "clocks jump"
    CLIENT_PAUSES = "clients paused"
    CLIENT_CRASHES = "clients crashed"
    DOWNTIMES = "no process for long"
    PAGES = "short pages"
    PURGES = "tombstones purged"
    TOMBSTONES = "reads fail on tombstones"


#: How far clocks are off, in microseconds: mostly little.
_SKEWS: Final = (20_000, SECOND, 5 * SECOND, 2 * _MINUTE)
_CLIENT_SKEWS: Final = (SECOND, 5 * SECOND, 2 * _MINUTE, 20 * _MINUTE)
_DOWNTIMES: Final = (30 * SECOND, 3 * _MINUTE, 15 * _MINUTE, _HOUR, 7 * _HOUR)


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """The faults of one simulation, and how strong they are."""

    faults: frozenset[Fault]
    replicas: int
    drop: float
    duplicate: float
    late: float
    sync_us: int
    page: int
    tombstones: int
    restamps: bool
    grace_us: int = GRACE

    @classmethod
    def drawn(cls, rng: random.Random, grace_us: int = GRACE) -> FaultProfile:
        """A random subset of all faults."""
        faults = frozenset(rng.sample(list(Fault), rng.randint(_FEWEST, _MOST)))
        return cls(
            faults,
            replicas=rng.choice((3, 3, 3, 4, 5)),
            drop=rng.choice((0.01, 0.05, 0.15)) if Fault.DROPS in faults else 0,
            duplicate=0.1 if Fault.DUPLICATES in faults else 0,
            late=rng.choice((0.01, 0.05)) if Fault.DELAYS in faults else 0,
            sync_us=rng.choice((2_000, 10_000, 50_000)) if Fault.LOST_WRITES in faults else 0,
            page=rng.choice((1, 2, 5)) if Fault.PAGES in faults else 2_000,
            tombstones=rng.choice((8, 30)) if Fault.TOMBSTONES in faults else 100_000,
            restamps=rng.random() < 0.5,
            grace_us=grace_us,
        )

    @classmethod
    def fault_free(cls, replicas: int) -> FaultProfile:
        """No faults."""
        return cls(
            frozenset(), replicas, drop=0, duplicate=0, late=0, sync_us=0, page=2_000, tombstones=100_000, restamps=True
        )

    def without(self, faults: frozenset[Fault]) -> FaultProfile:
        """The same with these faults left out."""
        fault_free, kept = FaultProfile.fault_free(self.replicas), self.faults - faults
        return replace(
            self,
            faults=kept,
            drop=self.drop if Fault.DROPS in kept else fault_free.drop,
            duplicate=self.duplicate if Fault.DUPLICATES in kept else fault_free.duplicate,
            late=self.late if Fault.DELAYS in kept else fault_free.late,
            sync_us=self.sync_us if Fault.LOST_WRITES in kept else fault_free.sync_us,
            page=self.page if Fault.PAGES in kept else fault_free.page,
            tombstones=self.tombstones if Fault.TOMBSTONES in kept else fault_free.tombstones,
        )

    def node_skew(self, rng: random.Random) -> int:
        """How far a server's clock is off."""
        return _skew(rng, _SKEWS) if Fault.NODE_CLOCKS in self.faults else rng.randint(-500, 500)

    def client_skew(self, rng: random.Random) -> int:
        """How far a client's clock is off."""
        return _skew(rng, _CLIENT_SKEWS) if Fault.CLIENT_CLOCKS in self.faults else rng.randint(-500, 500)

    def downtime(self, rng: random.Random) -> int:
        """How long nothing happens between two bursts of work."""
        if Fault.DOWNTIMES not in self.faults:
            return rng.randint(0, 40 * SECOND)
        return int(rng.choice(_DOWNTIMES) * rng.uniform(0.5, 1.2))


def _skew(rng: random.Random, skews: tuple[int, ...]) -> int:
    widest = rng.choice(skews)
    return rng.randint(-widest, widest)
