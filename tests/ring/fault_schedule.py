"""The faults of a run as data: what happens to the nodes of a ring and to the processes that use it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from astyqueue.units import SECOND


class Kind(StrEnum):
    """What happens; the text is its name in a report."""

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


#: Faults of a worker process; they explain duplicates only of the messages that this worker had.
OF_WORKERS: Final = frozenset({Kind.WORKER_KILLED, Kind.WORKER_FROZEN})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a run.

    `victim` is the number of a node or process, from 1. `lasts` and `rest`, after it, are in microseconds; nothing else
    happens in either.
    """

    kind: Kind
    victim: int
    lasts: int
    rest: int

    def __str__(self) -> str:
        return self.kind if self.kind is Kind.CONNECTIONS_CUT else f"{self.kind} ({self.victim})"


#: The order matters: a disk is lost while no other copy is behind, since both together would be two faults at once.
#: Faults that leave copies behind come after it, and those that do not come last.
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
#: Faults that have no duration.
_SUDDEN: Final = frozenset({Kind.WORKER_KILLED, Kind.PRODUCER_KILLED, Kind.CONNECTIONS_CUT})


def schedule(lasts: float, rest: float) -> tuple[Fault, ...]:
    """Every kind of fault; each has a duration of `lasts` seconds, if it has one, and `rest` seconds after it."""
    return tuple(
        Fault(kind, victim, 0 if kind in _SUDDEN else int(lasts * SECOND), int(rest * SECOND))
        for kind, victim in _ORDER
    )
