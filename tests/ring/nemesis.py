"""Makes the faults happen, one after the other, and notes when each began and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.ring.fault_schedule import OF_WORKERS, Fault, Kind
from tests.ring.journal import CLOCK
from tests.ring.processes import People
from tests.ring.proxies import CLIENTS, Doors, Way

#: A frozen worker stands still for at least this much longer than its lease.
_BEYOND: Final = 3 * SECOND


@dataclass(frozen=True, slots=True)
class Befallen:
    """A fault that happened, with moments of the monotonic clock.

    It lasted from `began` to `ended`, and no other fault happened until `until`. `victim` is the journal of the process
    that it happened to, if it was one. `note` says what an operator did about it.
    """

    fault: Fault
    began: int
    ended: int
    until: int
    victim: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """What faults can happen to: the ring, its proxies and the processes that use it."""

    ring: LocalCassandra
    doors: Doors
    people: People
    lease: int
    keyspace: str

    @property
    def everybody(self) -> list[Way]:
        """The ways from clients to all nodes."""
        return [Way(CLIENTS, node) for node in self.ring.contact_points]

    def between(self, node: int, *, one_way: bool) -> list[Way]:
        """The ways from all other nodes to this one, and back unless `one_way`."""
        known = self.ring.contact_points[node - 1]
        others = [other for other in self.ring.contact_points if other != known]
        back = [] if one_way else [Way(known, other) for other in others]
        return [*(Way(other, known) for other in others), *back]


#: Makes a fault happen to a victim, and ends it when the block is left.
_Act = Callable[[Stage, int], AbstractContextManager[None]]


@contextmanager
def _worker_killed(stage: Stage, victim: int) -> Iterator[None]:
    stage.people.workers[victim - 1].freeze()
    stage.people.workers[victim - 1].kill()
    yield
    stage.people.replace_worker(victim - 1)


@contextmanager
def _producer_killed(stage: Stage, victim: int) -> Iterator[None]:
    stage.people.producers[victim - 1].kill()
    yield
    stage.people.replace_producer(victim - 1)


@contextmanager
def _worker_frozen(stage: Stage, victim: int) -> Iterator[None]:
    worker = stage.people.workers[victim - 1]
    worker.freeze()
    yield
    worker.thaw()


@contextmanager
def _node_frozen(stage: Stage, victim: int) -> Iterator[None]:
    stage.ring.stop(victim)
    yield
    stage.ring.cont(victim)


@contextmanager
def _node_killed(stage: Stage, victim: int) -> Iterator[None]:
    stage.ring.kill(victim)
    yield
    stage.ring.restart(victim)


@contextmanager
def _node_wiped(stage: Stage, victim: int) -> Iterator[None]:
    stage.ring.wipe(victim)
    yield
    stage.ring.restart(victim)


def _held(ways: Callable[[Stage, int], list[Way]]) -> _Act:
    """A fault during which nothing gets through on these ways."""

    @contextmanager
    def held(stage: Stage, victim: int) -> Iterator[None]:
        stage.doors.hold(ways(stage, victim))
        yield
        stage.doors.pass_on(ways(stage, victim))

    return held


@contextmanager
def _cut(stage: Stage, victim: int) -> Iterator[None]:
    del victim
    stage.doors.cut(stage.everybody)
    yield


_ACTS: Final[dict[Kind, _Act]] = {
    Kind.WORKER_KILLED: _worker_killed,
    Kind.WORKER_FROZEN: _worker_frozen,
    Kind.PRODUCER_KILLED: _producer_killed,
    Kind.NODE_FROZEN: _node_frozen,
    Kind.NODE_KILLED: _node_killed,
    Kind.NODE_WIPED: _node_wiped,
    Kind.NODE_APART: _held(lambda stage, victim: stage.between(victim, one_way=False)),
    Kind.NODE_DEAF: _held(lambda stage, victim: stage.between(victim, one_way=True)),
    Kind.NODE_UNREACHED: _held(lambda stage, victim: [Way(CLIENTS, stage.ring.contact_points[victim - 1])]),
    Kind.CONNECTIONS_CUT: _cut,
}


def befall(stage: Stage, fault: Fault) -> Befallen:
    """Let a fault happen, end it, and let no other happen for a while."""
    victim = _journal(stage, fault)
    lasts = max(fault.lasts, stage.lease + _BEYOND) if fault.kind is Kind.WORKER_FROZEN else fault.lasts
    began = CLOCK.monotonic()
    with _ACTS[fault.kind](stage, fault.victim):
        if fault.kind in OF_WORKERS:
            began = CLOCK.monotonic()  # the worker was frozen only once it had a message in flight
        _wait(lasts)
    ended = CLOCK.monotonic()
    stage.ring.settle()
    note = _repaired(stage, fault) if fault.kind is Kind.NODE_WIPED else ""
    _wait(fault.rest)
    return Befallen(fault, began, ended, CLOCK.monotonic(), victim, note)


def _journal(stage: Stage, fault: Fault) -> str:
    """The journal of the process that a fault happens to; empty if it happens to the store."""
    if fault.kind in OF_WORKERS:
        return stage.people.workers[fault.victim - 1].journal.name
    return stage.people.producers[fault.victim - 1].journal.name if fault.kind is Kind.PRODUCER_KILLED else ""


def _repaired(stage: Stage, fault: Fault) -> str:
    """Repair a node as an operator does after a lost disk, and return a note about it.

    The node was rebuilt from one other copy of each range, which may have been behind.
    """
    began = CLOCK.monotonic()
    stage.ring.nodetool(fault.victim, "repair", "-full", stage.keyspace)
    return f"repaired in {(CLOCK.monotonic() - began) / SECOND:.0f} s"


def _wait(microseconds: int) -> None:
    Wakeup(CLOCK).wait(CLOCK.monotonic() + microseconds)
