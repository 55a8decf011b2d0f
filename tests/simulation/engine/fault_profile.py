"""What befalls one simulated world: a random few of all the kinds of fault there are, drawn anew for each seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from astyqueue.units import SECOND

_MINUTE: Final = 60 * SECOND
_HOUR: Final = 3_600 * SECOND
#: Kinds of fault in one world: at least, and at most.
_FEWEST: Final = 3
_MOST: Final = 8
#: Graves are kept so long, unless a world is told otherwise.
GRACE: Final = 24 * _HOUR


class Fault(StrEnum):
    """A kind of fault."""

    DROPS = "messages dropped"
    DUPLICATES = "messages doubled"
    DELAYS = "messages late"
    PARTITIONS = "network parted"
    NODE_PAUSES = "servers paused"
    NODE_CRASHES = "servers crashed"
    LOST_WRITES = "unsynced writes lost"
    NODE_CLOCKS = "server clocks off"
    CLIENT_CLOCKS = "client clocks off"
    CLOCK_JUMPS = "clocks jump"
    CLIENT_PAUSES = "clients paused"
    CLIENT_CRASHES = "clients crashed"
    ABSENCES = "nobody there for long"
    PAGES = "short pages"
    PURGES = "graves cleared"
    TOMBSTONES = "reads fail on graves"


#: How far clocks are off, in microseconds: mostly little.
_SKEWS: Final = (20_000, SECOND, 5 * SECOND, 2 * _MINUTE)
_CLIENT_SKEWS: Final = (SECOND, 5 * SECOND, 2 * _MINUTE, 20 * _MINUTE)
_ABSENCES: Final = (30 * SECOND, 3 * _MINUTE, 15 * _MINUTE, _HOUR, 7 * _HOUR)


@dataclass(frozen=True, slots=True)
class Weather:
    """The faults of one world, and how strong they are."""

    faults: frozenset[Fault]
    replicas: int
    drop: float
    duplicate: float
    late: float
    sync_us: int
    page: int
    graves: int
    stamped_anew: bool
    grace_us: int = GRACE

    @classmethod
    def drawn(cls, chance: random.Random, grace_us: int = GRACE) -> Weather:
        """A random subset of all faults."""
        faults = frozenset(chance.sample(list(Fault), chance.randint(_FEWEST, _MOST)))
        return cls(
            faults,
            replicas=chance.choice((3, 3, 3, 4, 5)),
            drop=chance.choice((0.01, 0.05, 0.15)) if Fault.DROPS in faults else 0,
            duplicate=0.1 if Fault.DUPLICATES in faults else 0,
            late=chance.choice((0.01, 0.05)) if Fault.DELAYS in faults else 0,
            sync_us=chance.choice((2_000, 10_000, 50_000)) if Fault.LOST_WRITES in faults else 0,
            page=chance.choice((1, 2, 5)) if Fault.PAGES in faults else 2_000,
            graves=chance.choice((8, 30)) if Fault.TOMBSTONES in faults else 100_000,
            stamped_anew=chance.random() < 0.5,
            grace_us=grace_us,
        )

    @classmethod
    def fair(cls, replicas: int) -> Weather:
        """No faults."""
        return cls(
            frozenset(), replicas, drop=0, duplicate=0, late=0, sync_us=0, page=2_000, graves=100_000, stamped_anew=True
        )

    def without(self, faults: frozenset[Fault]) -> Weather:
        """The same with these faults left out."""
        fair, kept = Weather.fair(self.replicas), self.faults - faults
        return replace(
            self,
            faults=kept,
            drop=self.drop if Fault.DROPS in kept else fair.drop,
            duplicate=self.duplicate if Fault.DUPLICATES in kept else fair.duplicate,
            late=self.late if Fault.DELAYS in kept else fair.late,
            sync_us=self.sync_us if Fault.LOST_WRITES in kept else fair.sync_us,
            page=self.page if Fault.PAGES in kept else fair.page,
            graves=self.graves if Fault.TOMBSTONES in kept else fair.graves,
        )

    def node_skew(self, chance: random.Random) -> int:
        """How far a server's clock is off."""
        return _skew(chance, _SKEWS) if Fault.NODE_CLOCKS in self.faults else chance.randint(-500, 500)

    def client_skew(self, chance: random.Random) -> int:
        """How far a client's clock is off."""
        return _skew(chance, _CLIENT_SKEWS) if Fault.CLIENT_CLOCKS in self.faults else chance.randint(-500, 500)

    def absence(self, chance: random.Random) -> int:
        """How long nothing happens between two bursts of work."""
        if Fault.ABSENCES not in self.faults:
            return chance.randint(0, 40 * SECOND)
        return int(chance.choice(_ABSENCES) * chance.uniform(0.5, 1.2))


def _skew(chance: random.Random, skews: tuple[int, ...]) -> int:
    widest = chance.choice(skews)
    return chance.randint(-widest, widest)
