"""What is done to a ring and to those who use it: faults as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from astyqueue.units import SECOND


class Kind(StrEnum):
    """What befalls somebody; the text is how a report calls it."""

    WORKER_KILLED = "worker killed"
    WORKER_FROZEN = "worker frozen for longer than a lease"
    PRODUCER_KILLED = "producer killed"
    NODE_FROZEN = "node frozen"
    NODE_KILLED = "node killed, started again"
    NODE_WIPED = "node wiped, rebuilt and repaired"
    NODE_APART = "node cut off from the other nodes"
    NODE_DEAF = "node that hears no other node, and is heard"
    NODE_UNREACHED = "clients cut off from a node"
    CONNECTIONS_CUT = "connections of all clients cut"


#: What happens to processes, who hold what they hold at that moment; all else happens to the store.
OF_WORKERS: Final = frozenset({Kind.WORKER_KILLED, Kind.WORKER_FROZEN})


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to whom (a node or a process, counted from 1), how long, and how long nothing else does then (microseconds)."""

    kind: Kind
    victim: int
    lasts: int
    rest: int

    def __str__(self) -> str:
        return self.kind if self.kind is Kind.CONNECTIONS_CUT else f"{self.kind} ({self.victim})"


#: In this order: a disk is lost while no other copy is behind, for that would be two faults at once; what leaves copies
#: behind comes after it, and at the end what does not.
_ORDER: Final = (
    (Kind.WORKER_KILLED, 1),
    (Kind.NODE_WIPED, 3),
    (Kind.NODE_KILLED, 2),
    (Kind.NODE_FROZEN, 3),
    (Kind.NODE_APART, 1),
    (Kind.NODE_DEAF, 2),
    (Kind.WORKER_FROZEN, 2),
    (Kind.PRODUCER_KILLED, 3),
    (Kind.NODE_UNREACHED, 3),
    (Kind.CONNECTIONS_CUT, 1),
    (Kind.WORKER_KILLED, 3),
)
#: Faults that are over as they begin.
_SUDDEN: Final = frozenset({Kind.WORKER_KILLED, Kind.PRODUCER_KILLED, Kind.CONNECTIONS_CUT})


def schedule(lasts: float, rest: float) -> tuple[Fault, ...]:
    """Every kind of fault, each lasting so many seconds where it lasts, with so many seconds after it."""
    return tuple(
        Fault(kind, victim, 0 if kind in _SUDDEN else int(lasts * SECOND), int(rest * SECOND))
        for kind, victim in _ORDER
    )
